"""The metrics screen: charts of what the trainer writes after each step."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from textual.app import App, ComposeResult
from textual.binding import Binding

from liverl.observe.metrics.series import SeriesReader
from liverl_tui.keys.bindings import bindings
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.metrics.axes import number
from liverl_tui.widgets.metrics.charts import Charts
from liverl_tui.widgets.metrics.grid import ChartGrid

if TYPE_CHECKING:
    from pathlib import Path

    from textual.binding import BindingType

    from liverl_tui.data.view import View

LOOK_S = 1.0  # between two looks at the file; an unchanged one costs a stat

_KEYS: list[BindingType] = [*bindings("metrics"), Binding("escape", "back", show=False)]


class Metrics:
    """The charts of one interface and the run behind them; they outlive the screen that shows them."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.charts = Charts()
        self.problem = ""
        self.done = False  # the whole file has been read once
        self._reader = SeriesReader.of_run(run_dir)
        self._busy = False

    async def read(self) -> None:
        """Take in what was written since the last call. The files are read in a thread, a piece at a time."""
        if self._busy:
            return
        self._busy = True
        try:
            more = True
            while more:
                batch = await asyncio.to_thread(self._reader.poll)
                self.charts.series.add(batch)
                more = batch.more
            self.problem, self.done = "", True
        except OSError as error:
            name = os.path.basename(error.filename or self.run_dir)
            self.problem = f"{name}: {error.strerror}"
        finally:
            self._busy = False


_kept: WeakKeyDictionary[App[Any], Metrics] = WeakKeyDictionary()


def metrics_of(app: App[Any], run_dir: Path) -> Metrics:
    """Those of this interface."""
    metrics = _kept.get(app)
    if metrics is None or metrics.run_dir != run_dir:
        metrics = _kept[app] = Metrics(run_dir)
    return metrics


class MetricsScreen(RunScreen):
    scope = "metrics"
    BINDINGS = _KEYS
    DEFAULT_CSS = """
    MetricsScreen { layout: vertical; }
    MetricsScreen ChartGrid { width: 1fr; height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        self._metrics = metrics_of(self.app, self.liverl.source.run.path)
        yield ChartGrid(self._metrics.charts, id="charts")
        yield KeyBar()

    @property
    def charts(self) -> Charts:
        return self._metrics.charts

    @property
    def grid(self) -> ChartGrid:
        return self.query_one(ChartGrid)

    def on_mount(self) -> None:
        super().on_mount()
        self.grid.focus()
        self._drawn: object = None
        self.set_interval(LOOK_S, self._look)
        self._look()

    def _look(self) -> None:
        # The app's worker: a read that the end of this screen broke off would lose what it had read.
        self.app.run_worker(self._read(), group="metrics")

    async def _read(self) -> None:
        await self._metrics.read()
        if self.is_attached:
            self._draw()

    def show(self, view: View) -> None:
        super().show(view)
        if self._composed:
            snapshot = view.snapshot
            self.charts.total = snapshot.total_steps if snapshot is not None else None
            self.charts.ended = view.link == "ended"
            self._draw()

    def _draw(self, *, anew: bool = False) -> None:
        """Draw what is new; nothing is even compared while the series are as they were."""
        metrics, charts = self._metrics, self.charts
        view = self.liverl.view
        state = (charts.series.version, charts.total, charts.ended, view.link, metrics.problem, metrics.done)
        if state == self._drawn and not anew:
            return
        self._drawn = state
        grid = self.grid
        grid.facts, grid.facts_style = self._facts()
        grid.empty = (
            ("reading the metrics ...",)
            if not metrics.done and not metrics.problem
            else ("no metrics yet: the trainer writes them after each step",)
            if not charts.series.series
            else ("no chart: press / to find a metric, or o for the default charts",)
        )
        grid.update()

    def _facts(self) -> tuple[str, str]:
        metrics, charts = self._metrics, self.charts
        series = charts.series
        if metrics.problem:
            return metrics.problem, "bad"
        parts = []
        if series.last is not None:
            of = f" of {charts.total}" if charts.total else ""
            parts.append(f"step {series.last}{of}")
        if charts.last is not None:
            parts.append(f"last {charts.last}")
        if charts.weight:
            parts.append(f"moving average {charts.weight:g}")
        if series.bad_lines:
            parts.append(f"{series.bad_lines} malformed lines")
        if not metrics.done:
            parts.append("reading ...")
        link = self.liverl.view.link
        if link in ("ended", "lost"):
            parts.append("the run has ended" if link == "ended" else "no backend; showing files")
        return " · ".join(parts), "warn" if link == "lost" or series.bad_lines else "dim"

    # -- keys

    def action_back(self) -> None:
        if self.charts.maximised:
            self.action_maximise()
        elif self.charts.cursor is not None:
            self.action_cursor()
        else:
            self.app.pop_screen()

    def action_maximise(self) -> None:
        self.charts.maximised = not self.charts.maximised and self.charts.key is not None
        self._draw(anew=True)

    def action_go(self, across: int, down: int) -> None:
        """To another chart; sideways the cursor moves where it reads values off, or one chart is alone."""
        charts, grid = self.charts, self.grid
        if across and (charts.cursor is not None or charts.maximised):
            charts.move_cursor(across)
        else:
            charts.move(across + down * grid.per_line)
        self._draw(anew=True)

    def action_leap(self, by: int) -> None:
        self.charts.move_cursor(by)
        self._draw(anew=True)

    def action_cursor(self) -> None:
        self.charts.toggle_cursor()
        self._draw(anew=True)

    def action_remove(self) -> None:
        self.charts.remove()
        self._draw(anew=True)

    def action_defaults(self) -> None:
        self.charts.chosen = None
        self._draw(anew=True)

    def action_log_scale(self) -> None:
        self.charts.toggle_log()
        self._draw(anew=True)

    def action_zoom(self, by: int) -> None:
        self.charts.zoom(by)
        self._draw(anew=True)

    def action_zoom_all(self) -> None:
        self.charts.last = None
        self._draw(anew=True)

    def action_smooth(self) -> None:
        self.charts.cycle_weight()
        self._draw(anew=True)

    def action_find(self) -> None:
        from liverl_tui.screens.metric_finder import MetricFinder

        series = self.charts.series.series
        newest = {key: number(found.values[-1]) for key, found in series.items() if found.values}
        self.app.push_screen(MetricFinder(newest, self.charts.keys), self._found)

    def _found(self, key: str | None) -> None:
        if key is not None:
            self.charts.pin(key)
            self._draw(anew=True)
