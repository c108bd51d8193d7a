"""When the trainer finished its steps, from the events: a trial that names no step belongs to the one in whose time it
began."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import msgspec

from liverl.logs.follow import LineFollower
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import RefusedFileError

_NEEDLE = b'"kind":"step"'


class _Event(msgspec.Struct):
    at: float
    kind: str
    data: dict[str, Any] = {}


class FinishedStep(msgspec.Struct, frozen=True):
    """A step whose metrics were written after ``after`` and by ``by``, in Unix seconds."""

    step: int
    after: float
    by: float


class StepTimes:
    """The finished steps of one run in the order in which they ended. A step that a resumed trainer repeats is there
    again. Reads only what was appended since the last ``poll``."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._lines = LineFollower(os.path.join(run_dir, "events.jsonl"))
        self._steps: list[FinishedStep] = []
        self._ends: list[float] = []  # by when each was written

    @property
    def finished(self) -> tuple[FinishedStep, ...]:
        """The finished steps so far, oldest first."""
        return tuple(self._steps)

    def poll(self) -> bool:
        """Read what is new; return whether a step was finished.

        Raises:
            OSError: the storage failed.
        """
        news = False
        for line in self._new_lines():
            if _NEEDLE in line:
                news |= self._take(line)
        return news

    def step_of(self, began: float, ended: float | None) -> tuple[int, bool]:
        """The step of a trial that began at ``began`` and ended at ``ended`` (Unix seconds; None: it has not), and
        whether that is final: the trainer has finished that step, so that its number is known."""
        place = bisect_right(self._ends, began)
        for finished in self._steps[place:]:
            # A step's trials are over when its metrics are written. So one that began while they may have been written
            # and goes on is of the next step.
            if began < finished.after or (ended is not None and ended <= finished.by):
                return finished.step, True
        return (self._steps[-1].step if self._steps else 0) + 1, False

    def _take(self, line: bytes) -> bool:
        try:
            event = decode_json(line, type=_Event)
        except BAD_JSON:
            return False
        step, after, by = (event.data.get(name) for name in ("step", "after", "by"))
        if event.kind != "step" or not isinstance(step, int):
            return False
        by = by if isinstance(by, int | float) else event.at
        by = max([by, *self._ends[-1:]])
        self._steps.append(FinishedStep(step, after if isinstance(after, int | float) else by, by))
        self._ends.append(by)
        return True

    def _new_lines(self) -> Iterator[bytes]:
        with contextlib.suppress(PermissionError, RefusedFileError):
            resets = self._lines.resets
            while lines := self._lines.poll():
                if self._lines.resets != resets:  # written anew
                    resets = self._lines.resets
                    self._steps, self._ends = [], []
                yield from lines
