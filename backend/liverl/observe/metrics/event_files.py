"""Reads the scalars of tensorboard's event files, without tensorboard: TFRecords with protobuf messages (Event).

A record is the length of its data (8 bytes), a masked CRC-32C of the length, the data, and one of the data. Checksums
are verified; a last record that is cut is one that is still being written.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from liverl.model import StepMetrics
from liverl.observe.metrics.step_lines import step_metrics, validation_only
from liverl.util.regular_file import open_binary

NAME = re.compile(
    r"\.tfevents\.(\d{1,12})"
)  # in the name of each event file, with the Unix time of its beginning
MOST = 24 << 20  # bytes of one file whose scalars are read, its last ones: about 10 s
# Bytes of a record that holds no scalar, but pictures, texts or distributions: it is passed over
LARGE = 16 << 10
LARGEST = 1 << 30  # bytes of a record; more is damage
_MASK = 0xA282EAD8
_FLOAT, _DOUBLE = 1, 2  # types of tensors


class EventError(ValueError):
    """A file of events is damaged: the text says where and how."""


class Scalar(NamedTuple):
    """``value`` of the metric ``tag`` at ``step``."""

    step: int
    tag: str
    value: float


class EventSteps(msgspec.Struct, frozen=True):
    """``steps``: in the order in which they were written; ``missed``: what of the files was not read, in words."""

    steps: tuple[StepMetrics, ...] = ()
    missed: tuple[str, ...] = ()


def is_event_file(name: str) -> bool:
    """Whether a file with this name is one of tensorboard's."""
    return NAME.search(name) is not None


def event_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The event files of a folder, those that were begun first before the others: each start of a trainer makes one.

    Raises:
        OSError: it cannot be listed.
    """
    names = [name for name in os.listdir(folder) if is_event_file(name)]
    return [Path(folder, name) for name in sorted(names, key=lambda name: (begun(name), name))]


def read_event_steps(files: Iterable[Path]) -> EventSteps:
    """The training steps in event files of one run, in their order. What is only a validation is no step."""
    steps: list[StepMetrics] = []
    missed: list[str] = []
    for path in files:
        found: dict[int, dict[str, float]] = {}
        try:
            with open_binary(path) as file:
                size = os.fstat(file.fileno()).st_size
                start = _start(file, size)
                if start:
                    missed.append(f"{start / (1 << 20):.1f} MiB at the beginning of {path}")
                for one in scalars(file, start):
                    found.setdefault(one.step, {})[one.tag] = one.value
        except EventError as error:
            missed.append(f"{path} ({error})")
        except OSError as error:
            missed.append(f"{path} ({error.strerror or error})")
        steps += [step_metrics(step, values) for step, values in found.items() if not validation_only(values)]
    return EventSteps(tuple(steps), tuple(missed))


class EventFollower:
    """Reads the scalars of an event file as it grows. ``offset``: bytes that were read; ``damaged``: where and how the
    file is damaged, which ends the reading; empty if it is not."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.offset, self.damaged = 0, ""
        self._path = path

    def poll(self, most: int) -> dict[int, dict[str, float]]:
        """The values of new records of about ``most`` bytes, by step; a step may come in several parts.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it cannot be read.
        """
        found: dict[int, dict[str, float]] = {}
        if self.damaged:
            return found
        end = self.offset + most
        with open_binary(self._path) as file:
            try:
                for at, data in _records(file, self.offset):
                    for one in _of_event(data):
                        found.setdefault(one.step, {})[one.tag] = one.value
                    self.offset = at + 16 + len(data)
                    if self.offset >= end:
                        break
            except EventError as error:
                self.damaged = str(error)
            except (IndexError, struct.error, UnicodeDecodeError):
                self.damaged = f"byte {self.offset}: a record is no event of tensorboard"
        return found


