"""When the lines that a verdict quotes were written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from liverl.logs.line_moment import stamp_in
from liverl.logs.moments import Resolver
from liverl.model import Evidence
from liverl.offline.doctor.logs import Log
from liverl.util.regular_file import open_regular

BEFORE, AFTER = 128 << 10, 4 << 10  # bytes around a line in which a stamp is looked for
LINES = 400  # before it


class When(NamedTuple):
    """``at``: Unix seconds; ``how``: by the stamp of the line itself, else by the nearest one of its log. ``clock``:
    the log states the time of the day only, ``hour``; ``file``: it states no time. Of these two ``at`` is that of the
    file, which may be a copy, None if it is none: when the line was written is not known. ``latest``: of ``clock``, the
    last time before that of the file at which it was that hour."""

    at: float | None
    how: Literal["stamp", "near", "clock", "file"]
    hour: str = ""
    latest: float | None = None

    @property
    def line(self) -> float | None:
        """When the line was written, Unix seconds; None if its log does not tell."""
        return None if self.how in ("clock", "file") else self.at


def moments(evidence: Iterable[Evidence], logs: Mapping[str, Log]) -> dict[tuple[str, int], When]:
    """When each line was written that is quoted, by log and byte. What cannot be read has no time."""
    found: dict[tuple[str, int], When] = {}
    for one in evidence:
        log = logs.get(one.log or "")
        if log is None or one.offset is None or (log.path, one.offset) in found:
            continue
        when = moment(log, one.offset)
        if when is not None:
            found[log.path, one.offset] = when
    return found


def moment(log: Log, offset: int) -> When | None:
    """When the line at ``offset`` was written; None if the log is gone."""
    try:
        fd = open_regular(log.path)
    except OSError:
        return None
    try:
        begin = max(0, offset - BEFORE)
        before = os.pread(fd, offset - begin, begin)
        after = os.pread(fd, AFTER, offset)
    finally:
        os.close(fd)
    own, _, behind = after.partition(b"\n")
    resolver = Resolver(log.modified, log.zone)
    near: _Stamp | None = None
    dated = False
    for line in before.split(b"\n")[-LINES:-1]:
        stamp = _stamp(line, resolver)
        near = stamp or near
        dated = dated or (stamp is not None and stamp.dated)
    found = _stamp(own, resolver)
    if found is not None:
        return _when(found, dated, "stamp", log)
    if near is None:
        later = (_stamp(line, resolver) for line in behind.split(b"\n"))
        near = next((one for one in later if one is not None), None)
    return When(log.modified, "file") if near is None else _when(near, dated, "near", log)


class _Stamp(NamedTuple):
    """``dated``: whether it states its day."""

    at: float
    dated: bool
    hour: str


def _when(stamp: _Stamp, dated: bool, how: Literal["stamp", "near"], log: Log) -> When:
    if dated or stamp.dated:
        return When(stamp.at, how)
    return When(log.modified, "clock", stamp.hour, stamp.at)


def _stamp(line: bytes, resolver: Resolver) -> _Stamp | None:
    moment = stamp_in(line.decode("utf-8", "replace"))
    at = None if moment is None else resolver.at(moment)
    if moment is None or at is None:
        return None
    return _Stamp(at, bool(moment.month), f"{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}")
