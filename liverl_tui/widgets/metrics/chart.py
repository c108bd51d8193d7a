"""Line charts out of braille dots, 2 x 4 in a cell. Pure: takes a series, returns rows of styled text.

Both axes of a chart over all steps end at round numbers beyond the newest point, so that the next point changes one
column of cells and not the whole picture.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from liverl_tui.widgets.base.cells import Span, fit
from liverl_tui.widgets.metrics.axes import (
    COLUMNS,
    log_bounds,
    number,
    numbers,
    step_window,
    ticks,
    value_bounds,
)

LABEL = COLUMNS + 1  # columns of a label at the value axis, and of the blank after it
# [column 0..1][row 0..3] of a dot in a cell: its bit in the braille character, U+2800 + bits
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# [column][first row][last row]: the bits of all dots from first to last row
_STROKES = tuple(tuple(tuple(sum(dots[a : b + 1]) for b in range(4)) for a in range(4)) for dots in _DOTS)

Places = Callable[
    [float, float, int], Sequence[float]
]  # what has a label, strictly between two, at most so many


class Points(Protocol):
    """Values over ascending steps; NaN and infinities are gaps."""

    @property
    def steps(self) -> Sequence[int]:
        """The steps, ascending."""
        ...

    @property
    def values(self) -> Sequence[float]:
        """The value at each step; as many as ``steps``."""
        ...


@dataclass(frozen=True)
class ChartStyle:
    """How a chart is drawn."""

    log: bool = False  # logarithmic value axis
    last: int | None = None  # number of newest steps that are shown; None = all
    cursor: int | None = None  # a step that is marked
    total: int | None = None  # steps of the whole run, if known
    ended: bool = False  # no step will follow
    style: str = "chart1"  # name of the line's style in the palette


# --- points -> columns of dots --------------------------------------------------------------------------


def column_of(step: int, start: int, span: int, width: int) -> int:
    """Return the column of ``step``, of ``width``. Of ``span`` steps from ``start`` on the first has the first column
    and the last one the last, so that each point stands above its label at the axis; of more steps than columns,
    equally many share each."""
    if span > width:
        return (step - start) * width // span
    return (step - start) * (width - 1) // max(1, span - 1)


def first_step(column: int, start: int, span: int, width: int) -> int:
    """Return the lowest step whose ``column_of`` is ``column`` or one right of it."""
    if span > width:
        return start + -(-column * span // width)
    return start + -(-column * max(1, span - 1) // max(1, width - 1))


class Column(NamedTuple):
    """The points that share one column of dots."""

    x: int  # column of dots, 0 = the left one
    low: float
    high: float
    first: float  # value of the point with the lowest step
    last: float
    joined: bool  # no gap between the points of the column before and these


def columns(points: Points, start: int, span: int, width: int, *, log: bool = False) -> list[Column]:
    """Return the points of the steps ``start`` to ``start + span - 1``, spread over ``width`` columns of dots, from
    left to right; columns without a finite value are left out.

    ``log``: values become logarithms to the base ten; values that are not above zero become gaps.
    """
    steps, values = points.steps, points.values
    at, end = bisect_left(steps, start), bisect_left(steps, start + span)
    filled: list[Column] = []
    joined = False  # the point before this column is finite
    if end - at <= width:
        groups: Iterator[tuple[int, int, int]] = (
            (column_of(steps[i], start, span, width), i, i + 1) for i in range(at, end)
        )
    else:
        groups = _groups(steps, start, span, width, at, end)
    for x, begin, stop in groups:
        part = values[begin:stop]
        low, high, first, last = min(part), max(part), part[0], part[-1]
        broken = before = False  # the last, the first point of this column is a gap
        # A sum is not finite if one of its values is not. Unlike a check of each value it runs at C's speed.
        if not math.isfinite(sum(part)) or (log and low <= 0):
            good = [v for v in part if math.isfinite(v) and not (log and v <= 0)]
            before = not good or first != good[0]
            broken = not good or last != good[-1]
            if not good:
                joined = False
                continue
            low, high, first, last = min(good), max(good), good[0], good[-1]
        if log:
            low, high, first, last = (math.log10(v) for v in (low, high, first, last))
        if filled and filled[-1].x == x:  # a few points share a column
            older = filled[-1]
            low, high = min(low, older.low), max(high, older.high)
            filled[-1] = Column(x, low, high, older.first, last, older.joined)
        else:
            filled.append(Column(x, low, high, first, last, joined and not before))
        joined = not broken
    return filled


def _groups(
    steps: Sequence[int], start: int, span: int, width: int, at: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (column, begin, end) for each column with points: the indices ``begin`` to ``end - 1`` fall into it."""
    for x in range(width):
        stop = bisect_left(steps, first_step(x + 1, start, span, width), at, end)
        if stop > at:
            yield x, at, stop
        at = stop


