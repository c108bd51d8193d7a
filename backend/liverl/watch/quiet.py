"""Finds logs that have not grown for unusually long. Polls of health checks and scrapers do not count as growth."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

from liverl.logs.no_work import work_in
from liverl.logs.records import RecordReader
from liverl.util.regular_file import open_binary
from liverl.watch.log_times import LogTimes
from liverl.watch.scene import stat_of

# An estimate: most trainers print within five minutes, and five of its own gaps cover one that does not.
LEAST_S, GAPS = 300.0, 5.0
TAIL = 64 << 10  # bytes at the end of a log that are read for its pace
AGAIN_S = 10.0  # seconds between two looks at a log that grows
FEWEST = 5  # gaps of which there is a median
KEPT = 64  # times at which a log was seen to grow


class Pace(msgspec.Struct, frozen=True):
    """``since``: when the log last grew by more than polls, Unix seconds; ``usual``: the median of the seconds between
    two of its lines, 0.0 if that is not known; ``polled``: polls were written since."""

    since: float
    usual: float = 0.0
    polled: bool = False

    @property
    def allowed(self) -> float:
        """Seconds of silence that are normal for this log."""
        return max(LEAST_S, GAPS * self.usual)

    def quiet(self, now: float) -> float | None:
        """Seconds since the log last grew; None while they do not exceed ``allowed``."""
        return now - self.since if now - self.since > self.allowed else None


class Paces:
    """The pace of logs over time. One thread at a time."""

    def __init__(self, times: LogTimes | None = None) -> None:
        self._times = times or LogTimes()
        self._known: dict[Path, tuple[int, float, Pace]] = {}  # log -> size, when it was read, its pace
        self._grown: dict[Path, deque[float]] = {}

    def look(self, log: Path, now: float) -> Pace | None:
        """The pace of ``log``; None if it is gone, or empty."""
        size, modified = self._times(log)
        if not size:
            return None
        known = self._known.get(log)
        if known is not None and known[0] == size:
            return known[2]
        grown = self._grown.setdefault(log, deque(maxlen=KEPT))
        if known is not None:
            grown.append(modified)
            if 0 <= now - known[1] < AGAIN_S and not known[2].polled:
                return msgspec.structs.replace(known[2], since=modified)
        pace = pace_of(_tail(log, size), modified)
        pace = msgspec.structs.replace(pace, usual=max(pace.usual, _median([*grown])))
        self._known[log] = (size, now, pace)
        return pace


def pace_at(log: Path) -> Pace | None:
    """The pace of ``log`` by its last lines; None if it is gone, or empty."""
    size, modified = stat_of(log)
    return pace_of(_tail(log, size), modified) if size else None


def pace_of(tail: bytes, modified: float) -> Pace:
    """The pace of a log whose last bytes are ``tail``. Pure."""
    reader = RecordReader(modified)
    records = [*reader.feed(tail), *reader.end()]
    polls, beat = [], ""
    for record in records:
        work, beat = work_in((record.text,), beat)
        polls.append(not work)
    times = [
        record.at for record, poll in zip(records, polls, strict=True) if record.at is not None and not poll
    ]
    newest = max((record.at for record in records if record.at is not None), default=None)
    since, polled = modified, bool(polls) and polls[-1]
    if polled and newest is not None and times:
        since = modified - max(0.0, newest - max(times))
    return Pace(since, _median(times), polled and since < modified)


def _median(times: list[float]) -> float:
    gaps = [later - sooner for sooner, later in pairwise(sorted(set(times)))]
    return median(gaps) if len(gaps) >= FEWEST else 0.0


def _tail(log: Path, size: int) -> bytes:
    try:
        with open_binary(log) as file:
            file.seek(max(0, size - TAIL))
            data = file.read(TAIL)
    except OSError:
        return b""
    return data[data.find(b"\n") + 1 :] if size > TAIL else data
