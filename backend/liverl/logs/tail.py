"""The lines of several log files as one stream, merged by time: what ``liverl-tui logs`` prints."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from liverl.logs.files import LogFile
from liverl.logs.text import LineAssembler
from liverl.logs.times import TimeIndex

BLOCK = 1 << 18
# how far back the last lines are looked for; enough for 2,000 lines at the length limit
TAIL_BYTES = 16 << 20


class Line(msgspec.Struct, frozen=True):
    at: float  # Unix seconds, as well as the index or the file's modification time tells
    service: str
    text: str


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
