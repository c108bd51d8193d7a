"""The sandboxes screen: what the trials of the run have in Docker or Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult

from liverl_tui.keys.bindings import Scope
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.lists.sandboxes import SandboxList

if TYPE_CHECKING:
    from textual.dom import DOMNode


class SandboxesScreen(RunScreen):
    """One list of containers. Its keys are those of the scope ``sandboxes``, whose actions the list has."""

    scope = "sandboxes"
    AUTO_FOCUS = "#sandboxes"
    DEFAULT_CSS = """
    SandboxesScreen { layout: vertical; }
    SandboxesScreen SandboxList { width: 1fr; height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """The list of sandboxes, above the key bar."""
        yield Header()
        yield SandboxList(id="sandboxes")
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """Return the list for the scope ``sandboxes``, also while it has no focus, then the app."""
        return self.scopes_of(SandboxList)
