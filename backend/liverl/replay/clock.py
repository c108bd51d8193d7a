"""The recorded clock, shifted to the present: a replay shows times as if the run were going on now.

Stamps in the files are rewritten with their length kept, so that a file's recorded sizes stay right.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

_NEAR = 7 * 86400.0  # seconds from the recording within which a number is taken for a time
_STAMP = re.compile(
    rb"(?<![\w.])(?P<unix>1\d{9})(?P<milli>\d{3})?(?P<fraction>\.\d{1,9})?(?![\w.])"
    rb"|(?<!\d)(?:(?P<year>20\d\d)-)?(?P<day>[01]\d-[0-3]\d)(?P<between>[T ])(?P<time>[0-2]\d:[0-5]\d:[0-5]\d)(?!\d)"
    rb"(?P<rest>(?:[.,]\d{1,9})?)(?P<zone>Z|[+-]\d\d:?\d\d)?"
)


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
        year = datetime.fromtimestamp(self.begin, UTC).year
        return _STAMP.sub(self._shifter(year), data)

    def _shifter(self, year: int) -> Callable[[re.Match[bytes]], bytes]:
        def shifted(match: re.Match[bytes]) -> bytes:
            text = match[0]
            if match["unix"] is not None:
                return self._number(match)
            try:
                return self._stamp(match, year)
            except ValueError:  # such as 02-31
                return text

        return shifted

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

    def _stamp(self, match: re.Match[bytes], year: int) -> bytes:
        date = match["year"] or b"%d" % year
        at = datetime.strptime(
            f"{date.decode()}-{match['day'].decode()} {match['time'].decode()} +0000", "%Y-%m-%d %H:%M:%S %z"
        ).timestamp()
        zone = match["zone"]
        offset = self.utc_offset if zone is None else _offset(zone)
        unix = at - offset
        if abs(unix - self.begin) > _NEAR:
            return match[0]
        shown = int(self.shown(unix))
        if zone is None:  # readers take it for local time
            offset = time.localtime(shown).tm_gmtoff
        moment = datetime.fromtimestamp(shown + offset, UTC)
        new = moment.strftime(f"{'%Y-' if match['year'] else ''}%m-%d{match['between'].decode()}%H:%M:%S")
        return new.encode() + match["rest"] + (zone or b"")


def _offset(zone: bytes) -> float:
    """Seconds east of UTC of ``Z``, ``+02:00`` or ``-0530``."""
    if zone == b"Z":
        return 0.0
    digits = zone[1:].replace(b":", b"")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return float(seconds if zone[:1] == b"+" else -seconds)
