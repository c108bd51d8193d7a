"""Line charts out of braille dots: 2 x 4 to a cell. Pure: series in, rows of styled text out.

A chart over all steps is drawn as a sweep: its step axis ends at a round number beyond the newest step, and its
value axis at round values, so that a new point changes one column and not the whole picture.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from liverl_tui.widgets.base.cells import Span, fit
from liverl_tui.widgets.metrics.axes import COLUMNS, log_bounds, number, step_window, ticks, value_bounds

LABEL = COLUMNS + 1  # columns of the value axis
# bit of the dot in column 0..1 and row 0..3 of a cell (Unicode 28xx)
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# [column][first row][last row]: the bits of all dots between
_STROKES = tuple(tuple(tuple(sum(dots[a : b + 1]) for b in range(4)) for a in range(4)) for dots in _DOTS)


class Points(Protocol):
    """Values over ascending steps; NaN and infinities are gaps."""

    @property
    def steps(self) -> Sequence[int]: ...
    @property
    def values(self) -> Sequence[float]: ...


@dataclass(frozen=True)
class ChartStyle:
    """How a chart is drawn. ``last``: so many newest steps only. ``total``: the steps that the run will have;
    ``ended``: none will follow. ``cursor``: a step that is marked."""

    log: bool = False
    last: int | None = None
    cursor: int | None = None
    total: int | None = None
    ended: bool = False
    style: str = "chart1"


# --- points -> columns of dots --------------------------------------------------------------------------


class Column(NamedTuple):
    """What falls into one column of dots. ``joined``: there is no gap between the column before it and this."""

    x: int
    low: float
    high: float
    first: float
    last: float
    joined: bool


def columns(points: Points, start: int, span: int, width: int, *, log: bool = False) -> list[Column]:
    """The points of the steps ``start`` to ``start + span - 1`` in ``width`` columns of dots, the lowest and the
    highest of each. With ``log`` values are logarithms to the base ten, and what has none is a gap."""
    steps, values = points.steps, points.values
    at, end = bisect_left(steps, start), bisect_left(steps, start + span)
    found: list[Column] = []
    joined = False
    if end - at <= width:
        groups: Iterator[tuple[int, int, int]] = (
            ((steps[i] - start) * width // span, i, i + 1) for i in range(at, end)
        )
    else:
        groups = _groups(steps, start, span, width, at, end)
    for x, begin, stop in groups:
        part = values[begin:stop]
        low, high, first, last = min(part), max(part), part[0], part[-1]
        broken = before = False
        # Sums show NaN and infinity at C's speed; min and max do not.
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
        if found and found[-1].x == x:  # a few points share a column
            older = found[-1]
            low, high = min(low, older.low), max(high, older.high)
            found[-1] = Column(x, low, high, older.first, last, older.joined)
        else:
            found.append(Column(x, low, high, first, last, joined and not before))
        joined = not broken
    return found


def _groups(
    steps: Sequence[int], start: int, span: int, width: int, at: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """(column, begin, end) of the points that share a column."""
    for x in range(width):
        stop = bisect_left(steps, start + -(-(x + 1) * span // width), at, end)
        if stop > at:
            yield x, at, stop
        at = stop


# --- columns -> cells -----------------------------------------------------------------------------------


class Plot:
    """Dots in ``width`` x ``height`` cells."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self.cells = [bytearray(width) for _ in range(height)]

    def dot(self, x: int, y: int) -> None:
        if 0 <= x < 2 * self.width and 0 <= y < 4 * self.height:
            self.cells[y >> 2][x >> 1] |= _DOTS[x & 1][y & 3]

    def upright(self, x: int, top: int, bottom: int) -> None:
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
        """From (x0, y0) to (x1, y1), x0 < x1, each column one unbroken stroke."""
        slope = (y1 - y0) / (x1 - x0)
        for x in range(x0, x1 + 1):
            a = y0 + slope * max(0.0, x - x0 - 0.5)
            b = y0 + slope * min(float(x1 - x0), x - x0 + 0.5)
            self.upright(x, round(min(a, b)), round(max(a, b)))

    def draw(self, found: Sequence[Column], low: float, high: float) -> None:
        """Draw the columns between two values."""
        top = 4 * self.height - 1
        low, scale = low / 2, high / 2 - low / 2  # halves, as a difference may be more than a float can hold

        def place(value: float) -> int:
            return round(top - max(0.0, min(1.0, (value / 2 - low) / scale)) * top)

        for index, column in enumerate(found):
            self.upright(column.x, place(column.high), place(column.low))
            if column.joined and index:
                older = found[index - 1]
                self.line(older.x, place(older.last), column.x, place(column.first))
            elif index + 1 == len(found) or not found[index + 1].joined:
                # Alone: one dot is too little to be seen.
                y = place(column.last)
                for x, dy in ((1, 0), (0, 1), (1, 1)):
                    self.dot(column.x + x, y + dy if y < top else y - dy)


