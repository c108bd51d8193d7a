"""The widget with the charts. A chart is computed again only if its points, its size or its style have changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import wrap

from textual import events

from liverl.observe.metrics.series import chart_name
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.base.pane import Pane
from liverl_tui.widgets.metrics.axes import number
from liverl_tui.widgets.metrics.chart import LABEL, picture
from liverl_tui.widgets.metrics.charts import Charts

NARROWEST = 50  # columns of a chart beside others
MOST = 4  # charts side by side
LEAST_KEY = 8  # columns of a metric's key in the title of its chart
ROOMY = 30  # rows from which on a note takes some
NOTED = 3  # rows of a note
LEAST = 7  # rows of a chart, its title included; fewer charts are visible rather than lower ones


class ChartGrid(Pane):
    """Draws ``charts``, up to ``MOST`` side by side, and scrolls to the selected one.

    The screen sets ``facts`` (words beside the title), ``facts_style`` (the name of their style), ``empty`` (lines that
    are shown if there is no chart) and ``note`` (a sentence below the title, where a screen has rows to spare), and
    then calls ``update``.
    """

    title = "Metrics"

    def __init__(self, charts: Charts, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.charts = charts
        self.facts = ""
        self.facts_style = "dim"
        self.empty: tuple[str, ...] = ()
        self.note = ""
        self.top = 0  # index of the first visible row of charts
        self.per_line = 1  # charts side by side
        self._places: list[tuple[int, int, int, int, int]] = []  # x, y, width, height, index of each chart
        self._pictures: dict[
            str, tuple[object, list[list[Span]]]
        ] = {}  # chart -> (what it was drawn for, its rows)

    # -- layout

    def _arrange(self, width: int, height: int) -> list[list[int]]:
        """Return the visible rows of charts, each as indices into ``charts.keys``."""
        charts = self.charts
        count = len(charts.keys)
        if charts.maximised:
            self.per_line = 1
            return [[charts.selected]]
        self.per_line = side_by_side(count, max(1, min(MOST, width // NARROWEST)))
        lines = [list(range(i, min(i + self.per_line, count))) for i in range(0, count, self.per_line)]
        visible = max(1, min(len(lines), height // LEAST))
        line = charts.selected // self.per_line
        self.top = max(0, min(self.top, line, len(lines) - visible), line - visible + 1)
        return lines[self.top : self.top + visible]

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title and the visible charts; if not all fit, the title says which are visible."""
        charts = self.charts
        keys = charts.keys
        facts = self.facts
        if charts.key is None:
            self._places = []
            return [
                self.title_row(width, facts, self.facts_style),
                *(Row((f" {t}", "dim")) for t in self.empty),
            ]
        noted = self._note(width, height)
        lines = self._arrange(width, height - 1 - len(noted))
        visible = [i for line in lines for i in line]
        if len(visible) < len(keys):
            part = f"{visible[0] + 1}-{visible[-1] + 1}" if len(visible) > 1 else f"{visible[0] + 1}"
            facts = f"{facts}  chart {part} of {len(keys)}"
        rows = [self.title_row(width, facts, self.facts_style), *noted]
        self._places = []
        room = height - len(rows)
        for number_, line in enumerate(lines):
            tall = room // len(lines) + (number_ < room % len(lines))
            blocks = []
            for index, (x, wide) in zip(line, places(width, len(line)), strict=True):
                self._places.append((x, len(rows), wide, tall, index))
                blocks.append(self._chart(index, wide, tall))
            rows += [Row(*spans) for spans in beside(blocks)]
        # Free the pictures of charts that were removed.
        self._pictures = {key: entry for key, entry in self._pictures.items() if key in keys}
        return rows

    def _note(self, width: int, height: int) -> list[Row]:
        """The rows of the note; none on a screen with few rows, and none for a note that would take too many."""
        rows = wrap(self.note, max(1, width - 2)) if height >= ROOMY else []
        return [Row((f" {row}", "text")) for row in rows] if len(rows) <= NOTED else []

    # -- one chart

    def _chart(self, index: int, width: int, height: int) -> list[list[Span]]:
        """Return title and picture of one chart: ``height`` rows of ``width`` columns."""
        key = self.charts.keys[index]
        return [self._title(index, key, width), *self._picture(key, width, height - 1)]

    def _picture(self, key: str, width: int, height: int) -> list[list[Span]]:
        """Return the rows of a chart, from the cache if nothing they depend on has changed."""
        charts = self.charts
        points, style = charts.points(key), charts.style(key)
        state = (id(points), points.version, width, height, style, charts.weight)
        entry = self._pictures.get(key)
        if entry is None or entry[0] != state:
            entry = (state, picture(points, width, height, style, charts.smoothed(key)))
            self._pictures[key] = entry
        return entry[1]

    def _title(self, index: int, key: str, width: int) -> list[Span]:
        """Return the title of a chart: mark of the selected one, name, key, a value, and the number of gaps. In a
        narrow one the key is cut, not the value."""
        charts = self.charts
        selected = index == charts.selected
        mark = "▸" if selected else " "
        name = chart_name(key)
        spans: list[Span] = [
            (fit(mark, LABEL - 6, ">"), "accent"),
            (f"{name} " if name else "", "title_focus" if selected and name else "strong"),
        ]
        place = len(spans)
        reading = charts.reading(key)
        if reading is not None:
            step, value = reading
            style = "accent" if charts.cursor is not None else "strong"
            spans += [
                (f"  {number(value)}", style if math.isfinite(value) else "alarm"),
                (f" at {step}" if charts.cursor is not None else "", "accent"),
            ]
        points = charts.points(key)
        if points.gaps:
            spans.append((f"  {points.gaps} not finite", "warn"))
        elif said := level_words(points.values):
            spans.append((f"  {said}", "dim"))
        if key in charts.log:
            spans.append(("  log", "info"))
        room = width - sum(len(text) for text, _ in spans) - 1
        key_style = "title_focus" if selected and not name else "dim" if name else "strong"
        shown = fit(key, min(len(key), max(LEAST_KEY, room)))
        spans.insert(place, (f" {shown}" if name else f"{shown} ", key_style))
        return exactly(spans, width)

    # -- mouse

    def on_click(self, event: events.Click) -> None:
        """Select the clicked chart; a double click maximises it, or shows all charts again."""
        for x, y, width, height, index in self._places:
            if x <= event.x < x + width and y <= event.y < y + height:
                self.charts.selected = index
                if event.chain == 2:
                    self.charts.maximised = not self.charts.maximised
                self.update()
                return

    def wheel(self, by: int) -> None:
        """Select a chart one row further down (1) or up (-1)."""
        self.charts.move(self.per_line * by)
        self.update()

    # -- copying

    def copy_line(self) -> str:
        """Return the key of the selected chart with the value and step in its title; the key alone without points."""
        key = self.charts.key
        reading = self.charts.reading(key) if key is not None else None
        return f"{key} {reading[1]!r} at step {reading[0]}" if reading is not None else key or ""

    def copy_all(self) -> str:
        """Return all points of the selected chart as a table: step and value, separated by a tab, with a head."""
        key = self.charts.key
        if key is None:
            return ""
        points = self.charts.points(key)
        pairs = zip(points.steps, points.values, strict=True)
        return "\n".join([f"step\t{key}", *(f"{step}\t{value!r}" for step, value in pairs)])


