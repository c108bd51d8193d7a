"""The logs of a diagnosis: when each was written, by its own stamps and by its file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from liverl.logs.zones import Stamps, aligned, local_zone, stamp_in, stamps
from liverl.offline.doctor.inputs import Input
from liverl.util.regular_file import open_regular

SAMPLE = 64 << 10  # bytes at each end of a log in which its stamps are looked for
A_ZONE = 26 * 3600.0  # seconds by which stamps of any zone may differ from the time of the file


class Log(msgspec.Struct, frozen=True):
    """One log. ``zone``: of its stamps that state none, None for that of this host; ``begin``, ``end``: Unix times of
    its first and last stamp, None without one; ``modified``: of its file; ``behind``: lines without a stamp stand
    behind the last one that has one, so that the log was written after ``end``, nobody knows for how long."""

    input: Input
    modified: float
    zone: int | None = None
    begin: float | None = None
    end: float | None = None
    behind: bool = False

    @property
    def path(self) -> str:
        """Its path as shown."""
        return self.input.path

    @property
    def trains(self) -> bool:
        """Whether a trainer wrote it."""
        return "trainer" in self.input.what

    @property
    def over(self) -> float:
        """When it was last written, as well as that is known: by its file, unless the file is a copy whose last line
        tells more."""
        if self.end is None or self.behind or self.end <= self.modified <= self.end + A_ZONE:
            return self.modified
        return self.end if self.end < self.modified else self.modified


def dated(inputs: Iterable[Input]) -> list[Log]:
    """The logs among ``inputs``, with their times on one clock. One that cannot be read any more has none: who reads
    it is told why."""
    found: list[tuple[Input, float, Stamps, bool]] = []
    for one in inputs:
        try:
            modified, samples = _samples(one.path)
        except OSError:
            modified, samples = time.time(), ()
        found.append((one, modified, stamps(samples, modified), _goes_on(samples)))
    zones = aligned([(clock, modified) for _, modified, clock, _ in found])
    return [_log(*entry, zone) for entry, zone in zip(found, zones, strict=True)]


def _goes_on(samples: Sequence[str]) -> bool:
    """Whether the last line has no stamp."""
    lines = "".join(samples).rstrip().rsplit("\n", 1)
    return stamp_in(lines[-1]) is None


def _log(one: Input, modified: float, clock: Stamps, behind: bool, zone: int | None) -> Log:
    times: list[float] = list(clock.known or ())
    for at in (clock.first, clock.last):
        if at is not None:
            times.append(at - (local_zone(at) if zone is None else zone))
    return Log(one, modified, zone, min(times, default=None), max(times, default=None), behind)


def _samples(path: str) -> tuple[float, Sequence[str]]:
    fd = open_regular(Path(path))
    try:
        status = os.fstat(fd)
        head = os.pread(fd, SAMPLE, 0)
        tail = os.pread(fd, SAMPLE, max(SAMPLE, status.st_size - SAMPLE)) if status.st_size > SAMPLE else b""
    finally:
        os.close(fd)
    return status.st_mtime, [head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")]
