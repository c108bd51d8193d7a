"""The number of all steps by the logs of a launch script, or of a trainer, while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from liverl.causes.quiet.owed import Owed, Passed, owed
from liverl.causes.quiet.told import Listening, Told, joined
from liverl.logs.follow import LineFollower

READ = 4 << 20  # bytes of one log that are read together
MOST = 32 << 20  # bytes of a log that are read when it is first seen, about 2 s: its beginning and its end,
HEAD = 8 << 20  # and bytes of its beginning


class ScriptSteps:
    """``owed``: steps of the whole training, and who says so; None before anything tells. ``told``: what the logs tell
    together."""

    def __init__(self) -> None:
        self.owed: Owed | None = None
        self.told = Told()
        self._logs: dict[Path, _Followed] = {}

    @property
    def total(self) -> int | None:
        """The steps of the whole training; None before anything tells."""
        return self.owed.steps if self.owed is not None else None

    def look(self, logs: Iterable[Path], passed: Passed | None = None) -> None:
        """Read what was added to the logs of one training, the first one before the others, and forget all others.
        ``passed``: steps that the trainer was given otherwise. Blocks on the disk.

        Raises:
            OSError: a log cannot be read.
        """
        self._logs = {path: self._logs.get(path) or _Followed(path) for path in logs}
        for one in self._logs.values():
            one.read()
        self.told = joined([one.listening.told for one in self._logs.values()])
        self.owed = owed(self.told, passed)


class _Followed:
    """One log, from its beginning; of a log that is larger than ``MOST`` when it is first read, its beginning and its
    end, which are where totals stand."""

    def __init__(self, path: Path) -> None:
        self.listening = Listening()
        self._lines = LineFollower(path)
        self._left_out = _size(path) > MOST

    def read(self) -> None:
        """Read what was added."""
        resets = self._lines.resets
        while True:
            lines = self._lines.poll(READ)
            if self._lines.resets != resets:
                resets, self.listening, self._left_out = self._lines.resets, Listening(), False
            if lines:
                self.listening.hear(b"\n".join(lines), 0)
            follower = self._lines.follower
            size = _size(follower.path)
            if self._left_out and follower.offset >= HEAD:
                self._left_out = False
                follower.skip_to(size - (MOST - HEAD))
            elif follower.offset >= size or not lines:
                return


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
