"""The exit codes of the commands and of the backend process, in one table.

``--help`` prints the table, and docs/reference/exit-codes.md repeats it. This module imports only from the standard
library, so that it loads fast.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """An exit code. ``meaning``: the text for users. ``internal``: used only between processes of liverl; no command
    exits with it."""

    meaning: str
    internal: bool

    def __new__(cls, code: int, meaning: str, internal: bool = False) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.internal = internal
        return member

    OK = 0, "done"
    FAILED = 1, "the run or the command failed; `doctor`: something is wrong"
    USAGE = 2, "usage or configuration"
    PREFLIGHT = 3, "a check before the start failed; no trainer was started"
    NO_RUN = 4, "no such run, live elsewhere, backend died; `doctor`: nothing to read"
    STOPPED = 5, "stopped, and can be resumed"
    HELD = 6, "another backend holds the run's lock", True
    INTERNAL = 70, "`doctor` itself failed"
    LEFT_OVER = 75, "stopped, but processes or sandboxes are left"
    TIMEOUT = 124, "`wait` timed out"  # the code that timeout(1) uses


SIGNAL_BASE = 128
_SIGNAL_ROW = ("128+n", "signal n ended the trainer or the command (130: Ctrl-C)")


def of_signal(number: int) -> int:
    """The exit code of a process that signal ``number`` ended, as shells report it: 128 + ``number``."""
    return SIGNAL_BASE + number


def rows() -> list[tuple[str, str]]:
    """(code, meaning) of every code that a command can exit with, in ascending order; the last row is ``128+n``."""
    public = sorted(code for code in ExitCode if not code.internal)
    return [*((str(int(code)), code.meaning) for code in public), _SIGNAL_ROW]
