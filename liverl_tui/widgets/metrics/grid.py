"""Several charts in one widget: each is drawn again only when it has a new point or is looked at otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import zip_longest

from textual import events

from liverl.observe.metrics.series import chart_name
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.base.rows import Pane
from liverl_tui.widgets.metrics.axes import number
from liverl_tui.widgets.metrics.chart import LABEL, picture
from liverl_tui.widgets.metrics.charts import Charts

TWO_COLUMNS = 110  # columns of the terminal from which on two charts stand beside each other
LEAST = 7  # rows of a chart, its title included


class ChartGrid(Pane):
    """Draws ``charts``; ``facts`` and ``style`` stand in the title, ``empty`` where there is no chart."""

    title = "Metrics"

    def __init__(self, charts: Charts, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.charts = charts
        self.facts = ""
        self.facts_style = "dim"
        self.empty: tuple[str, ...] = ()
        self.top = 0  # first row of charts that is seen
        self.per_line = 1
        self._places: list[tuple[int, int, int, int, int]] = []  # x, y, width, height, index of each chart
        self._pictures: dict[str, tuple[object, list[list[Span]]]] = {}

    # -- where the charts stand

    def _arrange(self, width: int, height: int) -> list[list[int]]:
        """Rows of charts (by index) that are seen."""
        charts = self.charts
        count = len(charts.keys)
        if charts.maximised:
            self.per_line = 1
            return [[charts.selected]]
        self.per_line = 2 if width >= TWO_COLUMNS and count > 1 else 1
        lines = [list(range(i, min(i + self.per_line, count))) for i in range(0, count, self.per_line)]
        seen = max(1, min(len(lines), height // LEAST))
        line = charts.selected // self.per_line
        self.top = max(0, min(self.top, line, len(lines) - seen), line - seen + 1)
        return lines[self.top : self.top + seen]

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        charts = self.charts
        keys = charts.keys
        facts = self.facts
        if charts.key is None:
            self._places = []
            return [
                self.title_row(width, facts, self.facts_style),
                *(Row((f" {t}", "dim")) for t in self.empty),
            ]
        lines = self._arrange(width, height - 1)
        seen = [i for line in lines for i in line]
        if len(seen) < len(keys):
            part = f"{seen[0] + 1}-{seen[-1] + 1}" if len(seen) > 1 else f"{seen[0] + 1}"
            facts = f"{facts}  chart {part} of {len(keys)}"
        rows = [self.title_row(width, facts, self.facts_style)]
        self._places = []
        room = height - 1
        for number_, line in enumerate(lines):
            tall = room // len(lines) + (number_ < room % len(lines))
            wide = (width - self.per_line + 1) // self.per_line
            blocks = []
            for place, index in enumerate(line):
                self._places.append((place * (wide + 1), len(rows), wide, tall, index))
                blocks.append(self._chart(index, wide, tall))
            for parts in zip_longest(*blocks, fillvalue=()):
                row = Row()
                for place, spans in enumerate(parts):
                    row.spans += [(" ", "text"), *spans] if place else spans
                rows.append(row)
        # What is no longer shown needs no memory.
        self._pictures = {key: kept for key, kept in self._pictures.items() if key in keys}
        return rows

    # -- one chart

    def _chart(self, index: int, width: int, height: int) -> list[list[Span]]:
        key = self.charts.keys[index]
        return [self._title(index, key, width), *self._picture(key, width, height - 1)]

    def _picture(self, key: str, width: int, height: int) -> list[list[Span]]:
        charts = self.charts
        points, look = charts.points(key), charts.look(key)
        state = (id(points), points.version, width, height, look, charts.weight)
        kept = self._pictures.get(key)
        if kept is None or kept[0] != state:
            kept = (state, picture(points, width, height, look, charts.smoothed(key)))
            self._pictures[key] = kept
        return kept[1]

    def _title(self, index: int, key: str, width: int) -> list[Span]:
        charts = self.charts
        selected = index == charts.selected
        mark = "▸" if selected else " "
        name = chart_name(key)
        spans: list[Span] = [
            (fit(mark, LABEL - 6, ">"), "accent"),
            (f"{name} " if name else "", "title_focus" if selected and name else "strong"),
            (
                f" {key}" if name else f"{key} ",
                "title_focus" if selected and not name else "dim" if name else "strong",
            ),
        ]
        reading = charts.reading(key)
        if reading is not None:
            step, value = reading
            style = "accent" if charts.cursor is not None else "strong"
            spans += [
                (f"  {number(value)}", style if math.isfinite(value) else "alarm"),
                (f" at {step}" if charts.cursor is not None else "", "accent"),
            ]
        gaps = charts.points(key).gaps
        if gaps:
            spans.append((f"  {gaps} not finite", "warn"))
        if key in charts.log:
            spans.append(("  log", "info"))
        return _exactly(spans, width)

    # -- mouse

    def on_click(self, event: events.Click) -> None:
        for x, y, width, height, index in self._places:
            if x <= event.x < x + width and y <= event.y < y + height:
                self.charts.selected = index
                if event.chain == 2:
                    self.charts.maximised = not self.charts.maximised
                self.update()
                return

    def wheel(self, by: int) -> None:
        self.charts.move(self.per_line * by)
        self.update()

    # -- copying

    def copy_line(self) -> str:
        """The selected metric as it is read off."""
        key = self.charts.key
        reading = self.charts.reading(key) if key is not None else None
        return f"{key} {reading[1]!r} at step {reading[0]}" if reading is not None else key or ""

    def copy_all(self) -> str:
        """The selected metric as a table of steps and values."""
        key = self.charts.key
        if key is None:
            return ""
        points = self.charts.points(key)
        pairs = zip(points.steps, points.values, strict=True)
        return "\n".join([f"step\t{key}", *(f"{step}\t{value!r}" for step, value in pairs)])


def _exactly(spans: list[Span], width: int) -> list[Span]:
    """``spans`` cut or padded to ``width`` columns."""
    found: list[Span] = []
    used = 0
    for text, style in spans:
        if not text:
            continue
        if used + len(text) > width:
            text = fit(text, width - used)
        if text:
            found.append((text, style))
            used += len(text)
    if used < width:
        found.append((" " * (width - used), "text"))
    return found
