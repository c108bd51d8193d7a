"""The alerts screen: each alert of the run with its cause, fix and evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult

from liverl_tui.keys.bindings import Scope
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.lists.alerts import AlertList

if TYPE_CHECKING:
    from textual.dom import DOMNode


class AlertsScreen(RunScreen):
    """One list of alerts. Its keys are those of the scope ``alerts``, whose actions the list has."""

    scope = "alerts"
    AUTO_FOCUS = "#alerts"
    DEFAULT_CSS = """
    AlertsScreen { layout: vertical; }
    AlertsScreen AlertList { width: 1fr; height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """The list of alerts, above the key bar."""
        yield Header()
        yield AlertList(id="alerts")
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """Return the list for the scope ``alerts``, also while it has no focus, then the app."""
        return self.scopes_of(AlertList)
