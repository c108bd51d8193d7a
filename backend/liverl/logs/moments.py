"""The time that a log line states, as written and as Unix time: in a stamp the date, the year or the zone may be
missing. Pure."""

from __future__ import annotations

import re
import time
from calendar import timegm
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

_DAY = 86_400.0
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}
_AHEAD = 3600.0  # seconds that a stamp may lie after the modification time: clocks of two hosts differ

# 2025-07-03T14:20:51.565Z, 2026-11-21 00:02:09,570, 2026/11/21 00:02:09+02:00
DATED = (
    r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    r"(?: ?(?P<zone>Z|[+-]\d\d:?\d\d)(?![\d:]))?"
)


class Moment(NamedTuple):
    """A stamp as written. ``year`` and ``month`` are 0 where it does not state them; ``offset``: seconds of its zone
    east of UTC, None for local time."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    fraction: float = 0.0
    offset: int | None = None


def moment_of(match: re.Match[str]) -> Moment | None:
    """Return the stamp in the named groups of a match; None if it has none or states no possible time."""
    parts = match.groupdict()
    if not parts.get("hour"):
        return None
    month_day = parts.get("monthday") or ""  # torch writes January as 1: "E321" is 3-21
    month = (
        int(month_day[:-2] or 0) or int(parts.get("month") or 0) or _MONTHS.get(parts.get("name") or "", 0)
    )
    day = int(month_day[-2:] or 0) or int(parts.get("day") or 0)
    hour, minute, second = int(parts["hour"]), int(parts["minute"]), int(parts["second"])
    if hour > 23 or minute > 59 or second > 60 or month > 12 or day > 31 or bool(month) != bool(day):
        return None
    fraction = float(f"0.{parts.get('fraction') or 0}")
    return Moment(
        int(parts.get("year") or 0), month, day, hour, minute, second, fraction, _offset(parts.get("zone"))
    )


def _offset(zone: str | None) -> int | None:
    if not zone:
        return None
    if zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds


class Resolver:
    """Turns the stamps of one log, in their order, into Unix time.

    A missing year is that of the nearest dated record before, else the last one that does not lie after the file's
    modification time; a missing date likewise. Without either of both the time stays unknown.
    ``above``: finds the last stamp with a date, or (True) with a year, in lines just above that were passed over; it is
    asked once, and only where something is missing.
    """

    def __init__(self, modified: float | None = None, zone: int | None = None) -> None:
        """``modified``: the Unix time at which the log was last written; ``zone``: of stamps that state none, seconds
        east of UTC, None for that of this host."""
        self._modified = modified
        self._zone = zone
        self._last: float | None = None
        self.above: Callable[[bool], Moment | None] | None = None
        # Of the last stamp without a year: what it says to the minute, and when that minute began
        self._minute: tuple[tuple[int | None, ...], float] | None = None

    def at(self, moment: Moment) -> float | None:
        """Return the Unix time of the next stamp."""
        if moment.year:
            self.above = None
        return self._next(moment)

    def _next(self, moment: Moment) -> float | None:
        if self._zone is not None and moment.offset is None:
            moment = moment._replace(offset=self._zone)
        found = self._resolve(moment)
        if found is not None:
            self._last = found
        return found

    def _look_above(self, with_year: bool) -> None:
        find, self.above = self.above, None
        dated = find(with_year) if find is not None else None
        if dated is not None:
            self._next(dated)

    def _resolve(self, moment: Moment) -> float | None:
        if moment.year:
            self._minute = None
            return _seconds(moment)
        said = (*moment[1:5], moment.offset)
        if self._minute is not None and said == self._minute[0]:  # the year nearby is that of the last stamp
            return self._minute[1] + moment.second + moment.fraction
        if self.above is not None:
            self._look_above(bool(moment.month))
        found = self._nearest(moment)
        self._minute = None
        if found is not None and moment.month:
            self._minute = said, float(round(found - moment.second - moment.fraction))
        return found

    def _nearest(self, moment: Moment) -> float | None:
        if self._last is None and self._modified is None:
            return None
        nearby = self._last if self._last is not None else self._modified
        assert nearby is not None
        now = time.localtime(nearby)
        if moment.month:
            options = [_seconds(moment._replace(year=now.tm_year + more)) for more in (-1, 0, 1)]
        else:
            today = moment._replace(year=now.tm_year, month=now.tm_mon, day=now.tm_mday)
            noon = _seconds(today)
            options = [None if noon is None else noon + more * _DAY for more in (-1, 0, 1)]
        known = [option for option in options if option is not None]
        if self._last is None:
            known = [option for option in known if option <= nearby + _AHEAD]
            return max(known, default=None)
        return min(known, key=lambda option: abs(option - nearby), default=None)


def _seconds(moment: Moment) -> float | None:
    base = _start_of_minute(*moment[:5], moment.offset)
    return None if base is None else base + moment.second + moment.fraction


@lru_cache(maxsize=1024)
def _start_of_minute(
    year: int, month: int, day: int, hour: int, minute: int, offset: int | None
) -> float | None:
    try:
        if offset is not None:
            return float(timegm((year, month, day, hour, minute, 0)) - offset)
        return time.mktime((year, month, day, hour, minute, 0, 0, 0, -1))
    except (ValueError, OverflowError):
        return None
