"""How full the file systems of a run are, how fast they fill, and what in the run's directory takes the space."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import msgspec

from liverl.model import UnreadableFile
from liverl.util.tree_size import allocated

# What ``Volume.what`` calls them. A folder on the same file system as one before it has no volume of its own.
RUN_DIRECTORY, TRIALS, SHARED_MEMORY = "run directory", "trials", "shared memory"
LOW_DISK = 1 << 30  # bytes; checkpoints of a real model need more, logs and records less
# Bytes of /dev/shm: NCCL maps 10 to 33 MiB for each peer, and fails without (recordings/cases/07).
LOW_SHM = 32 << 20
SOON_S = 3600.0  # seconds until a disk is full: time enough to make room
WINDOW = 1800.0  # seconds of samples from which the rate is measured
# A rate is extrapolated to at most this many times the time over which it was measured: a checkpoint that is being
# written fills a disk as fast as a leak, but ends.
AHEAD = 2.0
LEAST_S = 10.0  # seconds over which a rate is measured at least
_PARTS = 3  # parts of the time in each of which the use must have grown
MOST_FILES = 20_000  # files that are counted in one folder


class Volume(msgspec.Struct, frozen=True):
    """One file system. Sizes are bytes. ``folder``: a folder of the run on it; ``what``: what the run keeps there;
    ``per_second``: how fast its use grows; ``seconds_left``: until it is full at that rate. Both are None while it does
    not grow steadily, or while it is not known for how long it will."""

    folder: str
    what: str
    total: int
    free: int
    per_second: float | None = None
    seconds_left: float | None = None


def is_low(volume: Volume) -> bool:
    """Whether a file system has little room left, or is full soon."""
    low = volume.free < (LOW_SHM if volume.what == SHARED_MEMORY else LOW_DISK)
    return low or (volume.seconds_left is not None and volume.seconds_left <= SOON_S)


class VolumeRates:
    """Rates of one file system from samples of its free space. Pure."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._free: list[int] = []  # bytes, at each of these times

    def add(self, at: float, free: int) -> None:
        """Add a sample: free bytes at a time in seconds."""
        self._times.append(at)
        self._free.append(free)
        old = bisect_left(self._times, at - WINDOW)
        if old > len(self._times) // 4:  # seldom, as the rest is moved
            del self._times[:old], self._free[:old]

    def rate(self) -> tuple[float, float] | None:
        """Bytes per second by which the free space shrinks, and the seconds until there is none; None if it does not
        shrink steadily. The longest time that is steady counts."""
        start = bisect_left(self._times, self._times[-1] - WINDOW) if self._times else 0
        while len(self._times) - start > _PARTS:
            found = self._steady(start)
            if found is not None:
                return found
            start += (len(self._times) - start) // 2
        return None

    def _steady(self, start: int) -> tuple[float, float] | None:
        """The rate of the samples from an index on."""
        began, span = self._times[start], self._times[-1] - self._times[start]
        if span < LEAST_S:
            return None
        marks = [self._nearest(began + span * part / _PARTS) for part in range(_PARTS + 1)]
        whole = marks[0] - marks[-1]
        # Each part takes at least half of its share.
        if whole <= 0 or min(before - after for before, after in pairwise(marks)) < whole / _PARTS / 2:
            return None
        rate = whole / span
        left = marks[-1] / rate
        return (rate, left) if left <= AHEAD * span else None

    def _nearest(self, at: float) -> int:
        """The free bytes of the sample that is nearest to a time."""
        place = bisect_left(self._times, at)
        if place == len(self._times) or (place and at - self._times[place - 1] < self._times[place] - at):
            place -= 1
        return self._free[place]


class VolumeWatch:
    """Samples the file systems of folders. ``folders``: what the run keeps there -> folder. Blocking: call ``look`` in
    a thread."""

    def __init__(
        self, folders: Iterable[tuple[str, Path]], statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    ):
        self._folders = tuple(folders)
        self._statvfs = statvfs
        self._rates: dict[int, VolumeRates] = {}
        self.unreadable: tuple[UnreadableFile, ...] = ()

    def look(self, now: float) -> tuple[Volume, ...]:
        """The file systems, each once. ``now``: Unix time. A folder that is not there is left out; one whose file
        system does not answer is named in ``unreadable``."""
        found: dict[int, Volume] = {}
        failed: list[UnreadableFile] = []
        for what, folder in self._folders:
            try:
                device, status = os.stat(folder).st_dev, self._statvfs(os.fspath(folder))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                failed.append(UnreadableFile(os.fspath(folder), f"its free space: {error.strerror or error}"))
                continue
            if device in found or not status.f_blocks:
                continue
            free = status.f_bavail * status.f_frsize
            rates = self._rates.setdefault(device, VolumeRates())
            rates.add(now, free)
            rate = rates.rate()
            total = status.f_blocks * status.f_frsize
            found[device] = Volume(os.fspath(folder), what, total, free, *(rate or (None, None)))
        self.unreadable = tuple(failed)
        return tuple(found.values())


def bytes_of(folder: str) -> int:
    """Bytes on the disk of a folder with all below it, ``MOST_FILES`` files of each entry at most. Links are not
    followed. Blocking."""
    with os.scandir(folder) as entries:
        return allocated(os.stat(folder)) + sum(map(_bytes, entries))


def largest(folder: Path, most: int = 3) -> tuple[tuple[str, int], ...]:
    """The largest entries of a folder with their bytes, the largest first. Of a folder with more than ``MOST_FILES``
    files only so many are counted. Blocking."""
    sizes: list[tuple[str, int]] = []
    try:
        with os.scandir(folder) as entries:
            sizes = [(entry.name, _bytes(entry)) for entry in entries]
    except OSError:
        return ()
    return tuple(sorted((s for s in sizes if s[1]), key=lambda s: -s[1])[:most])


def _bytes(entry: os.DirEntry[str]) -> int:
    """Bytes on the disk of a file, or of a folder with all below it. Links are not followed."""
    total, counted, waiting = 0, 0, []
    try:
        total = allocated(entry.stat(follow_symlinks=False))
        if not entry.is_dir(follow_symlinks=False):
            return total
        waiting.append(entry.path)
        while waiting and counted < MOST_FILES:
            with os.scandir(waiting.pop()) as entries:
                for one in entries:
                    counted += 1
                    total += allocated(one.stat(follow_symlinks=False))
                    if one.is_dir(follow_symlinks=False):
                        waiting.append(one.path)
    except OSError:  # it was removed meanwhile
        pass
    return total
