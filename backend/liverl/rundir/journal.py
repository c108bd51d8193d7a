"""The journal: actions of the backend on processes, durable before it acts, so that a new backend can adopt
them.

Append-only JSON lines with fsync, written by one thread, as a slow disk must not stall the event loop; queued
records share one fsync. A failed write leaves no partial line, and its records are written with the next
successful one, so that a temporarily full disk leaves no gap. ``events.jsonl`` uses the same writer without
fsync.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from liverl.util.regular_file import open_append, open_regular, read_regular

_encode = msgspec.json.Encoder().encode

OWED_BYTES = 1 << 20  # limit of unwritten lines kept for a retry, newest first: about 3,000 records


class LineFile:
    """Appends whole JSON lines to a file from a thread of its own.

    Raises:
        OSError: in the constructor, if the file cannot be opened; from the futures, if a record could
            not be written (the file is then truncated to its last whole line).
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self._durable = durable
        cut_torn_line(path)
        self._fd = open_append(path, read=True)
        self._size = os.fstat(self._fd).st_size
        self._owed = b""
        self._queue: queue.SimpleQueue[tuple[bytes, Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"write {path.name}", daemon=True)
        self._thread.start()

    def append(self, record: Any) -> Future[None]:
        """Queue one record; the future completes when it is written (and on disk, if durable)."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # a cancelled waiter must not cancel the write
        self._queue.put((_encode(record) + b"\n", future))
        return future

    async def write(self, record: Any) -> None:
        """Append one record and wait until it is written.

        Raises:
            OSError: the record could not be written.
        """
        await asyncio.wrap_future(self.append(record))

    def close(self) -> None:
        """Write all queued records and close the file."""
        self._queue.put(None)
        self._thread.join()
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
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
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


def cut_torn_line(path: Path) -> None:
    """Truncate an unfinished last line, left by a writer that was killed while writing.

    Raises:
        OSError: the file exists and cannot be read or written.
    """
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            keep = size
            while keep > 0:
                start = max(0, keep - 65536)
                file.seek(start)
                block = file.read(keep - start)
                newline = block.rfind(b"\n")
                if newline >= 0:
                    keep = start + newline + 1
                    break
                keep = start
            if keep < size:
                file.truncate(keep)
    except FileNotFoundError:
        return


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a journal, oldest first, without an unfinished last line. A missing file has none.

    Raises:
        ValueError: a complete line is not JSON; the message names file and line.
        OSError: the file exists and cannot be read.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: not a journal record: {error}") from None
        if isinstance(record, dict):
            yield record


def complain(text: str) -> None:
    """Write a line to the backend's own log (stderr) and ignore failures.

    The log is on the run's disk: if that is full, clients learn of it through an event instead.
    """
    with contextlib.suppress(OSError):
        os.write(2, f"{text.rstrip()}\n".encode())


def read_object(path: Path) -> dict[str, Any] | None:
    """Return a small JSON object that its writer replaces atomically; None if it is missing or invalid."""
    try:
        fd = open_regular(path)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            value = json.loads(file.read())
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None
