"""The lines of several log files as one stream, merged by time, as printed by ``liverl-tui logs``."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from liverl.logs.files import LogFile
from liverl.logs.text import LineAssembler
from liverl.logs.times import TimeIndex
from liverl.util.regular_file import open_binary

BLOCK = 1 << 18
# bytes searched backwards for the last lines; enough for 2,000 lines of maximum length
TAIL_BYTES = 16 << 20


class Line(msgspec.Struct, frozen=True):
    """One line of a service's log."""

    at: float  # Unix seconds, from the index, else the file's modification time
    service: str
    text: str


def read_lines(log: LogFile, start: int = 0) -> Iterator[Line]:
    """Yield every line from byte ``start`` on."""
    index = TimeIndex(log.path)
    assembler = LineAssembler()
    offset = start
    with open_binary(log.path) as file:
        file.seek(start)
        while data := file.read(BLOCK):
            at = index.time_at(offset)
            for text in assembler.feed(data):
                yield Line(at, log.service, text)
            offset += len(data)
    for text in assembler.finish():
        yield Line(index.time_at(offset), log.service, text)


def tail_start(path: Path, lines: int) -> int:
    """Return an offset after which at least ``lines`` lines follow, at most ``TAIL_BYTES`` before the end."""
    with open_binary(path) as file:
        position = file.seek(0, os.SEEK_END)
        limit = max(0, position - TAIL_BYTES)
        newlines = -1  # the final newline ends the last line
        while position > limit:
            size = min(BLOCK, position - limit)
            position -= size
            file.seek(position)
            data = file.read(size)
            count = data.count(b"\n")
            if newlines + count >= lines:
                cut = len(data)
                for _ in range(lines - newlines):
                    cut = data.rfind(b"\n", 0, cut)
                return position + cut + 1
            newlines += count
        return position


def last_lines(logs: list[LogFile], count: int) -> list[Line]:
    """Return the newest ``count`` lines over all files, merged by time."""
    return _newest(logs, count, lambda log: read_lines(log, tail_start(log.path, count)))


def all_lines(
    logs: list[LogFile],
    count: int | None,
    start: Callable[[LogFile], int | None],
    wanted: Callable[[Line], bool],
) -> list[Line]:
    """Return the ``wanted`` lines from each file's ``start`` on (None: skip the file), merged by time; the newest
    ``count``, or all with None. No more of each file is held in memory."""

    def read(log: LogFile) -> Iterator[Line]:
        """Yield the lines of one file."""
        offset = start(log)
        return iter(()) if offset is None else filter(wanted, read_lines(log, offset))

    return _newest(logs, count, read)


def _newest(logs: list[LogFile], count: int | None, read: Callable[[LogFile], Iterator[Line]]) -> list[Line]:
    merged: list[Line] = []
    for log in logs:
        merged += deque(read(log), maxlen=count)
    merged.sort(key=lambda line: line.at)  # stable sort: lines of one file stay in order
    return merged if count is None else merged[len(merged) - min(count, len(merged)) :]
