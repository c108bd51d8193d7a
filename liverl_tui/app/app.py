"""The application: screens, theme, the pump of views, and its own end. No domain logic."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.notifications import Notify

from liverl.model import Snapshot
from liverl_tui.app.actions import part_of_each
from liverl_tui.app.commands import Commands
from liverl_tui.app.lifecycle import Lifecycle
from liverl_tui.app.navigation import Navigation
from liverl_tui.app.notifications import Notifications
from liverl_tui.data.source import Source
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings, keys_of
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.term.ordered_keys import KeysInOrder
from liverl_tui.term.private import driver_of
from liverl_tui.text import themes
from liverl_tui.widgets.base.cells import CellPanel

FRESH_S = 0.6  # after a view, the clocks need not be moved on
HOLD_S = 0.5  # the first paint waits no longer than this for the panes to be filled
_BACK = "back"  # everywhere, and not listed
_ACTIONS = (*(key.action for key in keys_of("app")), _BACK)


class LiverlApp(KeysInOrder):
    """Shows one run. Its parts do what its keys ask for; ``action_target`` tells which part does which action.

    ``readonly``: every key that would change the run is refused. ``first``: its state, where it is known already.
    ``painted`` is called once, when there is something on the screen."""

    TITLE = "liverl-tui"
    ENABLE_COMMAND_PALETTE = False  # ours is opened by its own key, from the same table
    CSS_PATH = "../styles/app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("app"), Binding("escape", _BACK, show=False)]

    def __init__(
        self,
        source: Source,
        *,
        readonly: bool = False,
        theme: str | None = None,
        bell: bool = True,
        first: Snapshot | None = None,
        painted: Callable[[], object] = lambda: None,
    ) -> None:
        if not os.environ.get("NO_COLOR"):
            # Empty means unset (https://no-color.org); for Textual it does not.
            os.environ.pop("NO_COLOR", None)
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.source = source
        self.readonly = readonly
        self.view = View() if first is None else View("live", snapshot=first)
        # Where there is something to show, nothing is drawn before it has its place: mounting, placing and filling
        # the panes would be five full paints, over ssh 60 KB, of which the last one is enough.
        self.held = first is not None
        self._painted = painted
        self._shown_at = 0.0
        self.notifications = Notifications(self, wants_bell=bell)
        self.commands = Commands(self, self.notifications)
        self.navigation = Navigation(self, self.commands, self.notifications)
        self.lifecycle = Lifecycle(self, self.commands, self.notifications)
        self._part_of = part_of_each(_ACTIONS, (self.commands, self.navigation, self.lifecycle))
        for entry in themes.textual_themes():
            self.register_theme(entry)
        self.theme = themes.ANSI.name if self.no_color else themes.resolve(theme, self.console.color_system)

    @property
    def palette(self) -> themes.Palette:
        if self.no_color:
            return themes.MONOCHROME
        return themes.PALETTES.get(self.theme, themes.DARK)

    def get_default_screen(self) -> Dashboard:
        return Dashboard()

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, lambda _theme: self._redraw())
        self.app_suspend_signal.subscribe(self, lambda _app: self.notifications.window_title.restore())
        self.app_resume_signal.subscribe(self, lambda _app: self._resumed())
        self.lifecycle.listen()
        if self.held:
            self.set_timer(HOLD_S, self.release)
        else:
            self._follow()
            self.call_after_refresh(self._painted)
        self.set_interval(1.0, self._tick)

    def _resumed(self) -> None:
        """Back from the shell: nothing of ours is on the screen any more."""
        self.refresh(layout=True)
        self.notifications.announce(self.view, self.view)

    def on_unmount(self) -> None:
        self.notifications.window_title.restore()
        self.lifecycle.listen_no_more()

    def release(self) -> None:
        """Paint what there is, and from now on everything that changes."""
        if not self.held:
            return
        if self.is_batching:  # Textual would drop the paint
            self.call_later(self.release)
            return
        self.held = False
        screen = self.screen
        for panel in screen.query(CellPanel):
            panel.update()
        self.paint_whole(screen)
        self._painted()
        self._follow()

    def may_paint(self) -> bool:
        return not self.held

    def _follow(self) -> None:
        self.run_worker(self._pump(), name="pump", exit_on_error=True)

    async def _pump(self) -> None:
        """The only way in: views, as the source has them; without any more there is nothing to show."""
        async for view in self.source.views():
            self.take(view)
        self.exit()

    def take(self, view: View) -> None:
        """Show a view on every screen that is seen."""
        if self.is_closing:
            return
        before, self.view = self.view, view
        self._shown_at = time.monotonic()
        for screen in self.screen_stack:
            if isinstance(screen, RunScreen) and screen.is_current:
                screen.show(view)
        self.notifications.announce(before, view)

    def _tick(self) -> None:
        """Clocks go on while nothing else happens."""
        if time.monotonic() - self._shown_at < FRESH_S:
            return
        screen = self.run_screen
        if screen is not None and screen.is_current and not self.is_closing:
            screen.show(self.view)

    def _redraw(self) -> None:
        for screen in self.screen_stack:
            for panel in screen.query(CellPanel):
                panel.update()

    # -- for the parts

    @property
    def run_screen(self) -> RunScreen | None:
        """The full screen that is seen, be it behind a dialog."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, RunScreen)), None)

    @property
    def driver(self) -> Driver | None:
        return driver_of(self)

    def write_to_terminal(self, sequence: str) -> None:
        """Send something that is not cells."""
        if self.driver is not None:
            self.driver.write(sequence)

    def on_notify(self, message: Notify) -> None:
        self.notifications.drop_outdated(message.notification)

    def action_target(self, name: str) -> object:
        return self._part_of.get(name, self)

    # -- our own faults: where Textual would show a traceback of many screens, one line says what it means

    def describe_fault(self, error: Exception) -> str:
        from liverl_tui.app.crash import report

        return report(error, self.source.run, in_run=not self.readonly)
