"""When the lines that a verdict quotes were written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from liverl.logs.moments import Resolver
from liverl.logs.zones import stamp_in
from liverl.model import Evidence
from liverl.offline.doctor.logs import Log
from liverl.util.regular_file import open_regular

BEFORE, AFTER = 128 << 10, 4 << 10  # bytes around a line in which a stamp is looked for
LINES = 400  # before it


class When(NamedTuple):
    """``at``: Unix seconds; ``how``: by the stamp of the line itself, else by the nearest one of its log or, in a log
    without stamps, by its file: the line was written then at the latest."""

    at: float
    how: Literal["stamp", "near", "file"]


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
    near: float | None = None
    for line in before.split(b"\n")[-LINES:-1]:
        near = _at(line, resolver) or near
    at = _at(own, resolver)
    if at is not None:
        return When(at, "stamp")
    if near is None:
        later = (_at(line, resolver) for line in behind.split(b"\n"))
        near = next((one for one in later if one is not None), None)
    return When(log.over, "file") if near is None else When(near, "near")


def _at(line: bytes, resolver: Resolver) -> float | None:
    stamp = stamp_in(line.decode("utf-8", "replace"))
    return None if stamp is None else resolver.at(stamp)
