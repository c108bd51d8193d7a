"""The names of a Parquet file's columns and its number of rows, from its footer alone. Pure but for the file.

pyarrow would be 120 MB, and is in verl's environment only, which may not have been built yet. Source: the format's
specification, apache/parquet-format 2.11: the file ends with the footer, its length in 4 bytes and ``PAR1``; the footer
is a ``FileMetaData`` in Thrift's compact protocol.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import msgspec

MAGIC = b"PAR1"
# Bytes of a footer that are read: the names and the number of rows stand before the row groups.
LARGEST = 4 << 20
_SCHEMA, _ROWS, _NAME, _CHILDREN = 2, 3, 4, 5  # numbers of fields in FileMetaData and SchemaElement
_DEEPEST = 64  # structs within each other


class Footer(msgspec.Struct, frozen=True):
    """``columns``: the names at the top, in their order; ``rows``: how many."""

    columns: tuple[str, ...]
    rows: int


def read_footer(file: BinaryIO) -> Footer:
    """The footer of an open file.

    Raises:
        ValueError: it is no Parquet file, is cut short, or its footer is encrypted or damaged.
        OSError: it cannot be read.
    """
    size = file.seek(0, os.SEEK_END)
    if size < 12:
        raise ValueError("it is too short for a Parquet file")
    file.seek(size - 8)
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC:
        raise ValueError("it does not end as a Parquet file does: it is cut short, or encrypted")
    if length > size - 12:
        raise ValueError(f"its footer is said to have {length:,} bytes")
    file.seek(size - 8 - length)
    try:
        return _footer(_Compact(file.read(min(length, LARGEST))).struct(last=_ROWS))
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError("its footer is damaged") from error


def _footer(about: dict[int, Any]) -> Footer:
    """The elements of a schema stand in depth-first order, each with the number of its children."""
    root, *elements = about[_SCHEMA]
    names, at = [], 0
    for _ in range(root.get(_CHILDREN, 0)):
        names.append(elements[at][_NAME].decode())
        at = _behind(elements, at)
    rows = about[_ROWS]
    if not isinstance(rows, int) or rows < 0:
        raise TypeError("the number of rows is none")
    return Footer(tuple(names), rows)


def _behind(elements: list[dict[int, Any]], at: int) -> int:
    """The place behind an element and all that is in it."""
    left = 1
    while left:
        left += elements[at].get(_CHILDREN, 0) - 1
        at += 1
    return at


class _Compact:
    """Values of Thrift's compact protocol: structs as dicts by the numbers of their fields."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number
            if shift > 70:
                raise IndexError("a number without an end")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def struct(self, depth: int = 0, last: int | None = None) -> dict[int, Any]:
        """A struct, up to its stop byte, or up to the field ``last``."""
        if depth > _DEEPEST:
            raise IndexError("structs within each other")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
            if number == last:
                break
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):  # a truth value in a list, or a byte
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15, depth) for _ in range(min(count, len(self._data)))]
        if kind == 12:
            return self.struct(depth + 1)
        raise KeyError(kind)

    def _bytes(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise IndexError("it ends within a text")
        return self._data[self._at - count : self._at]
