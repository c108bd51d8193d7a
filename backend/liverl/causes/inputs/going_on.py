"""Which errors of a log ended nothing: its program does afterwards what it did before."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

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
_DIGITS = b"0123456789"


def without_outlived(log: LogRecords) -> LogRecords:
    """A log, which lies at the path that it is shown by, without the errors after which it goes on as before."""
    errors = [record for record in log.records if record.level == "error" and record.kind != "healthy"]
    if not errors:
        return log
    start = max(0, errors[0].offset - BEFORE)
    try:
        with open_binary(Path(log.log)) as file:
            file.seek(start)
            data = file.read(BEFORE + AFTER)
    except OSError:
        return log  # it was removed meanwhile; what was read of it is judged
    gone = set(outlived(data, errors, start))
    return msgspec.structs.replace(log, records=tuple(r for r in log.records if r.offset not in gone))


def outlived(data: bytes, errors: Sequence[Record], start: int = 0) -> Iterator[int]:
    """Yield the offsets of the errors after which the log goes on as before, and of later ones of the same kind.
    ``data``: the log from byte ``start`` on."""
    places: dict[bytes, array[int]] = {}
    own = {record.offset for record in errors}
    offset = start
    for line in data.split(b"\n"):
        shape = _shape(line)
        if shape and offset not in own and b"rror" not in line:
            found = places.get(shape)
            if found is not None:
                found.append(offset)
            elif len(places) < SHAPES:
                places[shape] = array("q", [offset])
        offset += len(line) + 1
    often = sorted(places.values(), key=len, reverse=True)
    kinds: set[bytes] = set()
    for record in errors:
        begin = record.offset - start
        end = data.find(b"\n", begin)
        shape = _shape(data[begin : end if end >= 0 else len(data)])
        if shape in kinds or _goes_on(often, record):
            kinds.add(shape)
            yield record.offset


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
    return line[:200].translate(None, _DIGITS)[:_SHAPE].strip()
