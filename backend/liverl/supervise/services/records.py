"""What a backend writes down: the journal, the events, and the complaint when a disk refuses either."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from liverl.logs.fatal_lines import find_cause
from liverl.model import Event, Level
from liverl.rundir.journal import LineFile, complain
from liverl.supervise.services.event_log import EventLog

DISK_PATIENCE = 2.0  # seconds that a signal waits for the journal; a flooded disk takes some 0.01


class Records:
    """``now`` gives Unix seconds. Must be made on the event loop.

    Raises:
        OSError: the run directory cannot be written.
    """

    def __init__(self, run_dir: Path, now: Callable[[], float]) -> None:
        self.now = now
        self.events = EventLog(run_dir / "events.jsonl", now, self.write_failed)
        self._journal = LineFile(run_dir / "journal.jsonl", durable=True)
        self._newest: Future[None] | None = None
        self._told: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def say(
        self, kind: str, text: str, level: Level = "info", service: str | None = None, **data: Any
    ) -> Event:
        """Add an event."""
        return self.events.add(kind, text, level, service, **data)

    async def journal(self, record: dict[str, Any]) -> None:
        """Write a record, and return when it is on disk.

        Raises:
            OSError: it could not be written.
        """
        future = self._append(record)
        await asyncio.wrap_future(future)

    def journal_soon(self, record: dict[str, Any]) -> None:
        """Write a record; a failure is told by an event."""
        self._append(record).add_done_callback(self._written)

    def _append(self, record: dict[str, Any]) -> Future[None]:
        self._newest = self._journal.append({"at": self.now(), **record})
        return self._newest

    def _written(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self.write_failed(str(error))

    async def journalled(self) -> None:
        """Wait until everything given to ``journal_soon`` is on disk, or could not be written, or the disk
        takes longer than is worth waiting for."""
        if self._newest is not None:
            written = asyncio.wrap_future(self._newest)
            written.add_done_callback(lambda f: f.cancelled() or f.exception())  # told by write_failed
            await asyncio.wait([written], timeout=DISK_PATIENCE)

    def write_failed(self, text: str) -> None:
        """Something could not be written; told once for each text. May be called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, "write", f"write failed: {text}", "")

    def log_says(self, log: Path, start: int) -> tuple[str, int] | None:
        """What a service's log says of its end, from offset ``start`` on, with the byte offset of the line. A log that
        cannot be read says nothing, which is told. May be called from any thread."""
        try:
            return find_cause(log, start)
        except OSError as error:
            self.write_failed(f"{log.name}: {error.strerror}")
            return None

    def internal(self, error: BaseException) -> None:
        """A fault of ours: told once by an event, and with its traceback in our log."""
        text = f"{type(error).__name__}: {error}"
        self._tell("internal", text, "".join(traceback.format_exception(error)))

    def _tell(self, kind: str, text: str, details: str) -> None:
        if text in self._told or self._closed:
            return
        self._told.add(text)
        self.say(kind, text, "error")
        complain(details or text)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """What is done in here may have a fault of ours: it is told, and ends nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.internal(error)

    def close(self) -> None:
        """Write what is queued, and close."""
        self._closed = True
        self._journal.close()
        self.events.close()
