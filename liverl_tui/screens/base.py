"""What every screen of ours has: a view that comes in, a key bar, and scopes of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from liverl_tui.keymap import Key, Scope
from liverl_tui.widgets.cells import CellPanel
from liverl_tui.widgets.keybar import KeyBar

if TYPE_CHECKING:
    from liverl_tui.app import LiverlApp
    from liverl_tui.view import View


class RunScreen(Screen[None]):
    """A full screen about the run. Every ``CellPanel`` in it gets each new view through ``show``."""

    ALLOW_SELECT = False  # selecting is the terminal's; the mouse is off unless asked for
    scope: ClassVar[Scope]

    @property
    def liverl(self) -> LiverlApp:
        return cast("LiverlApp", self.app)

    def show(self, view: View) -> None:
        """Hand a view to the panels."""
        if not self._composed:
            return  # it takes the newest view when it is
        with self.app.batch_update():
            for panel in self.query(CellPanel):
                panel.show(view)

    _composed = False

    def on_mount(self) -> None:
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._composed = True
        self.on_screen_resume()

    def on_screen_resume(self) -> None:
        self.show(self.liverl.view)
        self.refresh_keys()

    def on_descendant_focus(self) -> None:
        self.refresh_keys()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """The scopes whose keys work now, the nearest first, with the node that has their actions."""
        found: list[tuple[Scope, DOMNode]] = []
        node: DOMNode | None = self.focused
        while node is not None and node is not self:
            scope = getattr(node, "scope", None)
            if isinstance(node, Widget) and isinstance(scope, str):
                found.append((cast(Scope, scope), node))
            node = node.parent
        found.append((self.scope, self))
        found.append(("app", self.app))
        return found

    def refresh_keys(self) -> None:
        for bar in self.query(KeyBar):
            bar.set_scopes(tuple(s for s, _ in self.scoped_nodes()), self.liverl.readonly)

    async def run_key(self, key: Key) -> None:
        """Do what a key does, from the bar or the palette."""
        for scope, node in self.scoped_nodes():
            if scope == key.scope:
                await self.app.run_action(key.action, node)
                return
