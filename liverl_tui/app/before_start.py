"""Asks in the terminal, with preflight's list, whether a run is to be started. The run does not exist yet."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from liverl.exit_codes import of_signal
from liverl.model import Check
from liverl_tui.screens.before_start import Again, BeforeStart
from liverl_tui.term.ordered_keys import KeysInOrder
from liverl_tui.text import themes

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class BeforeStartApp(KeysInOrder, inherit_bindings=False):
    """``agreed``: whether the run is to be started; False until it ends. ``values``: what is to be set first, and all
    checked again. ``theme``: None = the default one; ``again``:
    see ``BeforeStart``."""

    TITLE = "liverl-tui"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(
        self, checks: Sequence[Check], brief: str, theme: str | None = None, again: Again | None = None
    ) -> None:
        if not os.environ.get("NO_COLOR"):
            os.environ.pop("NO_COLOR", None)  # empty means unset (https://no-color.org), but not to Textual
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._before, self._brief, self._again = checks, brief, again
        self.checks = checks
        self.agreed = False
        self.values: Mapping[str, str] = {}
        for entry in themes.textual_themes():
            self.register_theme(entry)
        self.theme = themes.ANSI.name if self.no_color else themes.resolve(theme, self.console.color_system)

    @property
    def palette(self) -> themes.Palette:
        """Colours of the theme; without colours under NO_COLOR."""
        return themes.MONOCHROME if self.no_color else themes.PALETTES.get(self.theme, themes.DARK)

    def get_default_screen(self) -> BeforeStart:
        """Open the list."""
        self._list = BeforeStart(self._before, self._brief, self._answered, self._wanted, self._again)
        return self._list

    def on_mount(self) -> None:
        """A signal closes the list."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.exit, None, of_signal(number))

    def on_unmount(self) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _answered(self, agreed: bool) -> None:
        self.agreed, self.checks = agreed, self._list.checks
        self.exit()

    def _wanted(self, values: Mapping[str, str]) -> None:
        self.values = values
        self._answered(False)


def ask(
    checks: Sequence[Check], brief: str, theme: str | None = None, *, again: Again, mouse: bool = False
) -> tuple[bool, Sequence[Check], Mapping[str, str]]:
    """Show the list, and return whether the run is to be started, what the checks found last, and what is to be set
    before they are made again: then it is not to be started yet. Those that ``again`` makes are made again at Enter.

    Raises:
        SystemExit: SIGTERM or SIGHUP came; with the exit code of that signal.
    """
    app = BeforeStartApp(checks, brief, theme, again)
    app.run(mouse=mouse)
    if app.return_code:
        raise SystemExit(app.return_code)
    return app.agreed, app.checks, app.values
