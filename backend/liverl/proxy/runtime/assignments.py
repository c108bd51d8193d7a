"""Which trial lives on which replica: an append-only file that two generations of the proxy share.

One JSON object per line: ``{"trial", "replica", "at", "generation", "moved_from"}``. The last line of a trial
counts. A generation reads what it has not seen yet before it writes, under a lock, so that a trial whose
first two requests meet two generations ends on one replica.
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

LIVE_FOR = 600.0  # seconds without a request after which a trial no longer counts as load
FORGET_AFTER = 86400.0  # seconds; a trial that old is assigned anew


@dataclass
class Assignment:
    replica: str
    last_used: float  # Unix seconds


class Assignments:
    """Raises OSError when the file cannot be opened or read; a failed write is the caller's to report."""

    def __init__(self, path: Path, generation: int, now: Callable[[], float] = time.time) -> None:
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
        os.close(self._fd)

    def get(self, trial: str) -> str | None:
        """The replica of ``trial``, or None, as this generation or another one decided last."""
        self._read_new()
        found = self._known.get(trial)
        return found.replica if found else None

    def touch(self, trial: str) -> None:
        self._known[trial].last_used = self._now()

    def settle(self, trial: str, choose: Callable[[str | None], str]) -> tuple[str, str | None]:
        """Assign ``trial`` to ``choose(its present replica)`` and return (replica, moved_from).

        Under the file's lock and after reading it, so ``choose`` sees what another generation decided.
        """
        with self._locked():
            self._read_new()
            before = self._known.get(trial)
            previous = before.replica if before else None
            replica = choose(previous)
            if replica == previous:
                self.touch(trial)
                return replica, None
            # Known before written: on a full disk routing stays sticky within this generation.
            self._known[trial] = Assignment(replica, self._now())
            self._append(trial, replica, previous)
            return replica, previous

    def level(self) -> None:
        """Count load from now on, as a replica has come that has no past.

        Nothing tells when a trial has ended: what the others did before would send it every new trial.
        """
        self._level_at = self._now()

    def live(self) -> Counter[str]:
        """Trials per replica with a request in the last LIVE_FOR seconds, and since the last ``level``."""
        since = max(self._now() - LIVE_FOR, self._level_at)
        return Counter(known.replica for known in self._known.values() if known.last_used >= since)

    def _append(self, trial: str, replica: str, moved_from: str | None) -> None:
        record = {
            "trial": trial,
            "replica": replica,
            "at": self._now(),  # exact: it is compared with the moment of `level` when it is read back
            "generation": self._generation,
            "moved_from": moved_from,
        }
        line = json.dumps(record).encode() + b"\n"
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            line = b"\n" + line  # a writer died within its line
        if os.write(self._fd, line) != len(line):
            raise OSError("the record was written only in part; the disk may be full")

    def _read_new(self) -> None:
        size = os.fstat(self._fd).st_size
        while self._offset < size:
            data = os.pread(self._fd, size - self._offset, self._offset)
            end = data.rfind(b"\n") + 1
            if not end:
                return  # a line that is still being written
            self._offset += end
            for line in data[:end].splitlines():
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            trial, replica, at = record["trial"], record["replica"], float(record["at"])
        except (ValueError, KeyError, TypeError):
            return  # torn by a crash; the trial is simply assigned again
        if isinstance(trial, str) and isinstance(replica, str) and self._now() - at < FORGET_AFTER:
            self._known[trial] = Assignment(replica, at)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def least_loaded(candidates: Sequence[str], *loads: Counter[str]) -> str:
    """The candidate with the smallest first load, then the smallest second one, then the first listed."""
    return min(candidates, key=lambda name: tuple(load[name] for load in loads))
