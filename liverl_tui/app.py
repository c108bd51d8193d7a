"""The application: screens, theme, the pump of views, and the actions that work everywhere. No domain logic."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from textual.app import App
from textual.binding import Binding

from liverl_tui import themes
from liverl_tui.actions import RunActions
from liverl_tui.keymap import bindings
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.source import Source
from liverl_tui.view import View
from liverl_tui.widgets.cells import CellPanel


class LiverlApp(RunActions, App[None]):
    """Shows one run. ``readonly``: every key that would change it is refused."""

    TITLE = "liverl-tui"
    ENABLE_COMMAND_PALETTE = False  # ours is opened by its own key, from the same table
    CSS_PATH = "styles/app.tcss"
    BINDINGS = [*bindings("app"), Binding("escape", "back", show=False)]

    def __init__(self, source: Source, *, readonly: bool = False, theme: str | None = None, bell: bool = True) -> None:
        super().__init__()
        self.source = source
        self.readonly = readonly
        self.wants_bell = bell
        self.view = View()
        for entry in themes.textual_themes():
            self.register_theme(entry)
        self.theme = themes.resolve(theme)

    @property
    def palette(self) -> themes.Palette:
        return themes.PALETTES.get(self.theme, themes.DARK)

    def get_default_screen(self) -> Dashboard:
        return Dashboard()

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, lambda _theme: self._redraw())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            # The end of the terminal, or of us, is not the end of the run.
            loop.add_signal_handler(number, self.exit)
        self.run_worker(self._pump(), name="pump", exit_on_error=True)
        self.set_interval(1.0, self._tick)

    async def _pump(self) -> None:
        """The only way in: views, as the source has them."""
        async for view in self.source.views():
            self.take(view)

    def take(self, view: View) -> None:
        """Show a view on every screen that is open."""
        before, self.view = self.view, view
        for screen in self.screen_stack:
            if isinstance(screen, RunScreen) and screen.is_current:
                screen.show(view)
        self.announce(before, view)

    def _tick(self) -> None:
        """Clocks go on while nothing else happens."""
        if isinstance(self.screen, RunScreen):
            self.screen.show(self.view)

    def _redraw(self) -> None:
        for screen in self.screen_stack:
            for panel in screen.query(CellPanel):
                panel.update()

    def action_back(self) -> None:
        """One screen back, or out of a maximised pane."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif isinstance(self.screen, Dashboard) and self.screen.maximised is not None:
            self.screen.action_maximise()

    async def send(self, name: str, **args: Any) -> dict[str, Any]:
        """Ask the backend.

        Raises:
            ControlError: refused, failed, or nobody there.
        """
        return await self.source.command(name, **args)
