"""The recorded clock, shifted to the present: a replay shows times as if the run were going on now.

Stamps in the files are rewritten with their length kept, so that a file's recorded sizes stay right.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import NamedTuple

_NEAR = 7 * 86400.0  # seconds from the recording within which a number is taken for a time
_SAME_HOURS = 2 * 3600.0  # the same for a time of day, which may be a duration
# Each alternative begins with a digit, and looks behind it only then: so the search skips what is no digit.
_STAMP = re.compile(
    rb"(?P<unix>1(?<![\w.]1)\d{9})(?P<milli>\d{3})?(?P<fraction>\.\d{1,9})?(?![\w.])"
    rb"|(?P<stamp>(?:2(?<!\d2)0\d\d-[01]\d-|[01](?<!\d[01])\d-|[01](?<=\b[DIWEF][01])\d)"
    rb"[0-3]\d[T ][0-2]\d:[0-5]\d:[0-5]\d)(?!\d)"
    rb"(?P<rest>(?:[.,]\d{1,9})?)(?P<zone>Z|[+-]\d\d:?\d\d)?"
    # a time of day that begins a line, as LiteLLM's: 19:01:21 - LiteLLM Proxy:WARNING
    rb"|(?P<clock>[0-2](?<![^\n][0-2])\d:[0-5]\d:[0-5]\d)(?=[ ,.]\D|[,.]\d)"
)
_DAY = 86400.0


class ReplayClock(NamedTuple):
    """Recorded Unix times to shown ones. What was recorded before ``begin`` is shifted to end at ``shown_begin``; what
    comes after it passes ``speed`` times as fast. ``utc_offset``: of recorded stamps without a zone, seconds."""

    begin: float
    shown_begin: float
    speed: float = 1.0
    utc_offset: float = 0.0

    def shown(self, at: float) -> float:
        """The Unix time at which what happened at ``at`` is shown."""
        after = at - self.begin
        return self.shown_begin + (after / self.speed if after > 0.0 else after)

    def recorded(self, now: float) -> float:
        """The recorded Unix time that is shown at ``now``."""
        after = now - self.shown_begin
        return self.begin + (after * self.speed if after > 0.0 else after)

    def shift(self, data: bytes) -> bytes:
        """``data`` with its stamps as they are shown; its length does not change."""
        known: dict[tuple[bytes, bytes | None], bytes] = {}

        def shifted(match: re.Match[bytes]) -> bytes:
            if match["unix"] is not None:
                return self._number(match)
            if match["clock"] is not None:
                return self._time_of_day(match["clock"])
            stamp, zone = match["stamp"], match["zone"]
            new = known.get((stamp, zone))
            if new is None:
                try:
                    new = self._stamp(stamp, zone)
                except ValueError:  # such as 02-31
                    new = stamp
                known[stamp, zone] = new
            return new + match["rest"] + (zone or b"")

        return _STAMP.sub(shifted, data)

    def _number(self, match: re.Match[bytes]) -> bytes:
        text, milli, fraction = match[0], match["milli"], match["fraction"]
        at = float(match["unix"] + (b"." + milli if milli else b"") + (fraction or b"" if not milli else b""))
        if abs(at - self.begin) > _NEAR:
            return text
        shown = self.shown(at)
        if milli:
            new = f"{int(shown * 1000)}".encode() + (fraction or b"")
        elif fraction:
            new = f"{shown:.{len(fraction) - 1}f}".encode()
        else:
            new = f"{int(shown)}".encode()
        return new if len(new) == len(text) else text

    def _time_of_day(self, clock: bytes) -> bytes:
        hours, minutes, seconds = map(int, clock.split(b":"))
        after_midnight = hours * 3600 + minutes * 60 + seconds
        midnight = self.begin - (self.begin + self.utc_offset) % _DAY
        at = min(
            (midnight + after_midnight + days * _DAY for days in (-1, 0, 1)),
            key=lambda at: abs(at - self.begin),
        )
        if hours > 23 or abs(at - self.begin) > _SAME_HOURS:
            return clock
        return time.strftime("%H:%M:%S", time.localtime(int(self.shown(at)))).encode()

    def _stamp(self, stamp: bytes, zone: bytes | None) -> bytes:
        text = stamp.decode()
        day, separator, clock = text[:-9], text[-9], text[-8:]
        year = str(datetime.fromtimestamp(self.begin, UTC).year)
        full = {10: day, 5: f"{year}-{day}", 4: f"{year}-{day[:2]}-{day[2:]}"}[len(day)]
        offset = self.utc_offset if zone is None else _offset(zone)
        at = datetime.fromisoformat(f"{full}T{clock}+00:00").timestamp() - offset
        if abs(at - self.begin) > _NEAR:
            return stamp
        shown = int(self.shown(at))
        if zone is None:  # readers take it for local time
            offset = time.localtime(shown).tm_gmtoff
        new = datetime.fromtimestamp(shown + offset, UTC).isoformat(separator)[:19]
        if len(day) == 4:  # as in W1123 00:39:07
            new = new.replace("-", "")
        return new[-len(text) :].encode()


def _offset(zone: bytes) -> float:
    """Seconds east of UTC of ``Z``, ``+02:00`` or ``-0530``."""
    if zone == b"Z":
        return 0.0
    digits = zone[1:].replace(b":", b"")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return float(seconds if zone[:1] == b"+" else -seconds)
