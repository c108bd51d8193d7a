"""Sessions inside one of verl's agent-loop workers: the chat APIs on a free port, opened and ended by direct calls."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from liverl.sessions.client import OpenSession, SessionFailed, opened_at
from liverl.sessions.report import ReportFile
from liverl.sessions.result import SessionResult
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Asides, Rewrite
from liverl.sessions.server import AgentRoutes
from liverl.sessions.store import NoSuchSession, Store
from liverl.sessions.wire import Refusal
from liverl.util.bad_json import BAD_JSON
from liverl.util.base_url import base_url
from liverl.util.faults import Faults
from liverl.util.http_server import HttpServer
from liverl.verl_runtime.verl_engine import VerlReplicas

logger = logging.getLogger(__name__)

FOLDER = "sessions"  # in the run directory; a worker's report is ``<worker>.json`` in it
REPORT_S = 1.0  # seconds between two reports


class HostSettings(msgspec.Struct, frozen=True):
    """``worker``: a name that no other worker of the run has; ``attempt``: the run's attempt; ``host``: by which agents
    reach this machine; the others: see the keys of ``session_proxy``."""

    run_dir: str
    attempt: str
    worker: str
    host: str
    rewrite: Rewrite = "split"
    asides: Asides = "skip"
    models: tuple[str, ...] = ()
    patience: float = 120.0
    max_replica_deaths: int = 2
    in_flight: int = 16
    rows_per_trial: int = 64
    main_agent_prefix_match: int = 256
    max_body_bytes: int = 16 << 20


class WorkerSessions:
    """The sessions of this process. Implements ``SessionHost``."""

    def __init__(self, settings: HostSettings, replicas: VerlReplicas) -> None:
        self._settings = settings
        folder = Path(settings.run_dir) / FOLDER
        self._store = Store(
            folder / settings.worker,
            (Path(settings.run_dir) / "trials",),
            replicas,
            prefix_match=settings.main_agent_prefix_match,
            rewrite=settings.rewrite,
            asides=settings.asides,
            patience=settings.patience,
            most_deaths=settings.max_replica_deaths,
            in_flight=settings.in_flight,
            most_rows=settings.rows_per_trial,
        )
        self._started = time.time()
        self._report = ReportFile(folder / f"{settings.worker}.json")
        self._faults = Faults(logger)
        self._reports: asyncio.Task[None] | None = None
        self._server: HttpServer | None = None
        self.address = ""  # URL of the chat APIs; empty before ``start``

    async def start(self) -> None:
        """Listen on a free port of all interfaces: agents may run in sandboxes on other machines. Every request needs
        the key of its session.

        Raises:
            OSError: there is no port, or the report cannot be written.
        """
        agents, most = AgentRoutes(self._store, self._settings.models), self._settings.max_body_bytes
        self._server = HttpServer(agents.app(most), agents.gate, max_body=most)
        port = await self._server.listen("0.0.0.0")
        self.address = base_url(self._settings.host, port)
        self._write_report()
        # LiveRL's line: its tools look for it. Printed, because verl's loggers hide what is no warning.
        print(
            f"[Proxy] vLLM proxy listening on 0.0.0.0:{port} - api_base uses {self.address}/...", flush=True
        )
        self._reports = asyncio.ensure_future(self._write_reports())

    async def close(self) -> None:
        """Stop listening; sessions that are open are lost."""
        if self._reports is not None:
            self._reports.cancel()
        if self._server is not None:
            await self._server.close()
        await self._store.close()

    async def open(self, session: str, trial_dir: Path, limits: Limits) -> OpenSession:
        """See ``SessionHost.open``."""
        try:
            opened = self._store.open(session, str(trial_dir), limits)
        except (Refusal, OSError) as error:
            raise SessionFailed("SessionRefusedError", str(error)) from None
        return opened_at(self.address, session, opened.opened.key)

    async def finish(self, session: str, seconds: float) -> SessionResult:
        """See ``SessionHost.finish``."""
        try:
            result = await self._store.finish(session)
        except (NoSuchSession, OSError, *BAD_JSON) as error:
            raise SessionFailed("SessionRefusedError", f"{type(error).__name__}: {error}") from None
        self._report_now()  # verl kills its workers behind the last trial
        return result

    async def _write_reports(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            with self._faults.logged("the journals cannot be looked at"):
                self._store.mend_journals()
            self._report_now()

    def _report_now(self) -> None:
        with self._faults.logged("the report of the sessions cannot be written"):
            self._write_report()

    def _write_report(self) -> None:
        settings = self._settings
        self._report.write(
            {
                "worker": settings.worker,
                "attempt": settings.attempt,
                "started": self._started,
                "pid": os.getpid(),
                "address": self.address,
                **self._store.facts(),
                **({} if self._server is None else {"clients": self._server.facts()}),
            }
        )


class OfThisProcess:
    """The one host of this process: the first trial starts it, all others wait for it."""

    def __init__(self) -> None:
        self._starting: asyncio.Task[WorkerSessions] | None = None

    async def get(self, make: Callable[[], Awaitable[WorkerSessions]]) -> WorkerSessions:
        """The host; ``make`` starts it. A failed start is tried again by the next trial."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(make())
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        except BaseException:
            if starting.done() and self._starting is starting and not _works(starting):
                self._starting = None
            raise


def _works(task: asyncio.Task[WorkerSessions]) -> bool:
    return not task.cancelled() and task.exception() is None


def new_name(actor: str | None) -> str:
    """A name for this worker. ``actor``: its name in Ray, which verl makes unique."""
    return actor or f"agent_loop_worker_{os.getpid()}_{time.time_ns():x}"
