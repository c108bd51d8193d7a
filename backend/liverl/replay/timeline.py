"""Which bytes of which file exist at a recorded time. Pure.

The recorder looks every two seconds. A line that was added between two looks appears at the time that it states itself;
lines without one are spread over that time, so that a log scrolls as it did. A document appears whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from liverl.replay.growth import Growth
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json

SPREAD_S = 2.0  # seconds before a recorded size over which the lines up to it appear
LINES = (".log", ".jsonl")  # whose lines appear one by one


class _Stamped(msgspec.Struct):
    """A line of a ``.jsonl`` file that states when it was written, in Unix seconds."""

    at: float


class Change(NamedTuple):
    """A file's content from the recorded time ``at`` on. ``whole``: it replaces the old content; else ``data`` is
    appended."""

    at: float
    path: str
    data: bytes
    whole: bool = False


def changes(growth: Iterable[Growth], files: Mapping[str, bytes], begin: float) -> list[Change]:
    """Every change of every file, oldest first. ``files``: the content at the end. ``begin``: recorded time of the
    first picture; nobody sees how the lines before it appeared."""
    done: dict[str, tuple[float, int]] = {}  # path -> time and size of the last change
    result: list[Change] = []
    for row in sorted(growth, key=lambda row: row.at):
        if row.text is not None:
            result.append(Change(row.at, row.path, row.text.encode(), whole=True))
            continue
        content = files[row.path]
        before, first = done.get(row.path, (row.at - SPREAD_S, 0))
        end = max(first, min(row.size or 0, len(content)))
        new = content[first:end]
        if row.path.endswith(LINES) and row.at > begin:
            result += _spread(row.path, new, max(before, row.at - SPREAD_S), row.at)
        else:
            result.append(Change(row.at, row.path, new))
        done[row.path] = (result[-1].at, end)
    return sorted(result, key=lambda change: change.at)


def _spread(path: str, data: bytes, begin: float, end: float) -> list[Change]:
    """The lines of ``data`` in their order: each at the time that it states, others evenly between two times, the last
    one at ``end``. A file's time stamp may be some milliseconds older than its newest line."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return [Change(end, path, b"")]
    each = (end - begin) / len(lines)
    shown, at = [], begin
    for place, line in enumerate(lines):
        own = _stated(line) if path.endswith(".jsonl") else None
        at = max(at, begin + each * (place + 1) if own is None else own)
        shown.append(Change(at, path, line))
    return shown


def _stated(line: bytes) -> float | None:
    try:
        return decode_json(line, type=_Stamped).at
    except BAD_JSON:
        return None