def scalars(file: BinaryIO, start: int = 0) -> Iterator[Scalar]:
    """Yield the scalars of a file from byte ``start`` on, where a record begins.

    Raises:
        EventError: it is damaged from some place on.
    """
    for offset, data in _records(file, start):
        try:
            yield from _of_event(data)
        except (IndexError, struct.error, UnicodeDecodeError):
            raise EventError(f"byte {offset}: the record is no event of tensorboard") from None


def begun(name: str) -> int:
    """The Unix time at which the event file with this name was begun; 0 for any other name."""
    found = NAME.search(name)
    return int(found[1]) if found is not None else 0


# --- records ---


def _start(file: BinaryIO, size: int) -> int:
    """The byte at which the last ``MOST`` bytes of the file begin with a record; 0 for a shorter one."""
    at = 0
    while size - at > MOST:
        length = _length(file, at)
        if length is None:
            return at
        at += 16 + length
    return at


def _length(file: BinaryIO, at: int) -> int | None:
    """The length of the data of the record at ``at``; None if the file ends there."""
    file.seek(at)
    head = file.read(12)
    if len(head) < 12:
        return None
    length, crc = struct.unpack("<QI", head)
    if crc != _masked(head[:8]) or length > LARGEST:
        raise EventError(f"byte {at}: damaged, its checksum does not match")
    return int(length)


def _records(file: BinaryIO, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield the place and the data of each record that may hold scalars. A record that is cut ends the file."""
    while (length := _length(file, at)) is not None:
        if length <= LARGE:
            body = file.read(length + 4)
            if len(body) < length + 4:
                return
            data = body[:length]
            if struct.unpack("<I", body[length:])[0] != _masked(data):
                raise EventError(f"byte {at}: damaged, its checksum does not match")
            yield at, data
        at += 16 + length


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _table()


def _masked(data: bytes) -> int:
    """The CRC-32C (Castagnoli) of ``data``, masked as TFRecords have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


# --- protobuf: Event {2: step, 5: Summary {1: Value {1: tag, 2: simple_value, 8: TensorProto}}} ---


class _Field(NamedTuple):
    number: int
    value: int | bytes  # fixed numbers as their bytes


def _fields(data: bytes) -> Iterator[_Field]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield _Field(key >> 3, value)
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise IndexError(kind)
        if at + length > len(data):
            raise IndexError(at)
        yield _Field(key >> 3, data[at : at + length])
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError(at)


def _of_event(data: bytes) -> Iterator[Scalar]:
    step = 0
    summaries: list[bytes] = []
    for field in _fields(data):
        if field.number == 2 and isinstance(field.value, int):
            step = field.value - (1 << 64) if field.value >> 63 else field.value
        elif field.number == 5 and isinstance(field.value, bytes):
            summaries.append(field.value)
    for summary in summaries:
        for value in _parts(summary, 1):
            tag, number = _of_value(value)
            if number is not None and tag:
                yield Scalar(step, tag, number)


def _of_value(data: bytes) -> tuple[str, float | None]:
    tag, number = "", None
    for field in _fields(data):
        if not isinstance(field.value, bytes):
            continue
        if field.number == 1:
            tag = field.value.decode()
        elif field.number == 2:
            number = float(struct.unpack("<f", field.value)[0])
        elif field.number == 8:
            number = _of_tensor(field.value)
    return tag, number


def _of_tensor(data: bytes) -> float | None:
    """The number in a tensor with one float or double; None for any other."""
    kind, numbers = 0, b""
    for field in _fields(data):
        if field.number == 1 and isinstance(field.value, int):
            kind = field.value
        elif field.number in (4, 5, 6) and isinstance(field.value, bytes):  # its bytes, floats, doubles
            numbers += field.value
    form = {(_FLOAT, 4): "<f", (_DOUBLE, 8): "<d"}.get((kind, len(numbers)))
    return None if form is None else float(struct.unpack(form, numbers)[0])


def _parts(data: bytes, number: int) -> Sequence[bytes]:
    return [one.value for one in _fields(data) if one.number == number and isinstance(one.value, bytes)]
