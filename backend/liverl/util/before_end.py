"""Checkpoints outside of a trainer's rhythm: before the end of its batch job, and when somebody asks for one.

The backend writes what it knows to a file, and a trainer reads that at the end of each of its steps. For Python 3.10
with few packages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from liverl.util import clocks
from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.regular_file import read_regular

FILE = "before_end.json"  # in the directory of the attempt
VARIABLE = "LIVERL_BEFORE_END"  # of verl's processes: that file
LARGEST = 1 << 12  # bytes of it
# Seconds of a save while none was timed: verl's own default (utils/checkpoint/checkpoint_manager.py, 0.9.1).
SAVE_S = 60.0
# A save may take this share of the time since the last one began: with steps of a second all of the last minutes would
# be spent with saving.
SHARE = 0.1


class BeforeEnd(msgspec.Struct, frozen=True):
    """What a trainer is told. ``ends_at``: Unix seconds at which its batch job ends, None: not known or never;
    ``margin``: seconds before that in which nothing may be left to do; ``asked``: how many checkpoints somebody has
    asked for in this attempt."""

    ends_at: float | None = None
    margin: float = 0.0
    asked: int = 0


def read(path: Path) -> BeforeEnd:
    """What the file says; that nothing ends and nobody has asked if there is none, or it is not ours."""
    try:
        return decode_json(read_regular(path, LARGEST), type=BeforeEnd)
    except (OSError, ValueError):
        return BeforeEnd()


def write(path: Path, told: BeforeEnd) -> None:
    """Replace what trainers are told.

    Raises:
        OSError: it cannot be written.
    """
    write_json(path, msgspec.to_builtins(told))


class Saves:
    """Decides at the end of each step of one trainer whether it saves now.

    ``path``: the file; ``regular``: whether the trainer saves every N steps: one that never saves does so only if it is
    asked; ``ran``: seconds of a clock that nobody sets; ``wall``: Unix seconds.
    """

    def __init__(
        self,
        path: Path,
        *,
        regular: bool,
        ran: Callable[[], float] = clocks.ran,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._regular, self._ran, self._wall = path, regular, ran, wall
        self._asked = 0
        # ``ends_at``, and the same on ``ran``, when it was first read
        self._end: tuple[float, float] | None = None
        self._began: float | None = None  # the present step ...
        self._saving = 0.0  # ... and the seconds of it in which a checkpoint was saved
        self._longest = 0.0  # seconds of a step, with what the trainer does until the next one
        self._save: float | None = None  # seconds of the longest save
        self._saved: tuple[float, float] | None = None  # when the newest save began and ended

    def step_begins(self) -> None:
        """A step begins, and the one before it has ended with all that belongs to it, such as a validation."""
        self._measure()
        self._began, self._saving = self._ran(), 0.0

    def saved(self, seconds: float) -> None:
        """A checkpoint was saved, for whatever reason, in so many seconds up to now."""
        now = self._ran()
        self._saved = now - seconds, now
        self._saving += seconds
        self._save = max(seconds, self._save or 0.0)

    def why(self) -> str:
        """Why a checkpoint is to be saved at the end of the present step, for the log; "" if it is not."""
        told = read(self._path)
        asked, self._asked = told.asked > self._asked, max(told.asked, self._asked)
        if asked:
            return "somebody has asked for it"
        if told.ends_at is None or not self._regular:
            return ""
        self._measure()
        if self._end is None or self._end[0] != told.ends_at:
            self._end = told.ends_at, self._ran() + (told.ends_at - self._wall())
        left = self._end[1] - self._ran()
        save = SAVE_S if self._save is None else self._save
        if not 0.0 < left <= self._longest + save + told.margin or self._too_soon():
            return ""
        return (
            f"the batch job ends in {left:.0f} s, and a step takes up to {self._longest:.0f} s, a checkpoint "
            f"{save:.0f} s, with {told.margin:.0f} s to spare (batch.margin)"
        )

    def regular_save_follows(self) -> None:
        """The trainer saves by itself at the end of this step: what was asked for is done."""
        self._asked = max(self._asked, read(self._path).asked)

    def _measure(self) -> None:
        if self._began is not None:
            self._longest = max(self._longest, self._ran() - self._began - self._saving)

    def _too_soon(self) -> bool:
        if self._saved is None:
            return False
        began, ended = self._saved
        return (ended - began) > SHARE * (self._ran() - began)


def saves_of(environ: str = VARIABLE, *, regular: bool) -> Saves | None:
    """Of the trainer in this process, by its variable; None without that."""
    path = os.environ.get(environ)
    return Saves(Path(path), regular=regular) if path else None
