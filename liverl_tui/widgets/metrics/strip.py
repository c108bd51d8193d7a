"""A row of small charts above the panes of the dashboard: whether the run learns, at a glance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import zip_longest

from textual import events

from liverl.observe.metrics.series import chart_name
from liverl_tui.widgets.base.cells import CellPanel, Row, Span, fit
from liverl_tui.widgets.metrics.axes import number
from liverl_tui.widgets.metrics.chart import LABEL, ChartStyle, picture
from liverl_tui.widgets.metrics.charts import Charts

NARROWEST, WIDEST = 32, 64  # columns of a chart


class ChartStrip(CellPanel):
    """Draws the charts of ``OVERVIEW`` that the run has, side by side. It is drawn when the series have changed
    (``follow``), not with each view: a step is the only news."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.charts = Charts()
        self._drawn_for: object = None

    @property
    def has_points(self) -> bool:
        """Whether there is a chart to draw."""
        return bool(self.charts.series.overview_charts())

    def follow(self, charts: Charts) -> None:
        """Show the series, the total of steps and the end of ``charts``, if one of them has changed."""
        self.charts = charts
        state = (id(charts.series), charts.series.version, charts.total, charts.ended)
        if state != self._drawn_for:
            self._drawn_for = state
            self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """As many charts as fit, the most important one first; each with a title above it."""
        keys = self.charts.series.overview_charts()[: max(1, width // NARROWEST)]
        if not keys:
            return ()
        wide = min(WIDEST, (width - len(keys) + 1) // len(keys))
        blocks = [self._chart(index, key, wide, height) for index, key in enumerate(keys)]
        rows = []
        for parts in zip_longest(*blocks, fillvalue=()):
            row = Row()
            for place, spans in enumerate(parts):
                row.spans += [(" ", "text"), *spans] if place else spans
            rows.append(row)
        return rows

    def _chart(self, index: int, key: str, width: int, height: int) -> list[list[Span]]:
        """Return title and picture of one chart: ``height`` rows of ``width`` columns."""
        points = self.charts.points(key)
        style = ChartStyle(total=self.charts.total, ended=self.charts.ended, style=f"chart{index % 6 + 1}")
        newest = points.values[-1]
        name = f"{chart_name(key)} "
        room = width - LABEL - 1 - len(name)
        title: list[Span] = [
            (" " * (LABEL + 1), "text"),
            (name, "title"),
            (fit(number(newest), room), "strong" if math.isfinite(newest) else "alarm"),
        ]
        return [title, *picture(points, width, height - 1, style)]

    async def on_click(self, event: events.Click) -> None:
        """Open the metrics screen on a double click."""
        if event.chain == 2:
            await self.app.run_action("metrics")
