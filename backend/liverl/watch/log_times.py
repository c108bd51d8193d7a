"""When logs were last written to: by their own time stamps, until one is seen to grow. A copy has the time of the copy,
and its process is long gone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from liverl.logs.written import last_written
from liverl.logs.zones import Stamps, span_here, stamps, told_zone, unsure
from liverl.util.regular_file import open_binary

COPIED_S = 10.0  # seconds within which cp(1) has copied the logs of a run
ENDS = 64 << 10  # bytes at each end of a log that are searched for a stamp


class Ends(NamedTuple):
    """Of a log: the stamps at its ends, and its last bytes."""

    stamps: Stamps = Stamps()
    tail: str = ""


class _Known(NamedTuple):
    """``size``: at the last look; ``modified``: of the file then; ``written``: by its stamps at the first look, None
    once it was seen to grow; ``last``: the time of its last stamp, None without one."""

    size: int
    modified: float
    written: float | None
    last: float | None = None

    @property
    def copied(self) -> bool:
        """Whether its own stamps say that the file is a copy."""
        return self.written is not None and self.written < self.modified


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
            first = _first_look(log, size, modified)
            with self._lock:
                known = self._known.setdefault(log, first)
        if known.size != size:
            known = _Known(size, modified, None)
            with self._lock:
                self._known[log] = known
        return size, modified if known.written is None else known.written

    def together(self, logs: Iterable[Path]) -> None:
        """Look at the logs of one run: what was made at the same time as a file that is a copy is one, too, and was
        last written to at its own last stamp, as far as that is known."""
        logs = [log for log in logs if self(log)[0]]
        with self._lock:
            known = {log: one for log in logs if (one := self._known.get(log)) is not None}
            copies = [one.modified for one in known.values() if one.copied]
            for log, one in known.items():
                beside = any(abs(at - one.modified) <= COPIED_S for at in copies)
                if beside and one.written == one.modified and one.last is not None:
                    self._known[log] = one._replace(written=min(one.last, one.modified))


def _first_look(log: Path, size: int, modified: float) -> _Known:
    found = ends_of(log, size, modified)
    span = span_here(found.stamps, modified)
    zone = told_zone(found.stamps, modified)
    last = None if span is None else span[1]
    written = last_written(found.tail, last, modified, unsure(found.stamps, zone))
    return _Known(size, modified, written, last)


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
