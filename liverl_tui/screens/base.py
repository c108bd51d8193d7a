"""The base of every full screen: takes views, keeps the key bar current, and knows which keys work."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.dom import DOMNode
from textual.reactive import Reactive
from textual.widget import Widget

from liverl_tui.data.host import Host, host_of
from liverl_tui.keys.bindings import Key, Scope, keys_of
from liverl_tui.keys.idle import is_idle
from liverl_tui.term.cell_diff import ExactCompositor
from liverl_tui.term.private import HookedScreen
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.base.keybar import KeyBar

if TYPE_CHECKING:
    from liverl_tui.data.view import View


SOON_S = 0.01  # seconds between two checks whether every widget of a new screen is mounted


class RunScreen(HookedScreen):
    """A full screen about the run. Every ``CellPanel`` in it gets each new view through ``show``.

    ``scope`` names the keys of the screen itself. The app calls ``show`` for each new view while the screen is
    visible; a covered screen takes the newest view when it comes on top again.
    """

    ALLOW_SELECT = False  # the terminal selects text: the mouse is off unless the user asks for it
    scope: ClassVar[Scope]
    # Textual's own attribute repaints the whole screen when the focus moves (64 KB at 200x50). Here only the two
    # panes that lose and get the focus redraw their titles.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(name, id, classes)
        self.use_compositor(ExactCompositor())

    @property
    def liverl(self) -> Host:
        """The app that shows this screen, typed as what screens may use of it."""
        return host_of(self)

    def show(self, view: View) -> None:
        """Pass ``view`` to every panel, in one repaint. Ignored until all widgets are mounted: the newest view is
        shown then."""
        if not self._composed:
            return
        with self.app.batch_update():
            for panel in self.query(CellPanel):
                panel.show(view)

    def redraw(self, view: View) -> bool:
        """Show ``view``, which was shown before, at the present time; return whether a cell has changed."""
        panels = list(self.query(CellPanel))
        before = sum(panel.changes_drawn for panel in panels)
        self.show(view)
        return sum(panel.changes_drawn for panel in panels) != before

    _composed = False  # every widget is mounted, and views are shown
    _keys_due = False  # the key bar is to be updated soon

    def on_mount(self) -> None:
        """Begin to show views as soon as every widget is mounted."""
        self.call_after_refresh(self._begin)

    def begin(self) -> bool:
        """Show views from now on if every widget of the screen is mounted. Return whether that is so."""
        self._composed = self._composed or all(node.is_mounted for node in self.query("*"))
        return self._composed

    def _begin(self) -> None:
        if self._composed:
            return
        if not self.begin():
            # On a busy machine, widgets in containers are mounted later. A timer, not call_after_refresh: there may
            # be no refresh before this screen draws for the first time.
            self.set_timer(SOON_S, self._begin)
            return
        self.show(self.liverl.view)
        self.refresh_keys()

    def on_unmount(self) -> None:
        """Ignore views from now on: the panels are being removed."""
        self._composed = False

    def on_screen_resume(self) -> None:
        """Show the newest view: a covered screen gets none. What was answered to keys of another screen goes."""
        self.liverl.notifications.screen_changed()
        self.show(self.liverl.view)
        for panel in self.query(CellPanel):
            if panel.is_behind:
                panel.update()
        self.refresh_keys()

    def on_descendant_focus(self) -> None:
        """Show the keys of the widget that has got the focus in the key bar."""
        self.refresh_keys_soon()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """Return the scopes whose keys work now, each with the node that has their actions: those of the focused
        widget and its ancestors, then the screen's, then the app's."""
        scoped: list[tuple[Scope, DOMNode]] = []
        node: DOMNode | None = self.focused
        while node is not None and node is not self:
            scope = getattr(node, "scope", None)
            if isinstance(node, Widget) and isinstance(scope, str):
                scoped.append((cast(Scope, scope), node))
            scoped += [(further, node) for further in getattr(node, "further_scopes", ())]
            node = node.parent
        scoped.append((self.scope, self))
        scoped.append(("app", self.app))
        return scoped

    def scopes_of(self, kind: type[Widget]) -> list[tuple[Scope, DOMNode]]:
        """For ``scoped_nodes`` of a screen of one pane: the scopes of the panes of this kind, also while they have no
        focus, then the app's."""
        panes: list[tuple[Scope, DOMNode]] = [
            (scope, pane)
            for pane in self.query(kind)
            for scope in (
                cast(Scope, getattr(pane, "scope", self.scope)),
                *getattr(pane, "further_scopes", ()),
            )
        ]
        return [*panes, ("app", self.app)]

    def moving_and_own(self, *, moves: bool = True) -> list[tuple[Scope, DOMNode]]:
        """For ``scoped_nodes`` of a screen whose panes only move: the keys that move in the focused one (``moves``),
        those of this screen, and those of the app."""
        moving: list[tuple[Scope, DOMNode]] = []
        if moves and self.focused is not None:
            moving.append(("moving", self.focused))
        return [*moving, (self.scope, self), ("app", self.app)]

    def has_drawn(self, panel: CellPanel) -> None:
        """Called for each panel that draws: what it shows now may give keys something to do, or take it away."""
        if not isinstance(panel, KeyBar):
            self.refresh_keys_soon()

    def refresh_keys_soon(self) -> None:
        """Update the key bar once, however much changes before the next message: a key moves the focus, acts, and has
        two panes drawn."""
        if self._composed and not self._keys_due:
            self._keys_due = True
            self.call_later(self._keys_are_due)

    def _keys_are_due(self) -> None:
        self._keys_due = False
        if self._composed:
            self.refresh_keys()

    def refresh_keys(self) -> None:
        """Update the key bar to the scopes that work now; call it when ``scoped_nodes`` has changed."""
        scoped = self.scoped_nodes() if self._composed else []
        nodes = dict(reversed(scoped))  # of two with one scope the nearer one
        for bar in self.query(KeyBar):
            bar.set_scopes(
                tuple(scope for scope, _ in scoped or self.scoped_nodes()),
                self.liverl.readonly,
                frozenset(
                    key.id for scope, node in nodes.items() for key in keys_of(scope) if is_idle(node, key)
                ),
            )

    @property
    def is_seen(self) -> bool:
        """Whether this screen is on the terminal: on top, or behind translucent dialogs only. ``is_current`` is also
        true of a screen right below one that covers it."""
        return self is self.app.screen or self._shows_through()

    def is_painted(self) -> bool:
        """Whether this screen paints its own changes: it is on top, and the app has begun to paint."""
        return self is self.app.screen and not self.liverl.held

    def is_seen_behind(self) -> bool:
        """Whether a change in this screen shows behind the dialogs on top of it, so that these must be repainted."""
        return not self.liverl.held and self._shows_through()

    def paints_at_once(self) -> bool:
        """What a key does is seen at once, also right after another paint."""
        return self.liverl.answers_key

    def _shows_through(self) -> bool:
        """Whether every screen above this one is a translucent dialog. Textual does not check this itself."""
        stack = self.app.screen_stack
        above = stack[stack.index(self) + 1 :] if self in stack else []
        return not any(isinstance(screen, RunScreen) or screen.styles.background.a == 1 for screen in above)

    async def run_key(self, key: Key) -> None:
        """Run the action of ``key`` on the node that has it, as if it were pressed; for clicks in the key bar and for
        the palette. Do nothing if the scope of ``key`` is not active."""
        for scope, node in self.scoped_nodes():
            if scope == key.scope:
                await self.app.run_action(key.action, node)
                return