# --- columns -> cells -----------------------------------------------------------------------------------


class Plot:
    """Dots in ``width`` x ``height`` cells: 2 x 4 dots in each. Dot (0, 0) is at the top left.

    ``cells``: a row of braille bits per row of cells.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self.cells = [bytearray(width) for _ in range(height)]

    def dot(self, x: int, y: int) -> None:
        """Set the dot in column ``x`` and row ``y``; outside the plot do nothing."""
        if 0 <= x < 2 * self.width and 0 <= y < 4 * self.height:
            self.cells[y >> 2][x >> 1] |= _DOTS[x & 1][y & 3]

    def upright(self, x: int, top: int, bottom: int) -> None:
        """Set the dots of column ``x`` from row ``top`` to row ``bottom``, as far as they are in the plot."""
        top, bottom = max(0, top), min(4 * self.height - 1, bottom)
        if top > bottom or not 0 <= x < 2 * self.width:
            return
        cells, strokes, place = self.cells, _STROKES[x & 1], x >> 1
        first, last = top >> 2, bottom >> 2
        if first == last:
            cells[first][place] |= strokes[top & 3][bottom & 3]
            return
        cells[first][place] |= strokes[top & 3][3]
        for y in range(first + 1, last):
            cells[y][place] |= strokes[0][3]
        cells[last][place] |= strokes[0][bottom & 3]

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        """Set the dots of a line from (x0, y0) to (x1, y1), without gaps; x0 < x1."""
        slope = (y1 - y0) / (x1 - x0)
        for x in range(x0, x1 + 1):
            a = y0 + slope * max(0.0, x - x0 - 0.5)
            b = y0 + slope * min(float(x1 - x0), x - x0 + 0.5)
            self.upright(x, round(min(a, b)), round(max(a, b)))

    def draw(self, series: Sequence[Column], low: float, high: float) -> None:
        """Draw a line through the columns; ``low`` is at the lowest row of dots, ``high`` > ``low`` at the top one."""
        top = 4 * self.height - 1
        low, scale = low / 2, high / 2 - low / 2  # halves: the difference of two floats may overflow

        def row_of(value: float) -> int:
            return round(top - max(0.0, min(1.0, (value / 2 - low) / scale)) * top)

        for index, column in enumerate(series):
            self.upright(column.x, row_of(column.high), row_of(column.low))
            if column.joined and index:
                older = series[index - 1]
                self.line(older.x, row_of(older.last), column.x, row_of(column.first))
            elif index + 1 == len(series) or not series[index + 1].joined:
                # A point without neighbours: one dot would hardly be visible, so it gets a block of 2 x 2.
                y = row_of(column.last)
                beside = 1 if column.x + 1 < 2 * self.width else -1
                for x, dy in ((beside, 0), (0, 1), (beside, 1)):
                    self.dot(column.x + x, y + dy if y < top else y - dy)


# --- the whole picture ----------------------------------------------------------------------------------


def picture(
    points: Points, width: int, height: int, chart: ChartStyle, smooth: Points | None = None
) -> list[list[Span]]:
    """Return a chart with its axes: ``height`` rows of ``width`` columns. If there is nothing to draw, or no room, a
    line says why.

    ``smooth``: a second line over the points, which are then dim.
    """
    room_x, room_y = width - LABEL - 1, height - 1
    if room_x < 4 or room_y < 1:
        return _empty("too small", width, height)
    if not points.steps:
        return _empty("no points yet", width, height)
    start, span = step_window(
        points.steps[0], points.steps[-1], last=chart.last, total=chart.total, ended=chart.ended
    )
    raw = columns(points, start, span, 2 * room_x, log=chart.log)
    lines = [(raw, chart.style)]
    if smooth is not None:
        lines = [(raw, "dim"), (columns(smooth, start, span, 2 * room_x, log=chart.log), chart.style)]
    if not raw:
        why = "no value above zero here" if chart.log else "no finite value here"
        return _empty(why, width, height)
    low, high = min(c.low for c in raw), max(c.high for c in raw)
    low, high = log_bounds(low, high) if chart.log else value_bounds(low, high)
    plots = []
    for line, style in lines:
        plot = Plot(room_x, room_y)
        plot.draw(line, low, high)
        plots.append((plot.cells, style))
    marked = None
    if chart.cursor is not None and start <= chart.cursor < start + span:
        marked = column_of(chart.cursor, start, span, 2 * room_x) // 2
    labels = _value_labels(room_y, low, high, chart.log)
    rows = []
    for y in range(room_y):
        label = labels.get(y, "")
        spans: list[Span] = [(fit(label, LABEL - 1, ">") + " ", "dim"), ("┤" if label else "│", "rule")]
        rows.append(spans + _cells([(cells[y], style) for cells, style in plots], marked))
    rows.append(_step_axis(width, room_x, start, span, marked, chart.cursor))
    return rows


@dataclass(frozen=True)
class Line:
    """One of several lines in a chart. ``letter``: stands at its end, since colours alone tell nothing apart."""

    points: Points
    style: str
    letter: str


def overlay(
    lines: Sequence[Line],
    width: int,
    height: int,
    *,
    log: bool = False,
    cursor: int | None = None,
    words: Callable[[float], str] = "{:.0f}".format,
    places: Places = ticks,
) -> list[list[Span]]:
    """Return several lines in one chart: ``height`` rows of ``width`` columns. Where they overlap, the first one is
    seen, and of the points that share a column of dots their mean: ranges would hide the lines behind them. ``words``:
    what a place of the axis below is called; ``places``: which of them have a label."""
    room_x, room_y = width - LABEL - 1 - _LETTERS, height - 1
    lines = [line for line in lines if line.points.steps]
    if room_x < 4 or room_y < 1:
        return _empty("too small", width, height)
    if not lines:
        return _empty("no points", width, height)
    start = min(line.points.steps[0] for line in lines)
    span = max(2, max(line.points.steps[-1] for line in lines) - start + 1)
    drawn = [(line, _means(line.points, start, span, 2 * room_x, log=log)) for line in lines]
    values = [value for _, found in drawn for column in found for value in (column.low, column.high)]
    if not values:
        return _empty("no value above zero" if log else "no finite value", width, height)
    low, high = (log_bounds if log else value_bounds)(min(values), max(values))
    layers: list[tuple[list[bytearray], str]] = []
    ends: list[tuple[int, Line]] = []
    for line, found in drawn:
        plot = Plot(room_x, room_y)
        plot.draw(found, low, high)
        layers.insert(0, (plot.cells, line.style))
        if found:
            ends.append((round((high - found[-1].last) / (high - low) * (room_y - 1)), line))
    letters = _apart(ends[:room_y], room_y)
    marked = None
    if cursor is not None and start <= cursor < start + span:
        marked = column_of(cursor, start, span, 2 * room_x) // 2
    labels = _value_labels(room_y, low, high, log)
    rows = []
    for y in range(room_y):
        label = labels.get(y, "")
        spans: list[Span] = [(fit(label, LABEL - 1, ">") + " ", "dim"), ("┤" if label else "│", "rule")]
        spans += _cells([(cells[y], style) for cells, style in layers], marked)
        end = letters.get(y)
        rows.append([*spans, (f" {end.letter}", end.style) if end is not None else (" " * _LETTERS, "text")])
    axis = _step_axis(width - _LETTERS, room_x, start, span, marked, cursor, words, places)
    return [*rows, [*axis, (" " * _LETTERS, "text")]]


def _means(points: Points, start: int, span: int, width: int, *, log: bool) -> list[Column]:
    """As ``columns``, with the mean of the finite values in each."""
    means = []
    for column in columns(points, start, span, width, log=log):
        begin = bisect_left(points.steps, first_step(column.x, start, span, width))
        end = bisect_left(points.steps, first_step(column.x + 1, start, span, width))
        good = [v for v in points.values[begin:end] if math.isfinite(v) and not (log and v <= 0)]
        mean = sum(math.log10(v) if log else v / len(good) for v in good) / (len(good) if log else 1)
        means.append(Column(column.x, mean, mean, mean, mean, column.joined))
    return means


_LETTERS = 2  # columns of the letters at the ends of lines


def _apart(ends: Sequence[tuple[int, Line]], height: int) -> dict[int, Line]:
    """Row -> the line whose letter stands there: the row of its end, or the nearest free one. At most ``height``."""
    placed: dict[int, Line] = {}
    for wanted, line in sorted(ends, key=lambda end: end[0]):
        free = [row for row in range(height) if row not in placed]
        placed[min(free, key=lambda row: (abs(row - wanted), row))] = line
    return placed


def _empty(why: str, width: int, height: int) -> list[list[Span]]:
    """Return blank rows with ``why`` in the middle."""
    rows: list[list[Span]] = [[(" " * width, "dim")] for _ in range(height)]
    rows[height // 2] = [(fit(why, width, "^"), "dim")]
    return rows


def _value_labels(height: int, low: float, high: float, log: bool) -> dict[int, str]:
    """Return row -> label: the bounds, and round values between them, at least one row without a label apart."""

    values = {height - 1: low, 0: high}
    for value in ticks(low, high, height // 4):
        y = round((high - value) / (high - low) * (height - 1))
        if all(abs(y - other) >= 2 for other in values):
            values[y] = value
    if log:  # decades have no unit in common
        return {y: number(10.0**v) if -300 < v < 300 else f"1e{v:.0f}" for y, v in values.items()}
    return dict(zip(values, numbers(list(values.values())), strict=True))


def _cells(layers: Sequence[tuple[bytearray, str]], marked: int | None) -> list[Span]:
    """Return one row of cells from (bits, style) of each layer; where layers overlap, the last one is drawn.

    ``marked``: the column of cells where the cursor is.
    """
    spans: list[Span] = []
    text, style = "", ""
    for x in range(len(layers[0][0])):
        bits, wanted = 0, style or layers[0][1]
        for cells, own in layers:
            if cells[x]:
                bits, wanted = cells[x], own
        character = chr(0x2800 + bits) if bits else " "
        if x == marked:
            character, wanted = (character, "accent") if bits else ("│", "rule")
        if wanted != style and text:
            spans.append((text, style))
            text = ""
        style = wanted
        text += character
    spans.append((text, style))
    return spans


def _step_axis(
    width: int,
    room: int,
    start: int,
    span: int,
    marked: int | None,
    cursor: int | None,
    words: Callable[[float], str] = "{:.0f}".format,
    places: Places = ticks,
) -> list[Span]:
    """Return the row of the step axis: first and last step, round steps between them, and the cursor's step.

    ``room``: columns of the plot. ``marked``: the cursor's column, if it is in the window. ``words``: what a place is
    called. ``places``: those with a label, of at most so many between two.
    """
    end_step = start + span - 1
    mark, place = "", 0
    if marked is not None and cursor is not None:
        mark = (f"▲{words(cursor)}" if marked + len(words(cursor)) + 1 <= room else f"{words(cursor)}▲")[
            :room
        ]
        place = marked if mark[0] == "▲" else max(0, marked - len(mark) + 1)

    def free(at: int, label: str) -> bool:
        """Return whether a blank column stays between ``label`` at column ``at`` and the cursor's label."""
        return not mark or at + len(label) < place or place + len(mark) < at

    line = [" "] * room
    left, right = words(start), words(end_step)
    taken = len(left)
    if free(0, left):
        _write(line, 0, left)
    if room > taken + len(right) + 2 and free(room - len(right), right):
        _write(line, room - len(right), right)
    for tick in places(start, end_step, room // 20):
        label = words(tick)
        at = column_of(round(tick), start, span, 2 * room) // 2
        fits = taken + 2 <= at <= room - len(right) - len(label) - 2
        if tick == round(tick) and fits and free(at, label):
            taken = _write(line, at, label)
    spans: list[Span] = [(" " * (width - room - 1) + "└", "rule")]
    text = "".join(line)[:room]
    if not mark:
        return [*spans, (text, "dim")]
    return [*spans, (text[:place], "dim"), (mark, "accent"), (text[place + len(mark) :], "dim")]


def _write(line: list[str], at: int, text: str) -> int:
    """Put ``text`` into ``line`` at column ``at``, cut at the end of the line. Return the column after it."""
    text = text[: len(line) - at]
    line[at : at + len(text)] = text
    return at + len(text)


# --- smoothing ------------------------------------------------------------------------------------------


class Smoothed:
    """An exponential moving average of a growing series, corrected for the bias of its first values; gaps stay gaps.

    ``weight``: the share of older values, 0..1. ``steps`` and ``values`` are as of the last ``update``.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.steps: Sequence[int] = ()
        self.values: array[float] = array("d")
        self._rewrites = -1
        self._sum = self._share = 0.0

    def update(self, points: Points, rewrites: int) -> Smoothed:
        """Add the new values of ``points``, and return this object. All are computed again if ``rewrites`` (see
        ``Series``) has changed, or there are fewer values than before."""
        if rewrites != self._rewrites or len(points.values) < len(self.values):
            self._rewrites = rewrites
            self.values = array("d")
            self._sum = self._share = 0.0
        self.steps = points.steps
        weight = self.weight
        for value in points.values[len(self.values) :]:
            if math.isfinite(value):
                self._sum = weight * self._sum + (1 - weight) * value
                self._share = weight * self._share + 1 - weight
                value = self._sum / self._share
            self.values.append(value)
        return self
