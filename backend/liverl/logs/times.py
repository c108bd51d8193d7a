"""When each byte of a log was written; parsing of times typed by users."""

from __future__ import annotations

import os
import re
import time
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from liverl.util.regular_file import open_regular

TAIL = 16 << 10  # bytes at the end of an index that are read first: the last minutes
MOST = 64 << 20  # maximum bytes read of an index, from its end
LATEST = 1e11  # Unix seconds; later times are no dates
ENTRIES = 1 << 14  # entries in memory: four hours at one per second; longer indexes are thinned out


class TimeIndex:
    """Reads ``<log>.idx``: lines "offset unix_time", about one per second while the log grows.

    Without an index the file's modification time is used for every line. Read on demand, and no more than
    needed. ``refresh`` reads appended entries; ``note`` adds our own observations beyond them.
    """

    def __init__(self, log: Path) -> None:
        self.path = log.with_name(log.name + ".idx")
        self.offsets: array[int] = array("q")
        self.times: array[float] = array("d")
        self._indexed = 0  # number of entries that come from the file
        self._begin: int | None = None  # offset in the index file from which it has been read
        self._end = 0
        self._rest = b""
        try:
            self.modified = os.stat(log).st_mtime
        except OSError:
            self.modified = 0.0

    @property
    def known(self) -> bool:
        """Whether there is an index."""
        self._load()
        return self._indexed > 0

    def _load(self) -> None:
        """Read the end of the index, unless something was read already."""
        if self._begin is None:
            self._begin, data = self._tail(TAIL)
            self._end = self._begin + len(data)
            self._take(data, cut=self._begin > 0)

    def _load_all(self) -> None:
        """Read the index from its start, thinned out if it is long."""
        noted = list(zip(self.offsets, self.times, strict=True))[self._indexed :]
        del self.offsets[:], self.times[:]
        begin, data = self._tail(MOST)
        self._begin, self._end, self._indexed = 0, begin + len(data), 0
        self._take(data, cut=begin > 0)
        for offset, at in noted:
            self._add(offset, at)

    def _tail(self, most: int) -> tuple[int, bytes]:
        """Return (start offset, data) of the end of the index; empty if it cannot be read."""
        try:
            fd = open_regular(self.path)
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
        """Read entries appended to the index; a missing or unreadable one has none."""
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
        """Parse entries; ``cut``: the first one is incomplete."""
        *rows, self._rest = (self._rest + data).split(b"\n")
        if cut:
            del rows[:1]
        if len(rows) > ENTRIES // 2:
            rows = rows[:: -(-len(rows) // (ENTRIES // 2))]
        if rows:  # they are more precise than our own observations
            del self.offsets[self._indexed :], self.times[self._indexed :]
        for row in rows:
            offset, _, at = row.partition(b" ")
            try:
                place, when = int(offset), float(at)
            except ValueError:
                continue  # incomplete after a crash
            if place >= 0 and 0.0 <= when < LATEST:  # else no index of ours
                self._add(place, when)
        if rows:
            self._indexed = len(self.offsets)

    def note(self, size: int, now: float) -> None:
        """Record that the log has ``size`` bytes at Unix time ``now``."""
        self._load()
        self._add(size, now)

    def reset(self) -> None:
        """Discard all entries: the log was truncated and they describe its old content."""
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
            ):  # drop every other entry: its bytes count as written slightly later
                self.offsets, self.times = self.offsets[1::2], self.times[1::2]
                self._indexed //= 2

    @property
    def end(self) -> float:
        """Return the Unix time at which the newest byte was written."""
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
        """Return the Unix time by which the byte at ``offset`` had been written: the first entry beyond it."""
        self._reach_offset(offset)
        place = bisect_right(self.offsets, offset)
        return self.times[place] if place < len(self.times) else self.end

    def tells(self, offset: int) -> bool:
        """Whether the index tells when the byte at ``offset`` was written, and not only by when: of what stood in a log
        before anybody looked nobody knows."""
        return self.known and self.around(offset)[1] != 0.0

    @property
    def began(self) -> float | None:
        """Unix time of the first entry; None if it is not known."""
        return self.times[0] or None if self.known and self.times else None

    def around(self, offset: int) -> tuple[int, float | None, int | None, float]:
        """(begin, Unix time, end, Unix time) of the piece of the log that has the byte at ``offset``: its begin had
        been written by the first time (None: not known), its end by the second (None: it is the newest piece)."""
        self._reach_offset(offset)
        place = bisect_right(self.offsets, offset)
        begin, before = (self.offsets[place - 1], self.times[place - 1]) if place else (0, None)
        if place == len(self.times):
            return begin, before, None, self.end
        return begin, before, self.offsets[place], self.times[place]

    def offset_at(self, at: float) -> int:
        """Return the size of the log at Unix time ``at``; 0 if unknown."""
        self._reach_time(at)
        place = bisect_right(self.times, at) - 1
        return self.offsets[place] if place >= 0 else 0

    def first_at(self, at: float, *, after: bool = False) -> int | None:
        """Return the first byte whose ``time_at`` is ``at`` or later (``after``: later); None if there is
        none."""
        self._reach_time(at)
        place = bisect_right(self.times, at) if after else bisect_left(self.times, at)
        if place == len(self.times) and (self.end <= at if after else self.end < at):
            return None
        return self.offsets[place - 1] if place else 0


# --- times typed by users

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGE = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_CLOCK = re.compile(r"(?:(\d{4})-(\d\d?)-(\d\d?)[ T])?(\d\d?):(\d\d)(?::(\d\d))?")


def parse_age(text: str) -> float:
    """Convert ``5m``, ``1h30m``, ``2d``, ``90s`` or ``90`` to seconds.

    Raises:
        ValueError: none of these; the message lists what is allowed.
    """
    bare = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", bare):
        return float(bare)
    if not _AGE.fullmatch(bare):
        raise ValueError(f"{text!r} is not a time span such as 30s, 5m, 1h30m or 2d")
    return sum(float(n) * _UNITS[u] for n, u in re.findall(r"(\d+(?:\.\d+)?)([smhd])", bare))


def parse_moment(text: str, now: float, end: float) -> float:
    """Convert a local time typed by a user to Unix time, for a log that ends at ``end`` (Unix time).

    ``5m``: that long ago, or before the end of a log that is already finished. ``12:30``, ``12:30:15``: the
    last such time before the end of the log. ``2026-11-20 12:30``: that moment.

    Raises:
        ValueError: none of these; the message lists what is allowed.
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
