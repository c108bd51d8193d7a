"""Assigns trials to replicas: an append-only file that two generations of the proxy share.

One JSON object per line: ``{"trial", "replica", "at", "generation", "moved_from"}``; the last line of a trial
counts. Before a generation writes, it reads new lines under a lock, so that a trial whose first two requests
reach different generations stays on one replica.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .files import append_line

LIVE_FOR = 600.0  # seconds without requests after which a trial no longer counts as load
FORGET_AFTER = 86400.0  # seconds after which a trial is assigned again


@dataclass
class Assignment:
    """The replica of a trial."""

    replica: str
    last_used: float  # monotonic seconds, the same for all processes of the host


class Assignments:
    """The assignments of all trials.

    Raises:
        OSError: the file cannot be opened or read. Failed writes are reported by the caller.
    """

    def __init__(self, path: Path, generation: int, now: Callable[[], float] = time.monotonic) -> None:
        self._generation = generation
        self._now = now
        self._known: dict[str, Assignment] = {}
        self._level_at = 0.0
        self._offset = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o644)
        with self._locked():
            self._read_new()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def get(self, trial: str) -> str | None:
        """Return the replica of ``trial`` as last decided by any generation, or None."""
        self._read_new()
        assignment = self._known.get(trial)
        return assignment.replica if assignment else None

    def touch(self, trial: str) -> None:
        """Record a request of ``trial`` now."""
        self._known[trial].last_used = self._now()

    def settle(self, trial: str, choose: Callable[[str | None], str]) -> tuple[str, str | None]:
        """Assign ``trial`` to ``choose(current replica)`` and return (replica, moved_from).

        Holds the file's lock and reads the file first, so that ``choose`` sees decisions of other
        generations.
        """
        with self._locked():
            self._read_new()
            before = self._known.get(trial)
            previous = before.replica if before else None
            replica = choose(previous)
            if replica == previous:
                self.touch(trial)
                return replica, None
            # Remembered before it is written: on a full disk routing stays sticky within this generation.
            self._known[trial] = Assignment(replica, self._now())
            self._append(trial, replica, previous)
            return replica, previous

    def level(self) -> None:
        """Restart the load count, because a replica was added.

        The end of a trial is not reported: with the old counts the new replica would get all new trials.
        """
        self._level_at = self._now()

    def live(self) -> Counter[str]:
        """Return trials per replica with a request in the last LIVE_FOR seconds and since the last ``level``."""
        since = max(self._now() - LIVE_FOR, self._level_at)
        return Counter(
            assignment.replica for assignment in self._known.values() if assignment.last_used >= since
        )

    def _append(self, trial: str, replica: str, moved_from: str | None) -> None:
        record = {
            "trial": trial,
            "replica": replica,
            "at": time.time(),  # for people, and for versions that know no ``ran``
            "ran": self._now(),  # not rounded: compared with the time of `level` when read back
            "generation": self._generation,
            "moved_from": moved_from,
        }
        line = json.dumps(record).encode() + b"\n"
        append_line(self._fd, line, whole=True)  # under the lock

    def _read_new(self) -> None:
        size = os.fstat(self._fd).st_size
        while self._offset < size:
            data = os.pread(self._fd, size - self._offset, self._offset)
            end = data.rfind(b"\n") + 1
            if not end:
                return  # the line is still being written
            self._offset += end
            for line in data[:end].splitlines():
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            trial, replica, at = record["trial"], record["replica"], float(record["at"])
            ran = record.get("ran")
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # incomplete after a crash; the trial is assigned again
        now = self._now()
        # The system's clock may have been set since, but it is all there is of an earlier version or boot.
        known = isinstance(ran, float | int) and ran <= now
        used = float(ran) if known else now - max(0.0, time.time() - at)
        if isinstance(trial, str) and isinstance(replica, str) and now - used < FORGET_AFTER:
            self._known[trial] = Assignment(replica, used)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def least_loaded(candidates: Sequence[str], *loads: Counter[str]) -> str:
    """Return the candidate with the smallest first load, then the smallest second one, then the first listed."""
    return min(candidates, key=lambda name: tuple(load[name] for load in loads))
