"""Finds the last date in lines of a log that were passed over, when a stamp below them states none. Pure."""

from __future__ import annotations

from liverl.logs.line_moment import stamp_in
from liverl.logs.moments import Moment
from liverl.logs.text import last_state
from liverl.util.late_pattern import late_pattern

# Bytes that are looked through for a date, and once there were none in MISSES times
REACH, NEAR = 1 << 16, 1 << 12
MISSES = 8
LONGEST = 1 << 15  # bytes of a line that are read
# What a line with a date has. The first two begin with some bytes that are quick to find
_YEAR = late_pattern(rb"20\d\d(?:[-/]\d\d[-/]\d\d[T ]|\])")
_SECONDS = late_pattern(rb'": ?1\d{9}')  # since 1970, in JSON
_WITHOUT_YEAR = late_pattern(rb"\d[-/]\d\d[T ]\d\d:|[A-Z][a-z]{2} [ \d]\d \d\d:|[DIWEF]\d{3,4} \d\d:")


class Above:
    """The lines that were passed over last. Each byte is looked at once at most."""

    def __init__(self) -> None:
        self._data = b""
        self._end = self._seen = 0
        self._before: tuple[bytes, int] | None = None  # likewise, of the block before
        self._misses = 0

    def passed(self, data: bytes, end: int) -> None:
        """The lines just above byte ``end`` of ``data``, a block of the log, were passed over."""
        if data is not self._data:
            self._before = (self._data[-REACH:], self._seen - max(0, len(self._data) - REACH))
            self._data, self._seen = data, 0
        self._end = end

    def dated(self, with_year: bool) -> Moment | None:
        """The last stamp with a date in them, or with a year; None without any, or if it was told before."""
        reach = NEAR if self._misses >= MISSES else REACH
        first = max(0, self._seen, self._end - reach)
        if first and first > self._seen:  # in the middle of a line
            first = self._data.find(b"\n", first, self._end) + 1 or self._end
        found = _last_date(self._data[first : self._end], with_year)
        if found is None and self._before is not None and self._end < reach:
            data, seen = self._before
            found = _last_date(data[max(0, seen, len(data) - reach + self._end) :], with_year)
        self._before, self._seen = None, self._end
        self._misses = self._misses + 1 if found is None else 0
        return found


def _last_date(data: bytes, with_year: bool) -> Moment | None:
    if not _may_have(data, with_year):
        return None
    for raw in reversed(data.split(b"\n")):
        if not _may_have(raw, with_year):
            continue
        moment = stamp_in(last_state(raw[:LONGEST]).decode("utf-8", "replace"))
        if moment is not None and (moment.year if with_year else moment.month):
            return moment
    return None


def _may_have(data: bytes, with_year: bool) -> bool:
    return bool(_YEAR.search(data) or _SECONDS.search(data) or (not with_year and _WITHOUT_YEAR.search(data)))
