"""When the trainer was started, from the journal: a trial that began before the newest start is no longer running."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from typing import Any

from liverl.rundir.journal import read_record
from liverl.util.regular_file import RefusedFileError, open_regular

_TRAINER = "trainer"  # name of the trainer's service in every plan
_NEEDLES = (b'"k":"attempt"', b'"svc":"trainer"')
_LARGEST = 16 << 20  # maximum bytes of the journal read at once


class TrainerStarts:
    """The times at which the trainer of one run was started: at its first start, on a restart, and with each attempt.

    Every trial belongs to one start. A run whose trainer was never started by us has none, so all its trials belong to
    the same. Reads only what was appended since the last ``poll``.
    """

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._path = os.path.join(run_dir, "journal.jsonl")
        self._offset = 0
        self._attempts: dict[
            int, float
        ] = {}  # number -> Unix time; an adopted attempt is written a second time
        self._trainers: dict[int, float] = {}  # generation -> Unix time
        self._times: list[float] = []

    @property
    def newest(self) -> int:
        """The number of the newest start; 0 without one."""
        return len(self._times)

    @property
    def first(self) -> float:
        """The Unix time of the first start, before which no trial can be of this run; minus infinity without one: then
        no trial is too old."""
        return self._times[0] if self._times else -math.inf

    def number(self, began: float) -> int:
        """The number of the start that a trial belongs to which began at ``began`` (Unix time)."""
        return bisect_right(self._times, began)

    def poll(self) -> bool:
        """Read what is new; return whether there was another start.

        Raises:
            OSError: the storage failed.
        """
        before = self._times
        for line in self._new_lines():
            if any(needle in line for needle in _NEEDLES):
                self._take(read_record(line) or {})
        if self._trainers:
            self._times = sorted({*self._attempts.values(), *self._trainers.values()})
        return self._times != before

    def _new_lines(self) -> list[bytes]:
        try:
            fd = open_regular(self._path)
        except (FileNotFoundError, NotADirectoryError, PermissionError, RefusedFileError):
            return []
        try:
            size = os.fstat(fd).st_size
            if size < self._offset:  # written anew
                self._offset = 0
            data = os.pread(fd, min(size - self._offset, _LARGEST), self._offset)
        finally:
            os.close(fd)
        whole = data.rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        return whole.split(b"\n")

    def _take(self, record: dict[str, Any]) -> None:
        at, kind = record.get("at"), record.get("k")
        if not isinstance(at, int | float):
            return
        # Without ``monotonic`` it is a copy, written by a backend that adopted the services of the attempt.
        if kind == "attempt" and "monotonic" in record and isinstance(number := record.get("n"), int):
            self._attempts.setdefault(number, float(at))
        elif kind == "intent" and record.get("svc") == _TRAINER and isinstance(gen := record.get("gen"), int):
            self._trainers.setdefault(gen, float(at))
