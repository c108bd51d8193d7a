"""The metrics screen: charts of the values that the trainer writes after each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding

from liverl_tui.keys.bindings import bindings, find
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.run_metrics import metrics_of
from liverl_tui.text.words import one_line, step_of
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.metrics.axes import number
from liverl_tui.widgets.metrics.charts import Charts
from liverl_tui.widgets.metrics.grid import ChartGrid

if TYPE_CHECKING:
    from textual.binding import BindingType

    from liverl.model import Snapshot
    from liverl_tui.data.view import View

POLL_S = 1.0  # seconds between two polls of the metrics files; a poll of an unchanged file is one stat

_KEYS: list[BindingType] = [*bindings("metrics"), Binding("escape", "back", show=False)]


_NEED_CHART = ("maximise", "go", "leap", "cursor", "remove", "log_scale", "zoom", "zoom_all", "smooth")


def _none_yet(trackers: Mapping[str, str], *, ended: bool = False) -> tuple[str, ...]:
    """What is shown without a metric. Without the loggers ``console`` and ``file`` verl writes none that could be read
    here. ``trackers``: where it logs them besides; ``ended``: the run has."""
    if not trackers and ended:
        return ("no metrics: the run ended before its first step",)
    if not trackers:
        return ("no metrics yet: the trainer writes them after each step",)
    where = (one_line(f"event files in {w}" if name == "tensorboard" else w) for name, w in trackers.items())
    words = f"no metrics yet; if steps have ended, the trainer logs them to {' and '.join(trackers)} only:"
    return (words, *where, "to see them here, add console or file to trainer.logger")


def bottleneck_words(snapshot: Snapshot | None) -> str:
    """What a step waits for most; without that, what takes longer than before; "" without either."""
    time = snapshot.step_time if snapshot is not None else None
    if time is None:
        return ""
    return one_line(time.bottleneck.sentence if time.bottleneck is not None else time.slower)


class MetricsScreen(RunScreen):
    """A grid of charts, and the keys that choose, zoom, smooth and read them."""

    scope = "metrics"
    BINDINGS = _KEYS
    DEFAULT_CSS = """
    MetricsScreen { layout: vertical; }
    MetricsScreen ChartGrid { width: 1fr; height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """The grid of charts, above the key bar."""
        self._metrics = metrics_of(self.app, self.liverl.source.run.path)
        yield Header()
        yield ChartGrid(self._metrics.charts, id="charts")
        yield KeyBar()

    @property
    def charts(self) -> Charts:
        """Which charts are shown, and how; what the keys of this screen change."""
        return self._metrics.charts

    @property
    def grid(self) -> ChartGrid:
        """The widget that draws the charts."""
        return self.query_one(ChartGrid)

    def on_mount(self) -> None:
        """Focus the grid, and read the metrics files at once and then every ``POLL_S`` seconds."""
        super().on_mount()
        self.grid.focus()
        self._drawn: object = None
        self.set_interval(POLL_S, self._poll)
        self._poll()

    def _poll(self) -> None:
        # A worker of the app, not of this screen: closing the screen would cancel it and lose what it has read.
        self.app.run_worker(self._read(), group="metrics")

    async def _read(self) -> None:
        await self._metrics.read()
        if self.is_attached:
            self._draw()

    def show(self, view: View) -> None:
        """Take the total of steps and the end of the run from ``view``: both bound the step axis."""
        super().show(view)
        if self._composed:
            snapshot = view.snapshot
            self.charts.total = snapshot.total_steps if snapshot is not None else None
            self.charts.ended = view.link == "ended"
            self._draw()

    def _draw(self, *, anew: bool = False) -> None:
        """Draw the grid if series or state of the run have changed; ``anew``: in any case, after a key."""
        metrics, charts = self._metrics, self.charts
        view = self.liverl.view
        note = bottleneck_words(view.snapshot)
        state = (
            charts.series.version,
            charts.total,
            charts.ended,
            view.link,
            metrics.problem,
            metrics.done,
            note,
        )
        if state == self._drawn and not anew:
            return
        self._drawn = state
        grid = self.grid
        grid.facts, grid.facts_style = self._facts()
        grid.note = note
        grid.empty = (
            ("reading the metrics ...",)
            if not metrics.done and not metrics.problem
            else _none_yet(
                view.snapshot.trackers if view.snapshot is not None else {}, ended=view.link == "ended"
            )
            if not charts.series.series
            else (_no_chart(),)
        )
        grid.update()

    def _facts(self) -> tuple[str, str]:
        """Return the words beside the title, and the name of their style."""
        metrics, charts = self._metrics, self.charts
        series = charts.series
        if metrics.problem:
            return metrics.problem, "bad"
        parts = []
        if series.last is not None:
            parts.append(f"step {step_of(series.last, charts.total, ' of ')}")
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
            parts.append("the run has ended" if link == "ended" else "the backend has died; showing files")
        return " · ".join(parts), "warn" if link == "lost" or series.bad_lines else "dim"

    exports_all = True  # who wants the picture wants the numbers

    def exporters(self) -> dict[str, Callable[[], str]]:
        """See ``RowsPane.exporters``: the charts that are shown, or all steps of their metrics."""
        from liverl.offline.charts_svg import charts
        from liverl.offline.tables import as_csv, metrics_table

        series = self.charts.series
        shown = [key for key in self.charts.keys if key in series.series]
        if self.charts.maximised and self.charts.key in shown:
            shown = [self.charts.key]
        if not shown:
            return {}
        return {
            "svg": lambda: charts(series, shown, self.liverl.source.run.name),
            "csv": lambda: as_csv(metrics_table(series, shown)),
        }

    def export_more(self) -> str:
        """That the file has not all metrics, and the command that writes all; empty if it has, or there is none."""
        from liverl.rundir.commands import run_words

        series, own = self.charts.series.series, not self.liverl.view.demo
        shown = 1 if self.charts.maximised else sum(key in series for key in self.charts.keys)
        if shown >= len(series) or not own:
            return ""
        command = f"liverl-tui metrics export {run_words(self.liverl.source.run.path)}"
        return f": {shown} of {len(series)} metrics; all of them: {command}"

    # -- keys

    def action_back(self) -> None:
        """Restore a maximised chart; else hide the cursor; else close the screen."""
        if self.charts.maximised:
            self.action_maximise()
        elif self.charts.cursor is not None:
            self.action_cursor()
        else:
            self.app.pop_screen()

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: nearly all keys need a chart, and a chart needs metrics."""
        charts = self.charts
        if action in ("find", "defaults"):
            return "" if charts.series.series else "the run has no metrics yet"
        if action in _NEED_CHART and charts.key is None:
            return "no chart is shown"
        if action == "zoom_all" and charts.last is None:
            return "all steps are shown already"
        return ""

    def action_maximise(self) -> None:
        """Show the selected chart alone, or all charts again."""
        self.charts.maximised = not self.charts.maximised and self.charts.key is not None
        self._draw(anew=True)

    def action_go(self, across: int, down: int) -> None:
        """Select the chart ``across`` columns and ``down`` rows away. With the cursor on, or one chart maximised,
        ``across`` moves the cursor by that many points instead."""
        charts, grid = self.charts, self.grid
        if across and (charts.cursor is not None or charts.maximised):
            charts.move_cursor(across)
        else:
            charts.move(across + down * grid.per_line)
        self._draw(anew=True)

    def action_leap(self, by: int) -> None:
        """Move the cursor by ``by`` points; the first key press shows the cursor at the newest one."""
        self.charts.move_cursor(by)
        self._draw(anew=True)

    def action_cursor(self) -> None:
        """Show a cursor at the newest point of the selected chart, or hide it."""
        self.charts.toggle_cursor()
        self._draw(anew=True)

    def action_remove(self) -> None:
        """Remove the selected chart."""
        self.charts.remove()
        self._draw(anew=True)

    def action_defaults(self) -> None:
        """Show the default charts again, in place of the user's choice."""
        self.charts.chosen = None
        self._draw(anew=True)

    def action_log_scale(self) -> None:
        """Switch the value axis of the selected chart between linear and logarithmic."""
        self.charts.toggle_log()
        self._draw(anew=True)

    def action_zoom(self, by: int) -> None:
        """Show fewer of the newest steps (``by`` > 0), or more."""
        before = self.charts.last
        self.charts.zoom(by)
        if self.charts.last == before:
            told = "fewer steps than this cannot be shown" if by > 0 else "all steps are shown already"
            self.liverl.notifications.toast(told, "warning")
        self._draw(anew=True)

    def action_zoom_all(self) -> None:
        """Show all steps."""
        self.charts.last = None
        self._draw(anew=True)

    def action_smooth(self) -> None:
        """Switch to the next weight of the moving average; after the strongest, to none."""
        self.charts.cycle_weight()
        self._draw(anew=True)

    def action_find(self) -> None:
        """Open a dialog that finds a metric by name, and add a chart of it."""
        from liverl_tui.screens.metric_finder import MetricFinder

        series = self.charts.series.series
        newest = {key: number(points.values[-1]) for key, points in series.items() if points.values}
        self.app.push_screen(MetricFinder(newest, self.charts.keys), self._add_chart)

    def _add_chart(self, key: str | None) -> None:
        """Show the chart of ``key``; None if the user cancelled."""
        if key is not None:
            self.charts.pin(key)
            self._draw(anew=True)


def _no_chart() -> str:
    """What a screen without charts says."""
    metric, default = find("metrics", "find").press, find("metrics", "defaults").mention
    return f"no chart: {metric} to find a metric, or {default} for the default charts"
