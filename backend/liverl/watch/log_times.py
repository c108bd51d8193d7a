"""When logs were last written to: by their own time stamps, until one is seen to grow. A copy has the time of the copy,
and its process is long gone."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

from liverl.logs.written import last_written
from liverl.logs.zones import Stamps, span_here, stamps, told_zone, unsure
from liverl.util.regular_file import open_binary

ENDS = 64 << 10  # bytes at each end of a log that are searched for a stamp


class Ends(NamedTuple):
    """Of a log: the stamps at its ends, and its last bytes."""

    stamps: Stamps = Stamps()
    tail: str = ""


class _Known(NamedTuple):
    """``size``: at the last look; ``written``: by its stamps at the first one, None once it was seen to grow."""

    size: int
    written: float | None


class LogTimes:
    """Any thread may call it."""

    def __init__(self) -> None:
        self._known: dict[Path, _Known] = {}
        self._lock = threading.Lock()

    def __call__(self, log: Path) -> tuple[int, float]:
        """Size in bytes of a log, and the Unix time at which it was last written to; zeros if it is gone."""
        try:
            status = os.stat(log)
        except OSError:
            return 0, 0.0
        size, modified = status.st_size, status.st_mtime
        with self._lock:
            known = self._known.get(log)
        if known is None:  # read without the lock: storage may be slow
            first = _Known(size, _written(log, size, modified))
            with self._lock:
                known = self._known.setdefault(log, first)
        if known.size != size:
            known = _Known(size, None)
            with self._lock:
                self._known[log] = known
        return size, modified if known.written is None else known.written


def _written(log: Path, size: int, modified: float) -> float:
    found = ends_of(log, size, modified)
    span = span_here(found.stamps, modified)
    zone = told_zone(found.stamps, modified)
    last = None if span is None else span[1]
    return last_written(found.tail, last, modified, unsure(found.stamps, zone))


def ends_of(log: Path, size: int, modified: float) -> Ends:
    """Both ends of a log; none if it cannot be read."""
    try:
        with open_binary(log) as file:
            head = file.read(ENDS).decode("utf-8", "replace")
            file.seek(max(0, size - ENDS))
            tail = file.read(ENDS).decode("utf-8", "replace")
    except OSError:
        return Ends()  # removed meanwhile; the survey tells of one that cannot be read
    return Ends(stamps([head, tail], modified), tail)
