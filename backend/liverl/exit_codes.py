"""The exit codes of the program and of the backend daemon, in one table.

``--help`` prints it, and README's table equals it. Importing this module imports nothing heavy.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """``meaning``: what a user reads. ``internal``: used between processes of liverl only; no command ends with it."""

    meaning: str
    internal: bool

    def __new__(cls, code: int, meaning: str, internal: bool = False) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.internal = internal
        return member

    OK = 0, "done"
    FAILED = 1, "the run or the command failed"
    USAGE = 2, "usage or configuration"
    PREFLIGHT = 3, "preflight found a fault; nothing was started"
    NO_RUN = 4, "no such run here"
    STOPPED = 5, "stopped, and can be resumed"
    HELD = 6, "another backend holds the run's lock", True
    LEFT_OVER = 75, "stopped, but some processes could not be killed"
    TIMEOUT = 124, "`wait` timed out"  # as timeout(1)


SIGNAL_BASE = 128
_SIGNAL_ROW = ("128+n", "the trainer, or the command, was ended by signal n (130: Ctrl-C)")


def of_signal(number: int) -> int:
    """The exit code of what signal ``number`` has ended, as shells count it."""
    return SIGNAL_BASE + number


def rows() -> list[tuple[str, str]]:
    """The codes that a command can end with, and their meanings, in the order of the codes."""
    public = sorted(code for code in ExitCode if not code.internal)
    return [*((str(int(code)), code.meaning) for code in public), _SIGNAL_ROW]
