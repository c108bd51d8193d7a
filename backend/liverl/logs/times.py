"""When which byte of a log was written, and times as people type them."""

from __future__ import annotations

import os
import re
import time
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

TAIL = 16 << 10  # bytes at the end of an index that are read at first: the last minutes
MOST = 64 << 20  # bytes of an index that are read at all, from its end
ENTRIES = 1 << 14  # kept in memory: four hours at one a second; a longer index is kept more coarsely


class TimeIndex:
    """``<log>.idx``: lines "offset unix_time", about one a second while the log grows. Where there is none,
    the file's modification time stands for every line.

    Nothing is read before it is asked for, and no more than the answer needs. ``refresh`` takes in what was
    appended; ``note`` adds what we have seen ourselves beyond it.
    """

    def __init__(self, log: Path) -> None:
        self.path = log.with_name(log.name + ".idx")
        self.offsets: array[int] = array("q")
        self.times: array[float] = array("d")
        self._indexed = 0  # of the entries: those that the file has
        self._begin: int | None = None  # of the file: what has been read of it
        self._end = 0
        self._rest = b""
        try:
            self.modified = os.stat(log).st_mtime
        except OSError:
            self.modified = 0.0

    @property
    def known(self) -> bool:
        """Whether there is an index at all."""
        self._load()
        return self._indexed > 0

    def _load(self) -> None:
        """Read the end of the file, if nothing has been read yet."""
        if self._begin is None:
            self._begin, data = self._tail(TAIL)
            self._end = self._begin + len(data)
            self._take(data, cut=self._begin > 0)

    def _load_all(self) -> None:
        """Read the file from its beginning, more coarsely where it is long."""
        noted = list(zip(self.offsets, self.times, strict=True))[self._indexed :]
        del self.offsets[:], self.times[:]
        begin, data = self._tail(MOST)
        self._begin, self._end, self._indexed = 0, begin + len(data), 0
        self._take(data, cut=begin > 0)
        for offset, at in noted:
            self._add(offset, at)

    def _tail(self, most: int) -> tuple[int, bytes]:
        """(begin, data): the end of the file, nothing where it cannot be read."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0, b""
        try:
            begin = max(0, os.fstat(fd).st_size - most)
            return begin, os.pread(fd, most, begin)
        except OSError:
            return 0, b""
        finally:
            os.close(fd)

    def refresh(self) -> None:
        """Read what the index's file has got since; a missing or unreadable one has nothing."""
        if self._begin is None:
            return
        try:
            more = os.stat(self.path).st_size - self._end
        except OSError:
            return
        if more > 0:
            begin, data = self._tail(more)
            if begin == self._end:
                self._end += len(data)
                self._take(data)

    def _take(self, data: bytes, *, cut: bool = False) -> None:
        """Rows of the file; ``cut``: the first one is not whole."""
        *rows, self._rest = (self._rest + data).split(b"\n")
        if cut:
            del rows[:1]
        if len(rows) > ENTRIES // 2:
            rows = rows[:: -(-len(rows) // (ENTRIES // 2))]
        if rows:  # they know better than our own notes
            del self.offsets[self._indexed :], self.times[self._indexed :]
        for row in rows:
            offset, _, at = row.partition(b" ")
            try:
                self._add(int(offset), float(at))
            except ValueError:
                continue  # cut short by a crash
        if rows:
            self._indexed = len(self.offsets)

    def note(self, size: int, now: float) -> None:
        """The log has ``size`` bytes at Unix time ``now``."""
        self._load()
        self._add(size, now)

    def reset(self) -> None:
        """The log has been cut short: what the index says so far is about what was there before."""
        del self.offsets[:], self.times[:]
        self._indexed, self._rest, self._begin = 0, b"", 0
        try:
            self._end = os.stat(self.path).st_size
        except OSError:
            self._end = 0

    def _add(self, offset: int, at: float) -> None:
        if not self.offsets or (offset >= self.offsets[-1] and at >= self.times[-1]):
            self.offsets.append(offset)
            self.times.append(at)
            if (
                len(self.offsets) > ENTRIES
            ):  # every second one goes: its bytes count as written a little later
                self.offsets, self.times = self.offsets[1::2], self.times[1::2]
                self._indexed //= 2

    @property
    def end(self) -> float:
        """When the newest byte was written."""
        return max(self.modified, self.times[-1] if self.times else 0.0)

    def _reach_offset(self, offset: int) -> None:
        self._load()
        if self._begin and (not self.offsets or offset < self.offsets[0]):
            self._load_all()

    def _reach_time(self, at: float) -> None:
        self._load()
        if self._begin and (not self.times or at <= self.times[0]):
            self._load_all()

    def time_at(self, offset: int) -> float:
        """When the byte at ``offset`` had been written: the index says how far the log was at each time, so
        it is the first entry beyond it."""
        self._reach_offset(offset)
        place = bisect_right(self.offsets, offset)
        return self.times[place] if place < len(self.times) else self.end

    def offset_at(self, at: float) -> int:
        """How far the log was at the time ``at``; 0 where nothing tells."""
        self._reach_time(at)
        place = bisect_right(self.times, at) - 1
        return self.offsets[place] if place >= 0 else 0

    def first_at(self, at: float, *, after: bool = False) -> int | None:
        """The first byte whose ``time_at`` is ``at`` or later (``after``: later); None where none is."""
        self._reach_time(at)
        place = bisect_right(self.times, at) if after else bisect_left(self.times, at)
        if place == len(self.times) and (self.end <= at if after else self.end < at):
            return None
        return self.offsets[place - 1] if place else 0


# --- as people type them

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGE = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_CLOCK = re.compile(r"(?:(\d{4})-(\d\d?)-(\d\d?)[ T])?(\d\d?):(\d\d)(?::(\d\d))?")


def parse_age(text: str) -> float:
    """``5m``, ``1h30m``, ``2d``, ``90s`` or ``90`` in seconds.

    Raises:
        ValueError: it is none of these; the message says what is allowed.
    """
    bare = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", bare):
        return float(bare)
    if not _AGE.fullmatch(bare):
        raise ValueError(f"{text!r} is not a time span such as 30s, 5m, 1h30m or 2d")
    return sum(float(n) * _UNITS[u] for n, u in re.findall(r"(\d+(?:\.\d+)?)([smhd])", bare))


def parse_moment(text: str, now: float, end: float) -> float:
    """A time in a log that ends at ``end`` (both Unix times), in local time.

    ``5m``: so long ago, or so long before the end of a log that was finished before that. ``12:30``,
    ``12:30:15``: the last time it was that o'clock before the log's end. ``2026-11-20 12:30``: then.

    Raises:
        ValueError: it is none of these; the message says what is allowed.
    """
    bare = text.strip()
    clock = _CLOCK.fullmatch(bare)
    if clock is None:
        try:
            age = parse_age(bare)
        except ValueError:
            raise ValueError(
                f"{bare!r} is not a time such as 5m (ago), 12:30, 12:30:15 or 2026-11-20 12:30"
            ) from None
        return now - age if now - age <= end else end - age
    year, month, day, hour, minute, second = (int(part) if part else None for part in clock.groups())
    if (hour or 0) > 23 or (minute or 0) > 59 or (second or 0) > 59:
        raise ValueError(f"{bare!r} is not a time of day")
    if year is not None:
        return _local(year, month or 0, day or 0, hour or 0, minute or 0, second or 0, bare)
    reference = time.localtime(min(now, end))
    for days_before in (0, 1):
        at = time.mktime(
            (*reference[:2], reference.tm_mday - days_before, hour or 0, minute or 0, second or 0, 0, 0, -1)
        )
        if at <= min(now, end):
            break
    return at


def _local(year: int, month: int, day: int, hour: int, minute: int, second: int, text: str) -> float:
    from datetime import datetime

    try:
        return datetime(year, month, day, hour, minute, second).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r}: {error}") from None
