"""What every screen of ours has: a view that comes in, a key bar, and scopes of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.dom import DOMNode
from textual.reactive import Reactive
from textual.widget import Widget

from liverl_tui.data.host import Host, host_of
from liverl_tui.keys.bindings import Key, Scope
from liverl_tui.term.cell_diff import ExactCompositor
from liverl_tui.term.private import HookedScreen
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.base.keybar import KeyBar

if TYPE_CHECKING:
    from liverl_tui.data.view import View


SOON_S = 0.01  # until a screen looks again whether everything in it is there


class RunScreen(HookedScreen):
    """A full screen about the run. Every ``CellPanel`` in it gets each new view through ``show``."""

    ALLOW_SELECT = False  # selecting is the terminal's; the mouse is off unless asked for
    scope: ClassVar[Scope]
    # Textual's own draws the whole screen again when the focus moves (64 KB at 200x50); the two panes draw theirs.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name, id, classes)
        self.use_compositor(ExactCompositor())

    @property
    def liverl(self) -> Host:
        return host_of(self)

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

    def begin(self) -> bool:
        """Take views from now on, where everything in the screen is there; whether it is."""
        self._composed = self._composed or all(node.is_mounted for node in self.query("*"))
        return self._composed

    def _begin(self) -> None:
        if self._composed:
            return
        if not self.begin():
            # On a busy machine, what stands in containers comes later. (A callback after the next refresh might
            # never be called: there may be none before somebody begins to draw.)
            self.set_timer(SOON_S, self._begin)
            return
        self.show(self.liverl.view)
        self.refresh_keys()

    def on_unmount(self) -> None:
        self._composed = False

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

    def is_painted(self) -> bool:
        """Nothing is rendered that would not be shown."""
        return self is self.app.screen and not self.liverl.held

    def is_seen_behind(self) -> bool:
        return not self.liverl.held and self._shows_through()

    def _shows_through(self) -> bool:
        """Whether it is seen, behind what is translucent only. Textual does not ask this of the screen on top."""
        stack = self.app.screen_stack
        above = stack[stack.index(self) + 1 :] if self in stack else []
        return not any(isinstance(screen, RunScreen) or screen.styles.background.a == 1 for screen in above)

    async def run_key(self, key: Key) -> None:
        """Do what a key does, from the bar or the palette."""
        for scope, node in self.scoped_nodes():
            if scope == key.scope:
                await self.app.run_action(key.action, node)
                return
