"""The default screen: the whole run at a glance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from liverl.observe.history import read_history
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.layout import PANES, Need, arrange
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.rows import Pane
from liverl_tui.widgets.dashboard.gpus import GpusPane
from liverl_tui.widgets.dashboard.header import Header
from liverl_tui.widgets.dashboard.replicas import ReplicasPane
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.log.pane import LogsPane

PAST_S = 900.0  # what the widest history on the screen can show


def _need(pane: Widget) -> Need:
    """What a pane says of itself; those that say nothing take what there is."""
    usual = Need()
    return Need(getattr(pane, "least_rows", usual.least), getattr(pane, "wanted_rows", usual.wanted))


class Dashboard(RunScreen):
    """Header, four panes, key bar. Panes are placed by ``layout.arrange``; one has the keys."""

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
        self._cramped = False  # it is maximised for lack of room alone
        self._placed: object = None
        self._seeded = False

    def compose(self) -> ComposeResult:
        yield Header()
        with Container(id="body"):
            yield GpusPane(id="gpus")
            yield ReplicasPane(id="replicas")
            yield LogsPane(id="logs")
            yield TrialsPane(id="trials")
        yield KeyBar()

    def pane(self, name: str) -> Widget:
        return self.query_one(f"#{name}")

    def on_screen_resume(self) -> None:
        # Comes before those of the bases. Where there is something to show, the very first layout has everything in
        # its place: to wait for it, and then for another one, is 30 ms.
        if self.liverl.held:
            self.begin()

    def show(self, view: View) -> None:
        super().show(view)
        if self._composed:
            self.place()
            if self.liverl.held:
                self.call_later(self.liverl.release)
            elif not self._seeded and view.snapshot is not None:
                self._seeded = True
                self.run_worker(self._seed(view.snapshot.at - PAST_S), group="history")

    async def _seed(self, since: float) -> None:
        """What was before we looked: the panes' histories begin with it."""
        pane = self.query_one(GpusPane)
        try:
            history = await asyncio.to_thread(read_history, self.liverl.source.run.path, since)
        except OSError as error:
            self.notify(f"the run's history cannot be read: {error}", severity="warning", markup=False)
        else:
            pane.seed(history)

    # -- placing

    def on_resize(self, _event: events.Resize) -> None:
        if self._composed:
            self.call_after_refresh(self.place)

    def place(self) -> None:
        """Put the panes where they belong; nothing happens while nothing has changed."""
        width, height = self.size or self.app.size
        header = Header.rows_at(width, height)
        needs = {name: _need(self.pane(name)) for name in PANES}
        state = (width, height, tuple(needs.items()), frozenset(self.hidden), self.maximised)
        if state == self._placed or not height:
            return
        self._placed = state
        self.query_one(Header).styles.height = header
        body = max(1, height - header - 1)  # one row is the key bar's
        if self._cramped and self.maximised in arrange(width, body, needs, self.hidden, None):
            self.maximised, self._cramped = None, False
        regions = arrange(width, body, needs, self.hidden, self.maximised)
        for name in PANES:
            pane, region = self.pane(name), regions.get(name)
            pane.display = region is not None
            if region is not None:
                pane.styles.offset = region.offset
                pane.styles.width, pane.styles.height = region.size
        focused = self.focused
        if focused is None or not all(
            node.display for node in focused.ancestors_with_self if isinstance(node, Widget)
        ):
            for name in ("logs", *PANES):
                if name in regions:
                    self._focus(name)
                    break

    def _visible(self) -> list[str]:
        return [name for name in PANES if self.pane(name).display]

    def _focus(self, name: str) -> None:
        pane = self.pane(name)
        target: Iterable[Widget] = [pane] if pane.can_focus else pane.query(Pane)
        for widget in target:
            if widget.can_focus:
                self.set_focus(widget)  # at once: the next key is for it
                return

    def focused_pane(self) -> str | None:
        """The name of the pane that has the keys."""
        node: object = self.focused
        while isinstance(node, Widget):
            if node.id in PANES:
                return node.id
            node = node.parent
        return None

    # -- actions

    def action_jump(self, name: str) -> None:
        self.hidden.discard(name)
        if self.maximised is not None:
            self.maximised = name
        self.place()
        if not self.pane(name).display:  # no room for it beside the others
            self.maximised, self._cramped = name, True
            self.place()
        self._focus(name)

    def _step(self, by: int) -> None:
        names = [n for n in PANES if n not in self.hidden]
        here = self.focused_pane()
        if names:
            place = names.index(here) if here in names else 0
            self.action_jump(names[(place + by) % len(names)])

    def action_next_pane(self) -> None:
        self._step(1)

    def action_previous_pane(self) -> None:
        self._step(-1)

    def action_maximise(self) -> None:
        self.maximised = None if self.maximised is not None else self.focused_pane()
        self._cramped = False
        self.place()

    def action_hide_pane(self) -> None:
        here = self.focused_pane()
        if here is not None and len(self.hidden) < len(PANES) - 1:
            self.hidden.add(here)
            self.maximised = None
            self.place()

    def action_all_panes(self) -> None:
        self.hidden.clear()
        self.maximised = None
        self.place()
