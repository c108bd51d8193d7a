"""The time zone of the stamps of a log that state none: containers write UTC, hosts their local time. Pure.

All times here are Unix seconds; a naked time is a stamp without a zone, read as if it were UTC.
"""

from __future__ import annotations

import math
import re
import time
from calendar import timegm
from collections.abc import Iterator, Sequence

import msgspec

from liverl.logs.line_moment import HEAD, stamp_in
from liverl.logs.moments import Resolver

QUARTER = 900  # seconds: the offsets of all zones are multiples of it
HALF_AN_HOUR = 1800  # nearly all are multiples of that
AGREES = 3.0  # seconds between the last stamp of a log and the time of its file
WEST, EAST = -12 * 3600, 14 * 3600  # the zones that there are
SHORTEST = 600.0  # seconds that a log must span for its place among others to tell its zone
LATE = 120.0  # seconds by which a stamp may lie behind the time of its file: two clocks
TOGETHER = 900.0  # seconds between two logs of one run that need not overlap: one is written after the other
_ZONES = {
    "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "BST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "IST": 5.5,
    "SGT": 8, "HKT": 8, "AWST": 8, "JST": 9, "KST": 9, "AEST": 10, "AEDT": 11, "NZST": 12, "NZDT": 13,
    "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10,
}  # fmt: skip
LINES = 60  # lines with a time that are looked at, of each sample
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# What date(1) prints: "Sun Aug 23 18:00:58 PDT 2026", "Sun Aug 23 06:00:58 PM CEST 2026", "Mon 24 Aug 2026 06:00:58 AM
# JST"
_DATE = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:(?P<d1>\d{1,2}) )?(?P<month>[A-Z][a-z]{2}) +(?:(?P<d2>\d{1,2}) )?"
    r"(?:(?P<y1>\d{4}) )?(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d) (?:(?P<half>[AP]M) )?(?P<zone>[A-Z]{3,4}|[+-]\d{4})"
    r"(?: (?P<y2>\d{4}))?\b"
)


class Stamps(msgspec.Struct, frozen=True):
    """What the sampled lines of a log say of its clock. ``first``, ``last``: the naked times, None without one;
    ``zones``: the offsets that lines state, seconds east of UTC, each with the Unix time stated and the next naked time
    behind it, None without one; ``known``: the first and last of the times that state their zone."""

    first: float | None = None
    last: float | None = None
    zones: tuple[tuple[int, float, float | None], ...] = ()
    known: tuple[float, float] | None = None


def stamps(samples: Sequence[str], modified: float | None) -> Stamps:
    """The stamps of the first and last lines of a log. ``modified``: Unix time at which it was last written."""
    resolver = Resolver(modified, 0)
    naked: list[float] = []
    stated: list[tuple[int, float, int]] = []  # offset, Unix time, how many naked stamps came before
    known: list[float] = []
    for line in _lines(samples):
        date = _date(line[:HEAD]) if " 20" in line[:HEAD] else None
        if date is not None:
            stated.append((*date, len(naked)))
            known.append(date[1])
            continue
        moment = stamp_in(line)
        at = None if moment is None else resolver.at(moment)
        if moment is None or at is None:
            continue
        if moment.offset is None:
            naked.append(at)
            continue
        known.append(at)
        if moment.offset:  # UTC is printed by programs whose host has another zone
            stated.append((moment.offset, at, len(naked)))
    zones = tuple((zone, at, naked[place] if place < len(naked) else None) for zone, at, place in stated)
    both = (min(known), max(known)) if known else None
    return Stamps(naked[0] if naked else None, naked[-1] if naked else None, zones, both)


def _lines(samples: Sequence[str]) -> Iterator[str]:
    """The first lines with a time of the first sample, and the last ones of the others."""
    for number, sample in enumerate(samples):
        lines = [line for line in sample.split("\n") if '{"' in line or _CLOCK.search(line, 0, 400)]
        yield from lines[-LINES:] if number else lines[:LINES]


def has_stamp(line: str) -> bool:
    """Whether a line as it stands in a file has a stamp, or is a date as date(1) prints it."""
    return stamp_in(line) is not None or (" 20" in line[:HEAD] and _date(line[:HEAD]) is not None)


def _date(line: str) -> tuple[int, float] | None:
    found = _DATE.search(line)
    if found is None or found["month"] not in _MONTHS:
        return None
    year, day = found["y1"] or found["y2"], found["d1"] or found["d2"]
    zone = found["zone"]
    hours = _ZONES.get(zone)
    if zone[0] in "+-":
        hours = (int(zone[1:3]) + int(zone[3:]) / 60) * (-1 if zone[0] == "-" else 1)
    if year is None or day is None or hours is None:
        return None
    hour = int(found["h"])
    if found["half"]:
        hour = hour % 12 + 12 * (found["half"] == "PM")
    offset = int(hours * 3600)
    parts = (int(year), _MONTHS.index(found["month"]) + 1, int(day), hour, int(found["m"]), int(found["s"]))
    return offset, float(timegm(parts) - offset)


def own_zone(found: Stamps) -> int | None:
    """The zone of the naked stamps of a log that states one somewhere; None if it states none. A launch script may
    print the date of the host before a container prints its own UTC: what is nearer behind that date counts."""
    for zone, at, behind in found.zones:
        if behind is None:
            continue
        gaps = {candidate: behind - candidate - at for candidate in (zone, 0)}
        later = {candidate: gap for candidate, gap in gaps.items() if gap >= -60.0}
        if later:
            return min(later, key=lambda candidate: (later[candidate], candidate != zone))
    return None


