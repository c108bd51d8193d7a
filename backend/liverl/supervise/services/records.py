"""The journal and the event log of a backend, and the reports of write errors and internal errors."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from liverl.model import Event, Level
from liverl.rundir.journal import LineFile, complain
from liverl.supervise.services.event_log import EventLog
from liverl.util import redact
from liverl.util.atomic_file import set_aside
from liverl.util.process_limit import too_few

DISK_PATIENCE = 2.0  # seconds that a signal waits for the journal; a busy disk takes about 0.01 s


class Records:
    """Opens both files in ``run_dir``. ``now`` gives Unix seconds. Must be created on the event loop.

    Raises:
        OSError: the run directory cannot be written.
    """

    def __init__(self, run_dir: Path, now: Callable[[], float]) -> None:
        self.now = now
        self._reported: set[str] = set()  # texts of errors
        self._closed = False
        events, journal = run_dir / "events.jsonl", run_dir / "journal.jsonl"
        replaced = [(path, found) for path in (events, journal) if (found := set_aside(path)) is not None]
        self.events = EventLog(events, now, self.write_failed)
        self._journal = LineFile(journal, durable=True, checked=True)
        self._newest: Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        for path, (what, aside) in replaced:
            self.warn("journal", f"{path} was {what}; it was renamed to {aside}, and a new file was begun")

    def say(
        self, kind: str, text: str, level: Level = "info", service: str | None = None, **data: Any
    ) -> Event:
        """Add an event to ``events.jsonl`` and send it to clients (see ``EventLog.add``)."""
        return self.events.add(kind, text, level, service, **data)

    async def journal(self, record: dict[str, Any]) -> None:
        """Write a record to the journal, and return when it is on disk.

        Raises:
            OSError: it could not be written.
        """
        future = self._append(record)
        await asyncio.wrap_future(future)

    def journal_soon(self, record: dict[str, Any]) -> None:
        """Write a record to the journal in the background; an error is reported by an event."""
        self._append(record).add_done_callback(self._written)

    def journal_now(self, record: dict[str, Any]) -> str:
        """Write a record to the journal and wait at most ``DISK_PATIENCE`` seconds until it is on disk; returns why it
        is not, or "". Only for threads: it blocks."""
        try:
            self._journal.append({"at": self.now(), **record}).result(DISK_PATIENCE)
        except TimeoutError:
            return f"the disk has not answered within {DISK_PATIENCE:g} s"
        except OSError as error:
            return str(error)
        return ""

    def _append(self, record: dict[str, Any]) -> Future[None]:
        self._newest = self._journal.append({"at": self.now(), **record})
        return self._newest

    def _written(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self.write_failed(str(error))

    async def journalled(self) -> None:
        """Wait until every record so far is on disk or has failed, at most ``DISK_PATIENCE`` seconds."""
        if self._newest is not None:
            written = asyncio.wrap_future(self._newest)
            written.add_done_callback(lambda f: f.cancelled() or f.exception())  # reported by write_failed
            await asyncio.wait([written], timeout=DISK_PATIENCE)

    def write_failed(self, text: str) -> None:
        """Report a write error by an event, once for each text. May be called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, "write", f"write failed: {text}", "")

    def cannot_read(self, text: str) -> None:
        """Report by an event, once for each text, that something could not be read."""
        self._report("read", text, "")

    def internal(self, error: BaseException) -> None:
        """Report an error in liverl itself: an event, once for each text, and the traceback in ``backend.log``. That no
        thread or process can be started is no such error, and has no traceback."""
        limit = too_few(error)
        if limit is not None:
            self._report("limit", limit, "")
            return
        text = f"{type(error).__name__}: {error}"
        self._report("internal", text, "".join(traceback.format_exception(error)))

    def warn(self, kind: str, text: str) -> None:
        """Report something that people must look at, once for each text: an event, and a line in ``backend.log``."""
        self._report(kind, text, "", "warning")

    def _report(self, kind: str, text: str, details: str, level: Level = "error") -> None:
        text, details = redact.value(text), redact.value(details)  # an error may quote an address or a header
        if text in self._reported or self._closed:
            return
        self._reported.add(text)
        self.say(kind, text, level)
        complain(details or text)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Report an exception raised in the ``with`` block and go on: it must not end the caller."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.internal(error)

    def close(self) -> None:
        """Write what is queued and close both files. Later errors are not reported."""
        self._closed = True
        self._journal.close()
        self.events.close()
