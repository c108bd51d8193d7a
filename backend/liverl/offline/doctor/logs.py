"""The logs of a diagnosis: when each was written, by its own stamps and by its file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from liverl.logs.written import last_written
from liverl.logs.zones import Stamps, aligned, local_zone, stamps, unsure
from liverl.offline.doctor.inputs import Input
from liverl.util.regular_file import open_regular

SAMPLE = 64 << 10  # bytes at each end of a log in which its stamps are looked for
A_ZONE = 26 * 3600.0  # seconds by which stamps of any zone may differ from the time of the file


class Log(msgspec.Struct, frozen=True):
    """One log. ``zone``: of its stamps that state none, None for that of this host; ``begin``, ``end``: Unix times of
    its first and last stamp, None without one; ``modified``: of its file; ``written``: when it was last written
    to by its own stamps, which is long before if the file is a copy, None if they do not tell."""

    input: Input
    modified: float
    zone: int | None = None
    begin: float | None = None
    end: float | None = None
    written: float | None = None

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
        """When it was last written, as well as that is known."""
        return self.modified if self.written is None else self.written


def dated(inputs: Iterable[Input]) -> list[Log]:
    """The logs among ``inputs``, with their times on one clock. One that cannot be read any more has none: who reads
    it is told why."""
    found: list[tuple[Input, float, Stamps, str]] = []
    for one in inputs:
        try:
            modified, samples = _samples(one.path)
        except OSError:
            modified, samples = time.time(), ("",)
        found.append((one, modified, stamps(samples, modified), samples[-1]))
    zones = aligned([(clock, modified) for _, modified, clock, _ in found])
    return [_log(*entry, zone) for entry, zone in zip(found, zones, strict=True)]


def _log(one: Input, modified: float, clock: Stamps, tail: str, zone: int | None) -> Log:
    times: list[float] = list(clock.known or ())
    for at in (clock.first, clock.last):
        if at is not None:
            times.append(at - (local_zone(at) if zone is None else zone))
    end = max(times, default=None)
    written = last_written(tail, end, modified, unsure(clock, zone))
    return Log(one, modified, zone, min(times, default=None), end, None if written == modified else written)


def _samples(path: str) -> tuple[float, Sequence[str]]:
    fd = open_regular(Path(path))
    try:
        status = os.fstat(fd)
        head = os.pread(fd, SAMPLE, 0)
        tail = os.pread(fd, SAMPLE, max(0, status.st_size - SAMPLE))
    finally:
        os.close(fd)
    return status.st_mtime, [head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")]
