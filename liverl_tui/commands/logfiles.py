"""The log files of an attempt: which there are, what their time index says, their last lines."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from liverl.rundir import RunDir
from liverl_tui.commands.loglines import LineAssembler

BLOCK = 1 << 18
TAIL_BYTES = (
    16 << 20
)  # how far back the last lines are looked for; enough for 2,000 lines at the length limit

_LOG = re.compile(r"(?P<service>.+)\.(?P<generation>\d+)\.log")


@dataclass(frozen=True)
class LogFile:
    service: str
    generation: int
    path: Path


@dataclass(frozen=True)
class Line:
    at: float  # Unix seconds, as well as the index or the file's modification time tells
    service: str
    text: str


def log_files(run: RunDir, services: tuple[str, ...] = ()) -> list[LogFile]:
    """The newest attempt's logs, all generations, oldest first within a service."""
    attempts = run.attempts()
    if not attempts:
        return []
    folder = run.logs(attempts[-1])
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [
        LogFile(m["service"], int(m["generation"]), folder / n)
        for n in names
        if (m := _LOG.fullmatch(n)) is not None
    ]
    wanted = [f for f in found if not services or f.service in services]
    return sorted(wanted, key=lambda f: (f.service, f.generation))


class TimeIndex:
    """``<log>.idx``: lines "offset unix_time", about one a second while the log grows. Where there is none,
    the file's modification time stands for every line."""

    def __init__(self, log: Path) -> None:
        self.offsets: list[int] = []
        self.times: list[float] = []
        try:
            self.modified = os.stat(log).st_mtime
        except OSError:
            self.modified = 0.0
        try:
            text = log.with_name(log.name + ".idx").read_text("ascii", "replace")
        except OSError:
            return
        for row in text.splitlines():
            offset, _, at = row.partition(" ")
            try:
                pair = int(offset), float(at)
            except ValueError:
                continue  # a row cut short by a crash
            if not self.offsets or (pair[0] >= self.offsets[-1] and pair[1] >= self.times[-1]):
                self.offsets.append(pair[0])
                self.times.append(pair[1])

    def time_at(self, offset: int) -> float:
        """When the byte at ``offset`` had been written: the index says how far the log was at each time, so
        it is the first entry beyond it."""
        place = bisect_right(self.offsets, offset)
        return self.times[place] if place < len(self.times) else max(self.modified, *self.times[-1:], 0.0)

    def offset_at(self, at: float) -> int:
        """How far the log was at the time ``at``; 0 where nothing tells."""
        place = bisect_right(self.times, at) - 1
        return self.offsets[place] if place >= 0 else 0


def read_lines(log: LogFile, start: int = 0) -> Iterator[Line]:
    """Every line from the byte ``start`` on."""
    index = TimeIndex(log.path)
    assembler = LineAssembler()
    offset = start
    with log.path.open("rb") as file:
        file.seek(start)
        while data := file.read(BLOCK):
            at = index.time_at(offset)
            for text in assembler.feed(data):
                yield Line(at, log.service, text)
            offset += len(data)
    for text in assembler.finish():
        yield Line(index.time_at(offset), log.service, text)


def tail_start(path: Path, lines: int) -> int:
    """The offset from which at least ``lines`` lines follow, looking back ``TAIL_BYTES`` at most."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        limit = max(0, position - TAIL_BYTES)
        seen = -1  # the newline at the very end completes the last line
        while position > limit:
            size = min(BLOCK, position - limit)
            position -= size
            file.seek(position)
            data = file.read(size)
            count = data.count(b"\n")
            if seen + count >= lines:
                cut = len(data)
                for _ in range(lines - seen):
                    cut = data.rfind(b"\n", 0, cut)
                return position + cut + 1
            seen += count
        return position


def last_lines(logs: list[LogFile], count: int) -> list[Line]:
    """The newest ``count`` lines over all files, merged by time."""
    return _newest(logs, count, lambda log: read_lines(log, tail_start(log.path, count)))


def all_lines(logs: list[LogFile], count: int | None, start: Callable[[LogFile], int | None]) -> list[Line]:
    """The lines from each file's ``start`` on (None = nothing of that file), merged; the newest ``count``."""

    def read(log: LogFile) -> Iterator[Line]:
        offset = start(log)
        return iter(()) if offset is None else read_lines(log, offset)

    return _newest(logs, count, read)


def _newest(logs: list[LogFile], count: int | None, read: Callable[[LogFile], Iterator[Line]]) -> list[Line]:
    merged: list[Line] = []
    for log in logs:
        merged += deque(read(log), maxlen=count)
    merged.sort(key=lambda line: line.at)  # stable: lines of one file stay in order
    return merged if count is None else merged[len(merged) - min(count, len(merged)) :]