# --- the whole picture ----------------------------------------------------------------------------------


def picture(
    points: Points, width: int, height: int, look: ChartStyle, smooth: Points | None = None
) -> list[list[Span]]:
    """A chart with its axes, ``height`` rows of ``width`` columns. ``smooth``: drawn over the points, which then
    stay in the background."""
    room_x, room_y = width - LABEL - 1, height - 1
    if room_x < 4 or room_y < 1:
        return _empty("too small", width, height)
    if not points.steps:
        return _empty("no points yet", width, height)
    start, span = step_window(
        points.steps[0], points.steps[-1], last=look.last, total=look.total, ended=look.ended
    )
    raw = columns(points, start, span, 2 * room_x, log=look.log)
    lines = [(raw, look.style)]
    if smooth is not None:
        lines = [(raw, "dim"), (columns(smooth, start, span, 2 * room_x, log=look.log), look.style)]
    if not raw:
        why = "no value above zero here" if look.log else "no finite value here"
        return _empty(why, width, height)
    low, high = min(c.low for c in raw), max(c.high for c in raw)
    low, high = log_bounds(low, high) if look.log else value_bounds(low, high)
    plots = []
    for found, style in lines:
        plot = Plot(room_x, room_y)
        plot.draw(found, low, high)
        plots.append((plot.cells, style))
    marked = None
    if look.cursor is not None and start <= look.cursor < start + span:
        marked = (look.cursor - start) * room_x // span
    labels = _value_labels(room_y, low, high, look.log)
    rows = []
    for y in range(room_y):
        label = labels.get(y, "")
        spans: list[Span] = [(fit(label, LABEL - 1, ">") + " ", "dim"), ("┤" if label else "│", "rule")]
        rows.append(spans + _cells([(cells[y], style) for cells, style in plots], marked))
    rows.append(_step_axis(width, room_x, start, span, marked, look.cursor))
    return rows


def _empty(why: str, width: int, height: int) -> list[list[Span]]:
    rows: list[list[Span]] = [[(" " * width, "dim")] for _ in range(height)]
    rows[height // 2] = [(fit(why, width, "^"), "dim")]
    return rows


def _value_labels(height: int, low: float, high: float, log: bool) -> dict[int, str]:
    """Row -> label: the bounds, and round values where there is room between them."""

    def text(value: float) -> str:
        if not log:
            return number(value)
        return number(10.0**value) if -300 < value < 300 else f"1e{value:.0f}"

    labels = {height - 1: text(low), 0: text(high)}
    for value in ticks(low, high, height // 4):
        y = round((high - value) / (high - low) * (height - 1))
        if all(abs(y - other) >= 2 for other in labels):
            labels[y] = text(value)
    return labels


def _cells(layers: Sequence[tuple[bytearray, str]], marked: int | None) -> list[Span]:
    """One row of cells; where layers meet, the last one is seen."""
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
    width: int, room: int, start: int, span: int, marked: int | None, cursor: int | None
) -> list[Span]:
    newest = start + span - 1
    mark, place = "", 0
    if marked is not None and cursor is not None:
        mark = (f"▲{cursor}" if marked + len(str(cursor)) + 1 <= room else f"{cursor}▲")[:room]
        place = marked if mark[0] == "▲" else max(0, marked - len(mark) + 1)

    def free(at: int, label: str) -> bool:
        """Whether there is a blank column between a label and the cursor's."""
        return not mark or at + len(label) < place or place + len(mark) < at

    line = [" "] * room
    left, right = f"{start}", f"{newest}"
    taken = len(left)
    if free(0, left):
        _write(line, 0, left)
    if room > taken + len(right) + 2 and free(room - len(right), right):
        _write(line, room - len(right), right)
    for tick in ticks(start, newest, room // 20):
        label = f"{tick:.0f}"
        at = (round(tick) - start) * room // span
        fits = taken + 2 <= at <= room - len(right) - len(label) - 2
        if tick == round(tick) and fits and free(at, label):
            taken = _write(line, at, label)
    spans: list[Span] = [(" " * (width - room - 1) + "└", "rule")]
    text = "".join(line)[:room]
    if not mark:
        return [*spans, (text, "dim")]
    return [*spans, (text[:place], "dim"), (mark, "accent"), (text[place + len(mark) :], "dim")]


def _write(line: list[str], at: int, text: str) -> int:
    """Put ``text`` into ``line``; the place behind it."""
    text = text[: len(line) - at]
    line[at : at + len(text)] = text
    return at + len(text)


# --- smoothing ------------------------------------------------------------------------------------------


class Smoothed:
    """An exponential moving average of a growing series, free of the bias towards its start; gaps stay gaps.

    ``update`` continues where it was, unless older values have changed.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.steps: Sequence[int] = ()
        self.values: array[float] = array("d")
        self._rewrites = -1
        self._sum = self._share = 0.0

    def update(self, points: Points, rewrites: int) -> Smoothed:
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
