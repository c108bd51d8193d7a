"""The terminal beyond its cells: window title, line modes, and suspending to the shell."""

from __future__ import annotations

import os
import termios
from collections.abc import Callable
from typing import Any

from liverl.util.visible import visible
from liverl_tui.term.private import terminal_file

PUSH_TITLE = "\x1b[22;0t"  # terminals without a title stack ignore both
POP_TITLE = "\x1b[23;0t"
TITLE_MOST = 120  # characters
_UNTITLED = ("linux", "dumb")  # terminals without a title, which may print the sequence as text


def inside_tmux() -> bool:
    """Whether this process runs in tmux, by the variable TMUX."""
    return bool(os.environ.get("TMUX"))


def title_sequence(title: str) -> str:
    """The escape sequence that sets the window's title, with control characters made visible (they would end the
    sequence) and cut to ``TITLE_MOST`` characters."""
    return f"\x1b]2;{visible(title)[:TITLE_MOST]}\x07"


class WindowTitle:
    """The title of the terminal's window: written only when it changes, restored at the end."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._shown: str | None = None

    def set(self, title: str) -> None:
        """Show ``title``. The first call saves the terminal's own title, for ``restore``."""
        if title == self._shown:
            return
        begin = PUSH_TITLE if self._shown is None else ""
        self._shown = title
        self._write(begin + title_sequence(title))

    def restore(self) -> None:
        """Restore the title that was there before, or an empty one if the terminal does not keep it."""
        if self._shown is not None:
            self._shown = None
            self._write(title_sequence("") + POP_TITLE)


def has_title(driver: Any) -> bool:
    """Whether ``driver`` writes to a terminal whose window has a title."""
    if driver is None or driver.is_headless or driver.is_web or os.environ.get("TERM") in _UNTITLED:
        return False
    file = terminal_file(driver)
    return file is not None and file.isatty()


def restore_modes(driver: Any) -> None:
    """Restore the terminal's line modes (termios) without writing to it, for a terminal that may be closed."""
    before = getattr(driver, "attrs_before", None)
    if before is None:
        return
    try:
        termios.tcsetattr(driver.fileno, termios.TCSANOW, before)
    except (termios.error, OSError):
        return  # the terminal is closed


def can_suspend() -> bool:
    """Whether a shell with job control is our parent and can resume us after Ctrl-Z. Without one, or when the parent
    is in our own process group, nobody could resume this process."""
    try:
        parent = os.getppid()
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    except OSError:
        return False
