"""The alerts screen: everything that is wrong with the run, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult

from liverl_tui.keys.bindings import Scope
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.lists.alerts import AlertList

if TYPE_CHECKING:
    from textual.dom import DOMNode


class AlertsScreen(RunScreen):
    scope = "alerts"
    AUTO_FOCUS = "#alerts"
    DEFAULT_CSS = """
    AlertsScreen { layout: vertical; }
    AlertsScreen AlertList { width: 1fr; height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        yield AlertList(id="alerts")
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        panes: list[tuple[Scope, DOMNode]] = [("alerts", pane) for pane in self.query(AlertList)]
        return [*panes, ("app", self.app)]
