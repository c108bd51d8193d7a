"""The dashboard, the first screen: GPUs, replicas, logs and trajectories of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from liverl.util.visible import visible
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.layout import ALL_PANES, PANES, SANDBOXES, STRIP, Need, arrange, strip_fits
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.meters import SPAN_S
from liverl_tui.widgets.base.pane import Pane
from liverl_tui.widgets.dashboard.gpus import GpusPane
from liverl_tui.widgets.dashboard.replicas import ReplicasPane
from liverl_tui.widgets.dashboard.selection import ServiceSelected, Unfolded
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.log.frame import ALL
from liverl_tui.widgets.log.pane import LogsPane

if TYPE_CHECKING:
    from liverl_tui.screens.run_metrics import Metrics
    from liverl_tui.widgets.metrics.strip import ChartStrip

_SELECTING = ("gpus", "replicas")  # panes whose cursor chooses the log


def _need(pane: Widget) -> Need:
    """Return the rows that ``pane`` needs, by its ``least_rows`` and ``wanted_rows``; the defaults if it has none."""
    default = Need()
    return Need(getattr(pane, "least_rows", default.least), getattr(pane, "wanted_rows", default.wanted))


class Dashboard(RunScreen, inherit_bindings=False):
    """Header, charts, four panes (``layout.PANES``), that of the sandboxes if the run has some, all placed by
    ``layout.arrange``, and key bar.

    ``hidden``: names of panes hidden by the user. ``maximised``: the name of the pane that fills the body, or None.
    """

    scope = "dashboard"
    BINDINGS = bindings("dashboard")
    AUTO_FOCUS = "#logs"
    DEFAULT_CSS = """
    Dashboard { layout: vertical; }
    Dashboard Header { dock: top; }
    Dashboard #body { width: 1fr; height: 1fr; }
    Dashboard #body > * { position: absolute; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[str] = set()
        self.maximised: str | None = None
        self._cramped = False  # a pane is maximised only because there is no room for it beside the others
        self._placed: object = None  # sizes, needs and choices that the panes are placed for
        self._seeded = False  # the history was read, or is being read
        self._here: str | None = None  # the pane that has the focus, or had it last
        self._strip: ChartStrip | None = None  # above the panes, once there was room for it
        self._has_sandboxes = False
        self._step_read: object = None  # what the run's metrics were read for: the newest step, or the end

    def compose(self) -> ComposeResult:
        """Header, panes and key bar; the charts come when there are some (``_follow_steps``)."""
        yield Header()
        with Container(id="body"):
            yield GpusPane(id="gpus")
            yield ReplicasPane(id="replicas")
            yield LogsPane(id="logs")
            yield TrialsPane(id="trials")
        yield KeyBar()

    def pane(self, name: str) -> Widget:
        """Return the pane ``name``, one of ``panes``.

        Raises:
            NoMatches: the screen has no such pane, or is not composed yet.
        """
        return self.query_one(f"#{name}")

    def on_screen_resume(self) -> None:
        """Show the first view at once if painting is held for it."""
        # Textual calls this before the handler of the base class. If there is something to show, the first layout
        # has every pane in its place; waiting for a second layout would take 30 ms more.
        if self.liverl.held:
            self.begin()

    def show(self, view: View) -> None:
        """Update and place the panes. Release painting if it is held; else read the run's history, once."""
        if self._composed and view.snapshot is not None and view.snapshot.sandboxes is not None:
            self._add_sandboxes()
        super().show(view)
        if self._composed:
            self.place()
            if self.liverl.held:
                self.call_later(self.liverl.release)
            elif not self._seeded and view.snapshot is not None:
                self._seeded = True
                result = view.snapshot.result
                end = view.snapshot.at if result is None else result.ended_at
                self.run_worker(self._seed(end - SPAN_S), group="history")

    def _add_sandboxes(self) -> None:
        """Add the pane of the sandboxes, once: most runs have none."""
        if self._has_sandboxes:
            return
        from liverl_tui.widgets.dashboard.sandboxes import SandboxesPane

        self._has_sandboxes = True
        pane = SandboxesPane(id=SANDBOXES)
        pane.display = False
        self.query_one("#body").mount(pane)

    @property
    def panes(self) -> tuple[str, ...]:
        """The names of the panes that this run has, in the order in which keys go through them."""
        return ALL_PANES if self._has_sandboxes else PANES

    async def _seed(self, since: float) -> None:
        """Fill the history bars of the GPUs pane from the run's files: samples since ``since``, in Unix seconds."""
        # Not at the top: what is needed behind the first paint would cost it time.
        from liverl.observe.history import read_history

        pane = self.query_one(GpusPane)
        try:
            history = await asyncio.to_thread(read_history, self.liverl.source.run.path, since)
        except OSError as error:
            text = f"cannot read the run's history, so the history bars start empty: {visible(str(error))}"
            self.liverl.notifications.toast(text, "warning", about="history")
        else:
            pane.seed(history)

    # -- charts

    def _follow_steps(self, width: int, height: int) -> None:
        """Draw the charts above the panes, and read the metrics of a new step. Nothing is read while there is no room
        for charts in ``width`` columns and ``height`` rows between header and key bar, or before the first paint."""
        view, snapshot = self.liverl.view, self.liverl.view.snapshot
        if snapshot is None or self.liverl.held or not strip_fits(width, height):
            return
        # Not at the top: these modules would cost the first paint time, and many terminals have no room for charts.
        from liverl_tui.screens.run_metrics import metrics_of
        from liverl_tui.widgets.metrics.strip import ChartStrip

        if self._strip is None:
            self._strip = ChartStrip(id=STRIP)
            self._strip.display = False
        metrics = metrics_of(self.app, self.liverl.source.run.path)
        metrics.charts.total, metrics.charts.ended = snapshot.total_steps, view.link == "ended"
        self._strip.follow(metrics.charts)
        self._show_strip()
        step = (snapshot.metrics and snapshot.metrics.step, snapshot.attempt, view.link == "ended")
        if step != self._step_read:
            self._step_read = step
            # A worker of the app, like those of the metrics screen: they share what is read.
            self.app.run_worker(self._read_steps(metrics, self._strip), group="metrics")

    async def _read_steps(self, metrics: Metrics, strip: ChartStrip) -> None:
        await metrics.read()
        if self.is_attached and self._composed:
            strip.follow(metrics.charts)
            self._show_strip()
            self.place()

    def _show_strip(self) -> None:
        """Mount the charts once there are some: the mount has the whole body painted again."""
        if self._strip is not None and self._strip.has_points and not self._strip.is_attached:
            self.query_one("#body").mount(self._strip)

    # -- placing

    def on_resize(self, _event: events.Resize) -> None:
        """Place the panes for the new size, once Textual has resized the screen's own widgets."""
        if self._composed:
            self.call_after_refresh(self.place)

    def place(self) -> None:
        """Place the panes by size, needs and the user's choices; do nothing if none of these has changed. The focused
        pane stays visible; if the user has hidden it, the log pane gets the focus, else the first visible one."""
        width, height = self.size or self.app.size
        header = self.query_one(Header).rows_at(width, height)
        body = max(1, height - header - 1)  # one row for the key bar
        self._follow_steps(width, body)
        needs = {name: _need(self.pane(name)) for name in self.panes}
        # While another window has the keys, nothing is focused.
        here = self._here = self.focused_pane() or self._here
        charts = self._strip is not None and self._strip.has_points
        choices = (frozenset(self.hidden), self.maximised, here)
        state = (width, height, header, tuple(needs.items()), choices, charts)
        if state == self._placed or not height:
            return
        self._placed = state
        self.query_one(Header).styles.height = header
        if self._cramped and self.maximised in arrange(width, body, needs, self.hidden, None):
            self.maximised, self._cramped = None, False
        regions = arrange(width, body, needs, self.hidden, self.maximised, here, charts)
        placed = {name: self.pane(name) for name in self.panes}
        if self._strip is not None:
            placed[STRIP] = self._strip
        for name, pane in placed.items():
            region = regions.get(name)
            pane.display = region is not None
            if region is not None:
                pane.styles.offset = region.offset
                pane.styles.width, pane.styles.height = region.size
        focused = self.focused
        if focused is None or not all(
            node.display for node in focused.ancestors_with_self if isinstance(node, Widget)
        ):
            for candidate in (here, "logs", *self.panes):
                if candidate is not None and candidate in regions:
                    self._focus(candidate)
                    break

    def _visible(self) -> list[str]:
        return [name for name in self.panes if self.pane(name).display]

    def _focus(self, name: str) -> None:
        pane = self.pane(name)
        target: Iterable[Widget] = [pane] if pane.can_focus else pane.query(Pane)
        for widget in target:
            if widget.can_focus:
                # Not focus(), which acts later: the next key goes to this pane already.
                self.set_focus(widget)
                return

    def focused_pane(self) -> str | None:
        """Return the name of the pane that has the focus, also by a widget in it; None if no pane has it."""
        node: object = self.focused
        while isinstance(node, Widget):
            if node.id in ALL_PANES:
                return node.id
            node = node.parent
        return None

    def on_unfolded(self, message: Unfolded) -> None:
        """Give the pane the rows that it needs now."""
        message.stop()
        self.place()

    # -- the log pane

    def on_service_selected(self, message: ServiceSelected) -> None:
        """Show the log of the service that was selected in another pane, unless the log pane is pinned."""
        message.stop()
        pane = self.query_one(LogsPane)
        if not pane.pinned:
            pane.take_selection(message.name)

    def on_descendant_focus(self) -> None:
        """What was selected in a pane that has the focus no more does not narrow the log."""
        if self.focused_pane() not in (*_SELECTING, "logs"):
            self.query_one(LogsPane).take_selection(None)

    def unselect(self) -> None:
        """Show the whole log again, where the selection has narrowed it."""
        self.query_one(LogsPane).take_selection(None)

    def action_pin_log(self) -> None:
        """Pin the log that is shown, or let it follow the selection again."""
        pane = self.query_one(LogsPane)
        pane.pin(not pane.pinned)

    def action_all_logs(self) -> None:
        """Show the merged log of all services."""
        self.query_one(LogsPane).show_service(ALL)

    # -- actions

    def action_jump(self, name: str) -> None:
        """Focus the pane ``name``: show it if it is hidden, and maximise it if there is no room for it."""
        self.hidden.discard(name)
        if self.maximised is not None:
            self.maximised = name
        self.place()
        if not self.pane(name).display:  # no room beside the other panes
            self.maximised, self._cramped = name, True
            self.place()
        self._focus(name)

    def _step(self, by: int) -> None:
        """Go ``by`` panes further, around the end; hidden panes are skipped."""
        names = [n for n in self.panes if n not in self.hidden]
        here = self.focused_pane()
        if names:
            place = names.index(here) if here in names else 0
            self.action_jump(names[(place + by) % len(names)])

    def action_next_pane(self) -> None:
        """Go to the next pane; after the last comes the first."""
        self._step(1)

    def action_previous_pane(self) -> None:
        """Go to the previous pane; before the first comes the last."""
        self._step(-1)

    def action_maximise(self) -> None:
        """Maximise the focused pane, or show all panes again."""
        self.maximised = None if self.maximised is not None else self.focused_pane()
        self._cramped = False
        self.place()

    def action_hide_pane(self) -> None:
        """Hide the focused pane, unless it is the last one."""
        here = self.focused_pane()
        if here is not None and len(self.hidden) < len(self.panes) - 1:
            self.hidden.add(here)
            self.maximised = None
            self.place()
            back = find("dashboard", "all_panes").press
            self.liverl.notifications.toast(
                f"{getattr(self.pane(here), 'title', here)} is hidden; {back} to show all panes"
            )
        elif here is not None:
            self.liverl.notifications.toast("the last pane cannot be hidden", "warning")

    def action_all_panes(self) -> None:
        """Show all panes, none of them maximised."""
        self.hidden.clear()
        self.maximised = None
        self.place()