def local_zone(at: float) -> int:
    """The zone of this host at a Unix time: seconds east of UTC."""
    return time.localtime(at).tm_gmtoff


def aligned(logs: Sequence[tuple[Stamps, float | None]]) -> list[int | None]:
    """The zone of each log of one run, in order; None where that of this host fits, or nothing tells.

    ``logs``: stamps, and the Unix time at which the file was last written. A log that states a zone has it. Where the
    times of files are those of their last stamps, in the zone of this host or in another one, they tell the zones. Any
    other log has the zone of this host, unless it would then lie beside the others and another offset brings it among
    them: UTC does, or the least shift.
    """
    result: list[int | None] = [own_zone(one) for one, _ in logs]
    by_file = _by_files(logs)
    result = [own if own is not None else told for own, told in zip(result, by_file, strict=True)]
    spans = [_span(one, zone) for (one, _), zone in zip(logs, result, strict=True)]
    fixed = [span for span, zone in zip(spans, result, strict=True) if span is not None and zone is not None]
    fixed += [one.known for one, _ in logs if one.known is not None and one.first is None]
    order = sorted(
        (place for place, span in enumerate(spans) if span is not None and result[place] is None),
        key=lambda place: -_length(spans[place]),
    )
    for place in order:
        one, _ = logs[place]
        span = spans[place]
        assert span is not None
        if fixed and _beside(span, fixed) > TOGETHER:
            result[place] = _fitting(one, fixed)
        fixed.append(_span(one, result[place]) or span)
    return result


def told_zone(one: Stamps, modified: float) -> int | None:
    """The zone of the naked stamps of a log of this host: as it states, or as the time of its file says; None if
    neither tells."""
    zone = own_zone(one)
    return _of_file(one, modified) if zone is None else zone


def span_here(one: Stamps, modified: float) -> tuple[float, float] | None:
    """Unix times of the first and the last stamp of a log that was written on this host and is no copy; None without
    one. ``modified``: Unix time at which the file was last written. A container prints UTC: the zone is the one that
    the log states, or in which its last stamp is that time. No line was written after it: where the stamps lie behind
    it in the zone of this host, they are of the next zone in which they do not."""
    zone = told_zone(one, modified)
    if zone is None and one.last is not None:
        here = local_zone(one.last)
        ahead = one.last - here - modified
        zone = here + math.ceil(ahead / QUARTER) * QUARTER if ahead > LATE else None
    return _span(one, zone) or one.known


def unsure(one: Stamps, zone: int | None) -> float:
    """Seconds by which the last stamp of a log may be later than in the zone of this host: nobody says that it is not
    UTC. ``zone``: as it is known, None if it is not."""
    return max(0.0, local_zone(one.last)) if zone is None and one.last is not None else 0.0


def _by_files(logs: Sequence[tuple[Stamps, float | None]]) -> list[int | None]:
    """The zones by the times of the files, of those logs whose last stamp differs from it by the offset of a zone, to a
    few seconds. All None unless one of them has the zone of this host: the files may be copies."""
    told = [_of_file(one, modified) for one, modified in logs]
    here = [
        modified is not None and zone == local_zone(modified)
        for zone, (_, modified) in zip(told, logs, strict=True)
    ]
    return told if any(here) else [None] * len(told)


def _span(one: Stamps, zone: int | None) -> tuple[float, float] | None:
    if one.first is None or one.last is None:
        return None
    shift = local_zone(one.last) if zone is None else zone
    times = [one.first - shift, one.last - shift, *(one.known or ())]
    return min(times), max(times)


def _length(span: tuple[float, float] | None) -> float:
    return 0.0 if span is None else span[1] - span[0]


def _beside(span: tuple[float, float], others: Sequence[tuple[float, float]]) -> float:
    """Seconds between a span and the nearest of others; 0 where they overlap."""
    return min(max(0.0, span[0] - other[1], other[0] - span[1]) for other in others)


def _of_file(one: Stamps, modified: float | None) -> int | None:
    if one.last is None or modified is None:
        return None
    shift = one.last - modified
    zone = round(shift / HALF_AN_HOUR) * HALF_AN_HOUR
    return zone if WEST <= zone <= EAST and abs(shift - zone) <= AGREES else None


def _fitting(one: Stamps, others: Sequence[tuple[float, float]]) -> int | None:
    """The zone in which a log lies longest beside the others; of several, UTC or the one that is nearest to here."""
    assert one.last is not None
    own = local_zone(one.last)
    zones = range(WEST, EAST + 1, QUARTER) if _length(_span(one, None)) >= SHORTEST else (0,)
    spans = {zone: span for zone in zones if (span := _span(one, zone)) is not None}
    together = {zone: _together(span, others) for zone, span in spans.items()}
    fitting = [zone for zone, seconds in together.items() if seconds is not None]
    return min(
        fitting,
        key=lambda zone: (
            -((together[zone] or 0.0) // QUARTER),
            zone != 0,
            zone % HALF_AN_HOUR != 0,
            zone % 3600 != 0,
            abs(zone - own),
        ),
        default=None,
    )


def _together(span: tuple[float, float], others: Sequence[tuple[float, float]]) -> float | None:
    """Seconds that a span has in common with the one of others that has most; None if it has none with any."""
    common = max(min(span[1], other[1]) - max(span[0], other[0]) for other in others)
    return common if common >= 0.0 else None
