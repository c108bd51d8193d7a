"""What we ask of the terminal beyond cells: its title, its line modes, its shell."""

from __future__ import annotations

import os
import termios
from collections.abc import Callable
from typing import Any

from liverl_tui.term.private import terminal_file

PUSH_TITLE = "\x1b[22;0t"  # terminals without a stack of titles ignore both
POP_TITLE = "\x1b[23;0t"
TITLE_MOST = 120  # characters
_UNTITLED = ("linux", "dumb")  # terminals that have no title, and may print what would set it


def inside_tmux() -> bool:
    return bool(os.environ.get("TMUX"))


def title_sequence(title: str) -> str:
    """What sets the window's title; control characters in it are left out, as they would end or abuse it."""
    return f"\x1b]2;{''.join(c for c in title if c.isprintable())[:TITLE_MOST]}\x07"


class WindowTitle:
    """The title of the terminal's window, set when it changes and given back at the end."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._shown: str | None = None

    def set(self, title: str) -> None:
        if title == self._shown:
            return
        begin = PUSH_TITLE if self._shown is None else ""
        self._shown = title
        self._write(begin + title_sequence(title))

    def restore(self) -> None:
        """The old title where the terminal remembers it, else none."""
        if self._shown is not None:
            self._shown = None
            self._write(title_sequence("") + POP_TITLE)


def has_title(driver: Any) -> bool:
    """Whether there is a window whose title we may set."""
    if driver is None or driver.is_headless or driver.is_web or os.environ.get("TERM") in _UNTITLED:
        return False
    file = terminal_file(driver)
    return file is not None and file.isatty()


def restore_modes(driver: Any) -> None:
    """Give the terminal's line modes back without sending it a byte."""
    before = getattr(driver, "attrs_before", None)
    if before is None:
        return
    try:
        termios.tcsetattr(driver.fileno, termios.TCSANOW, before)
    except (termios.error, OSError):
        return  # it has gone


def can_suspend() -> bool:
    """Whether a shell waits that brings us back after Ctrl-Z. Without one, or when our parent belongs to the same
    job, we would stand still for good."""
    try:
        parent = os.getppid()
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    except OSError:
        return False
