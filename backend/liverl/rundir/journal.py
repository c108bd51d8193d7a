"""The journal: actions of the backend on processes, durable before it acts, so that a new backend can adopt
them.

Append-only JSON lines with fsync, written by one thread, as a slow disk must not stall the event loop; queued
records share one fsync. A failed write leaves no partial line, and its records are written with the next
successful one, so that a temporarily full disk leaves no gap. ``events.jsonl`` uses the same writer without
fsync.

Each record of the journal carries a checksum. Damaged lines are skipped by its readers: what they would have said is
found in the keeper's records and in the process table (``supervise.recovery.evidence``).
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
import zlib
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from liverl.util.append import write_all
from liverl.util.decode import decode_json, decode_loose_json
from liverl.util.regular_file import (
    RefusedFileError,
    open_append,
    open_regular,
    read_regular,
)

_encode = msgspec.json.Encoder().encode

_CHECKED = re.compile(rb',"crc":"([0-9a-f]{8})"}$')
CLOSE_S = 10.0  # seconds that closing a file waits for its last records; a busy disk takes about 0.01 s
OWED_BYTES = 1 << 20  # limit of unwritten lines kept for a retry, newest first: about 3,000 records


class LineFile:
    """Appends whole JSON lines to a file from a thread of its own.

    Raises:
        OSError: in the constructor, if the file cannot be opened; from the futures, if a record could
            not be written (the file is then truncated to its last whole line).
    """

    def __init__(self, path: Path, *, durable: bool, checked: bool = False) -> None:
        """``durable``: with fsync. ``checked``: with the field ``crc`` (see ``checked_line``)."""
        self.path = path
        self._durable = durable
        self._checked = checked
        self._fd = open_append(path, read=True)
        _cut_torn_line(self._fd)
        self._size = os.fstat(self._fd).st_size
        self._owed = b""
        self._queue: queue.SimpleQueue[tuple[bytes, Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"write {path.name}", daemon=True)
        self._thread.start()

    def append(self, record: Any) -> Future[None]:
        """Queue one record; the future completes when it is written (and on disk, if durable)."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # a cancelled waiter must not cancel the write
        body = _encode(record)
        self._queue.put((checked_line(body) if self._checked else body + b"\n", future))
        return future

    async def write(self, record: Any) -> None:
        """Append one record and wait until it is written.

        Raises:
            OSError: the record could not be written.
        """
        import asyncio  # what only reads a journal needs none of it

        await asyncio.wrap_future(self.append(record))

    def close(self) -> None:
        """Write all queued records and close the file. A write that hangs is left to its thread after ``CLOSE_S``."""
        self._queue.put(None)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            os.close(self._fd)

    def _work(self) -> None:
        while True:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            items = [item for item in batch if item is not None]
            if items or self._owed:
                self._write(items)
            if None in batch:
                return

    def _write(self, items: list[tuple[bytes, Future[None]]]) -> None:
        data = self._owed + b"".join(line for line, _ in items)
        try:
            if self._owed:
                os.ftruncate(self._fd, self._size)
            write_all(self._fd, data)
            if self._durable:
                os.fdatasync(self._fd)
            self._size += len(data)
            self._owed = b""
        except OSError as error:
            # If this fails too, the next write truncates again.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            begin = len(data) - OWED_BYTES
            self._owed = data if begin <= 0 else data[data.find(b"\n", begin) + 1 :]
            for _, future in items:
                future.set_exception(OSError(error.errno, f"{self.path}: {os.strerror(error.errno or 0)}"))
            return
        for _, future in items:
            future.set_result(None)


def _cut_torn_line(fd: int) -> None:
    """Truncate an unfinished last line, left by a writer that was killed while writing."""
    size = os.fstat(fd).st_size
    keep = size
    while keep > 0:
        start = max(0, keep - 65536)
        newline = os.pread(fd, keep - start, start).rfind(b"\n")
        if newline >= 0:
            keep = start + newline + 1
            break
        keep = start
    if keep < size:
        os.ftruncate(fd, keep)


# --- the journal ----------------------------------------------------------------------------------------


def checked_line(body: bytes) -> bytes:
    """The JSON object ``body`` as a line of the journal: with the CRC-32 of ``body`` as its last field, ``crc``."""
    return b'%b,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))


@dataclass(frozen=True)
class JournalContent:
    """What a journal holds: its records, oldest first, the line number of each, and the numbers of its damaged
    lines, which are skipped. ``problem``: why it could not be read at all."""

    records: tuple[dict[str, Any], ...] = ()
    numbers: tuple[int, ...] = ()
    damaged: tuple[int, ...] = ()
    problem: str = ""


def read_journal(path: Path) -> JournalContent:
    """Read a journal, whatever is in it. A missing file has no records; an unfinished last line counts as damaged.

    Lines with the field ``crc`` must match it. Lines of older versions have none.

    Raises:
        OSError: it is a file, and cannot be read: permission is denied, or the disk has a fault.
    """
    try:
        if path.is_symlink():
            return JournalContent(problem="a link")
        data = read_regular(path)
    except FileNotFoundError:
        return JournalContent()
    except RefusedFileError as error:
        return JournalContent(problem=error.strerror or "not a regular file")
    records, numbers, damaged = [], [], []
    lines = data.split(b"\n")
    torn = len(lines) if lines[-1] else 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record = read_record(line) if number != torn else None
        if record is None:
            damaged.append(number)
        else:
            records.append(record)
            numbers.append(number)
    return JournalContent(tuple(records), tuple(numbers), tuple(damaged))


def read_record(line: bytes) -> dict[str, Any] | None:
    """The record in one line; None if the line is damaged."""
    found = _CHECKED.search(line)
    if found is not None and zlib.crc32(line[: found.start()] + b"}") != int(found[1], 16):
        return None
    try:
        record = decode_json(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def complain(text: str) -> None:
    """Write a line to the backend's own log (stderr) and ignore failures.

    The log is on the run's disk: if that is full, clients learn of it through an event instead.
    """
    with contextlib.suppress(OSError):
        write_all(2, f"{text.rstrip()}\n".encode())


def read_object(path: Path) -> dict[str, Any] | None:
    """Return a small JSON object that its writer replaces atomically; None if it is missing or invalid."""
    try:
        fd = open_regular(path)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            value = decode_loose_json(file.read())
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None
