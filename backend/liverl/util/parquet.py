"""Writes a table as a Parquet file: one row group, uncompressed, plain values. Pure.

A library for it would be 120 MB for a few columns. Source: the format's specification, apache/parquet-format 2.11,
``parquet.thrift`` and ``Encodings.md``; its structs are written in Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import groupby

MAGIC = b"PAR1"
Value = int | float | str | bool | None

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12  # types of Thrift's compact protocol
_TYPES = {bool: 0, int: 2, float: 5, str: 6}  # BOOLEAN, INT64, DOUBLE, BYTE_ARRAY
_OPTIONAL, _PLAIN, _RLE, _DATA_PAGE, _UTF8 = 1, 0, 3, 0, 0


def parquet(columns: Mapping[str, Sequence[Value]], kinds: Mapping[str, type]) -> bytes:
    """The file of ``columns``, name -> values, all of the same length; None is null. ``kinds``: name -> bool (BOOLEAN),
    int (INT64), float (DOUBLE) or str (UTF8), of each column, so that files of several runs have the same schema.

    Raises:
        ValueError: the columns have different lengths, or none.
        KeyError: a column has no kind.
    """
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise ValueError(f"columns of one length are needed, not of {sorted(lengths)}")
    (rows,) = lengths
    data = bytearray(MAGIC)
    schema = [_fields((4, _BINARY, "schema"), (5, _I32, len(columns)))]
    chunks = []
    for name, values in columns.items():
        kind = kinds[name]
        converted = ((6, _I32, _UTF8),) if kind is str else ()
        schema.append(_fields((1, _I32, _TYPES[kind]), (3, _I32, _OPTIONAL), (4, _BINARY, name), *converted))
        page = _page(kind, values)
        about = _fields(
            (1, _I32, _TYPES[kind]),
            (2, _LIST, (_I32, [_varint(_zigzag(_PLAIN)), _varint(_zigzag(_RLE))])),
            (3, _LIST, (_BINARY, [_text(name)])),
            (4, _I32, 0),
            (5, _I64, rows),
            (6, _I64, len(page)),
            (7, _I64, len(page)),
            (9, _I64, len(data)),
        )
        chunks.append(_fields((2, _I64, len(data)), (3, _STRUCT, about)))
        data += page
    group = _fields((1, _LIST, (_STRUCT, chunks)), (2, _I64, len(data) - len(MAGIC)), (3, _I64, rows))
    footer = _fields(
        (1, _I32, 1),
        (2, _LIST, (_STRUCT, schema)),
        (3, _I64, rows),
        (4, _LIST, (_STRUCT, [group])),
        (6, _BINARY, "liverl-tui"),
    )
    return bytes(data) + footer + struct.pack("<I", len(footer)) + MAGIC


def _page(kind: type, values: Sequence[Value]) -> bytes:
    """A data page with its header: which values are there, then the values."""
    levels = b"".join(
        _varint(len(list(run)) << 1) + bytes((there,))
        for there, run in groupby(v is not None for v in values)
    )
    body = bytearray(struct.pack("<I", len(levels)) + levels)
    known = [value for value in values if value is not None]
    if kind is bool:
        bits = sum(bool(value) << place for place, value in enumerate(known))
        body += bits.to_bytes((len(known) + 7) // 8, "little")
    elif kind is str:
        for value in known:
            text = str(value).encode("utf-8", "replace")
            body += struct.pack("<I", len(text)) + text
    else:
        body += struct.pack(f"<{len(known)}{'q' if kind is int else 'd'}", *known)
    header = _fields((1, _I32, len(values)), (2, _I32, _PLAIN), (3, _I32, _RLE), (4, _I32, _RLE))
    about = ((1, _I32, _DATA_PAGE), (2, _I32, len(body)), (3, _I32, len(body)), (5, _STRUCT, header))
    return _fields(*about) + bytes(body)


def _fields(*fields: tuple[int, int, object]) -> bytes:
    """A struct: (number, type, value) in the order of the numbers."""
    data, before = bytearray(), 0
    for number, kind, value in fields:
        data.append((number - before) << 4 | kind)
        before = number
        if isinstance(value, int):
            data += _varint(_zigzag(value))
        elif isinstance(value, str):
            data += _text(value)
        elif isinstance(value, bytes):
            data += value
        elif isinstance(value, tuple):
            element, items = value
            size = len(items)
            data += bytes((size << 4 | element,)) if size < 15 else bytes((0xF0 | element,)) + _varint(size)
            data += b"".join(items)
    return bytes(data) + b"\0"


def _text(value: str) -> bytes:
    text = value.encode("utf-8", "replace")
    return _varint(len(text)) + text


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _varint(number: int) -> bytes:
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*data, number))