def level_words(values: Sequence[float]) -> str:
    """That a chart has no line to read, in words: ``one point``, or ``4 equal points``; empty where it has one."""
    if len(values) == 1:
        return "one point"
    if values and values[0] == values[-1] and min(values) == max(values):
        return f"{len(values)} equal points"
    return ""


def side_by_side(count: int, most: int) -> int:
    """How many of ``count`` charts, at least one, stand in a row of at most ``most``: no more rows than with as many as
    possible in each, and these evenly filled."""
    return -(-count // -(-count // most))


def places(width: int, count: int) -> list[tuple[int, int]]:
    """(first column, columns) of ``count`` charts side by side that fill ``width`` columns, a blank one between two."""
    ends = [(n + 1) * (width + 1) // count for n in range(count)]
    return [(begin, end - 1 - begin) for begin, end in zip([0, *ends], ends, strict=False)]


def beside(blocks: Iterable[list[list[Span]]]) -> list[list[Span]]:
    """The rows of charts side by side, a blank column between two."""
    rows = []
    for parts in zip_longest(*blocks, fillvalue=()):
        spans: list[Span] = []
        for place, part in enumerate(parts):
            spans += [(" ", "text"), *part] if place else list(part)
        rows.append(spans)
    return rows


def exactly(spans: list[Span], width: int) -> list[Span]:
    """Return ``spans`` cut or padded to exactly ``width`` columns."""
    exact: list[Span] = []
    used = 0
    for text, style in spans:
        if not text:
            continue
        if used + len(text) > width:
            text = fit(text, width - used)
        if text:
            exact.append((text, style))
            used += len(text)
    if used < width:
        exact.append((" " * (width - used), "text"))
    return exact
