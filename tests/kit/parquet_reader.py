"""Reads what ``liverl.util.parquet`` writes, by the format's specification: a reader of its own, so that both must be
wrong in the same way to agree. pyarrow 22 has read the same files."""

from __future__ import annotations

import struct
from typing import Any

_FIXED = {2: ("q", 8), 5: ("d", 8)}


class _Thrift:
    """Structs of Thrift's compact protocol as dicts by the numbers of their fields."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while (head := self.data[self.at]) != 0:
            self.at += 1
            assert head >> 4, "a field whose number is written out"
            number += head >> 4
            fields[number] = self.value(head & 15)
        self.at += 1
        return fields

    def value(self, kind: int) -> Any:
        if kind in (5, 6):
            number = self.varint()
            return number >> 1 if not number & 1 else -(number >> 1) - 1
        if kind == 8:
            size = self.varint()
            self.at += size
            return self.data[self.at - size : self.at].decode()
        if kind == 9:
            head = self.data[self.at]
            self.at += 1
            size = self.varint() if head >> 4 == 15 else head >> 4
            return [self.value(head & 15) for _ in range(size)]
        assert kind == 12, kind
        return self.struct()


def read_parquet(data: bytes) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """(name -> type, name -> values) of a file of one row group with plain, optional columns."""
    assert data[:4] == data[-4:] == b"PAR1"
    (size,) = struct.unpack("<I", data[-8:-4])
    reader = _Thrift(data, len(data) - 8 - size)
    about = reader.struct()
    assert reader.at == len(data) - 8, "the footer is as long as it says"
    root, *schema = about[2]
    assert root[5] == len(schema) and all(one[3] == 1 for one in schema)
    (group,) = about[4]
    assert group[3] == about[3]
    types = {one[4]: {0: "bool", 2: "int", 5: "float", 6: "text"}[one[1]] for one in schema}
    assert all((one.get(6) == 0) == (one[1] == 6) for one in schema), "text is UTF-8"
    columns = {}
    for chunk in group[1]:
        column = chunk[3]
        assert column[4] == 0, "uncompressed"
        values = _page(data, column[9], column[1], column[5])
        columns[column[3][0]] = values
    return types, columns


def _page(data: bytes, at: int, kind: int, rows: int) -> list[Any]:
    reader = _Thrift(data, at)
    head = reader.struct()
    assert head[1] == 0 and head[5][1] == rows and head[2] == head[3]
    body = data[reader.at : reader.at + head[2]]
    (size,) = struct.unpack_from("<I", body)
    levels = _Thrift(body, 4)
    there: list[bool] = []
    while levels.at < 4 + size:
        run = levels.varint()
        assert not run & 1, "a run of equal levels"
        there += [bool(body[levels.at])] * (run >> 1)
        levels.at += 1
    assert len(there) == rows
    place, found = 4 + size, []
    for number in range(sum(there)):
        if kind == 0:
            found.append(bool(body[place + number // 8] >> number % 8 & 1))
        elif kind == 6:
            (length,) = struct.unpack_from("<I", body, place)
            found.append(body[place + 4 : place + 4 + length].decode())
            place += 4 + length
        else:
            code, width = _FIXED[kind]
            found += struct.unpack_from(f"<{code}", body, place)
            place += width
    values = iter(found)
    return [next(values) if one else None for one in there]
