"""The journal: what the backend did to processes, durable before it acts, so that a successor can adopt them.

Append-only JSON lines with fsync, written by one thread (a disk flood must not stall the event loop), several
records per fsync when they come together. A write that fails leaves no half line behind, and what it held is
written with the next one that succeeds: a disk that was full for a while leaves no hole. The same writer, in its
non-durable form, keeps ``events.jsonl``.
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

_encode = msgspec.json.Encoder().encode

OWED_BYTES = 1 << 20  # of refused lines are kept for later, the newest ones: about 3,000 records


class LineFile:
    """Appends whole lines to a file.

    Raises:
        OSError: at construction, if the file cannot be opened; from the futures, if a line could not be
            written (the file is then cut back to its last whole line).
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self._durable = durable
        cut_torn_line(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size
        self._owed = b""
        self._queue: queue.SimpleQueue[tuple[bytes, Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"write {path.name}", daemon=True)
        self._thread.start()

    def append(self, record: Any) -> Future[None]:
        """Queue one record; the future is done when it is on disk."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # who stops waiting must not cancel what is being written
        self._queue.put((_encode(record) + b"\n", future))
        return future

    async def write(self, record: Any) -> None:
        """Append one record and wait until it is on disk."""
        await asyncio.wrap_future(self.append(record))

    def close(self) -> None:
        """Write what is queued and close the file."""
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
            # Cut back again before the next write, should that be refused as well now.
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
    """Remove an unfinished last line, left by a writer that was killed in the middle of it."""
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
    """The records of a journal, oldest first; an unfinished last line is left out. Nothing if there is no file.

    Raises:
        ValueError: a whole line is not JSON; the message names file and line.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}:{number}: not a journal record: {error}") from None
        if isinstance(record, dict):
            yield record


def complain(text: str) -> None:
    """A line for the backend's own log. That lies on the run's disk: when it is full there is no room to say so,
    and clients are told by an event."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text.rstrip()}\n".encode())


def read_object(path: Path) -> dict[str, Any] | None:
    """A small JSON object that its writer replaces atomically; None when it is not there (yet)."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    with open(fd, "rb") as file:
        try:
            found = json.loads(file.read())
        except ValueError:
            return None
    return found if isinstance(found, dict) else None
