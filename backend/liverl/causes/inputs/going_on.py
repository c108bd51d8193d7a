"""Which errors of a log ended nothing: its program does afterwards what it did before."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from liverl.causes.finding import LogRecords
from liverl.logs.record import Record
from liverl.util.regular_file import open_binary

BEFORE = 4 << 20  # bytes before the first error that are compared
AFTER = 32 << 20  # bytes behind it
SHAPES = 4000  # kinds of lines that are told apart
KINDS = 3  # so many kinds of lines from before an error must come again behind it,
LINES = 20  # and so many of them
_SHAPE = 40  # characters of a line, without its digits, that make its kind
_LOOKED_AT = 200  # bytes of a line in which these are looked for
_DIGITS = b"0123456789"


def without_outlived(log: LogRecords) -> LogRecords:
    """A log, which lies at the path that it is shown by, without the errors after which it goes on as before."""
    errors = [record for record in log.records if record.level == "error" and record.kind != "healthy"]
    if not errors:
        return log
    try:
        with open_binary(Path(log.log)) as file:
            gone = set(_outlived(file, errors))
    except OSError:
        return log  # it was removed meanwhile; what was read of it is judged
    return msgspec.structs.replace(log, records=tuple(r for r in log.records if r.offset not in gone))


def _outlived(file: BinaryIO, errors: Sequence[Record]) -> Iterator[int]:
    """Yield the offsets of the errors after which the log goes on as before, and of later ones of the same kind."""
    start = max(0, errors[0].offset - BEFORE)
    end = start + BEFORE + AFTER
    places = _places(file, start, end, {record.offset for record in errors})
    often = sorted(places, key=len, reverse=True)
    kinds: set[bytes] = set()
    for record in errors:
        file.seek(record.offset)
        line = file.read(max(0, min(_LOOKED_AT, end - record.offset)))
        shape = _shape(line.partition(b"\n")[0])
        if shape in kinds or _goes_on(often, record):
            kinds.add(shape)
            yield record.offset


def _places(file: BinaryIO, begin: int, end: int, own: Collection[int]) -> Collection[array[int]]:
    """Where the lines of each kind begin, from byte ``begin`` to ``end``, but for those that begin at ``own``."""
    places: dict[bytes, array[int]] = {}
    known: dict[bytes, array[int] | None] = {}  # by the whole line: logs repeat many to the byte
    file.seek(begin)
    offset = begin
    while offset < end and (line := file.readline(end - offset)):
        if offset not in own:
            try:
                of_kind = known[line]
            except KeyError:
                of_kind = _of_kind(line, places)
                if len(known) < SHAPES and len(line) <= _LOOKED_AT:
                    known[line] = of_kind
            if of_kind is not None:
                of_kind.append(offset)
        offset += len(line)
    return places.values()


def _of_kind(line: bytes, places: dict[bytes, array[int]]) -> array[int] | None:
    """The places of a line's kind; None if it is of none, or of one too many."""
    shape = _shape(line)
    if not shape or b"rror" in line:
        return None
    if shape not in places and len(places) < SHAPES:
        places[shape] = array("q")
    return places.get(shape)


def _goes_on(often: Sequence[array[int]], record: Record) -> bool:
    kinds = lines = 0
    for places in often:
        if len(places) < 2:
            return False
        if places[0] < record.offset:
            after = len(places) - bisect_right(places, record.end)
            kinds, lines = kinds + (after > 0), lines + after
            if kinds >= KINDS and lines >= LINES:
                return True
    return False


def _shape(line: bytes) -> bytes:
    """The kind of a line, empty for one that goes on with another."""
    if not line[:1].strip():
        return b""
    return line[:_LOOKED_AT].translate(None, _DIGITS)[:_SHAPE].strip()
