"""What the sessions in verl's agent-loop workers report (``sessions/<worker>.json``): topology in_process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from liverl.model import SessionsStatus
from liverl.rundir.journal import read_object
from liverl.serving.session_events import SessionEvents, with_moments, with_numbers
from liverl.sessions.counters import Counters, together
from liverl.supervise.services.supervisor import Supervisor

SKEW_S = 30.0  # seconds by which the clocks of the run's hosts may differ
SILENT = 8  # silent sessions that the snapshot names


class WorkerReport(msgspec.Struct, frozen=True):
    """The report of one worker (``liverl.verl_runtime.worker_sessions``). ``started``: Unix seconds."""

    worker: str
    attempt: str
    started: float
    status: SessionsStatus
    last: dict[str, str] = {}  # counter -> trial in which it grew last


class WorkerReports:
    """The reports of the workers of the present trainer."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._reports: tuple[WorkerReport, ...] = ()
        self.events = SessionEvents(supervisor, "trainer")

    def reader(self) -> Callable[[], Callable[[], None]]:
        """See ``RouteFile.reader``."""
        folder, attempt = self._supervisor.run_dir / "sessions", self._supervisor.attempt_dir.name
        slot = self._supervisor.slots.get("trainer")
        process = slot.current.process if slot is not None else None
        since = process.started_at - SKEW_S if process is not None else 0.0
        now = self._supervisor.now

        def read() -> Callable[[], None]:
            reports = read_reports(folder, attempt, since, now)

            def take() -> None:
                self._reports = reports

            return take

        return read

    def tell(self) -> None:
        """Write events about what the workers have reported."""
        self.events.take(
            {
                f"{each.worker} {each.started}": {"counters": each.status.counters, "last": each.last}
                for each in self._reports
            }
        )

    def status(self) -> SessionsStatus:
        """All workers as one, for the snapshot."""
        return added_up([report.status for report in self._reports])


def read_reports(
    folder: Path, attempt: str, since: float, now: Callable[[], float] = time.time
) -> tuple[WorkerReport, ...]:
    """The reports of workers of ``attempt`` that have started at ``since`` (Unix seconds) or later; those of an earlier
    trainer have ended. Files that are no report are skipped."""
    found = []
    for path in sorted(folder.glob("*.json")):
        body = read_object(path)
        if body is None:
            continue
        try:
            report = msgspec.convert(
                {**body, "status": with_moments(with_numbers(body), now())}, WorkerReport
            )
        except msgspec.ValidationError:
            continue
        if report.attempt == attempt and report.started >= since:
            found.append(report)
    return tuple(found)


def added_up(workers: list[SessionsStatus]) -> SessionsStatus:
    """The sessions of all workers: sums, of versions the smallest and the largest. ``address`` only of a single one."""
    addresses = tuple(worker.address for worker in workers if worker.address)
    silent = sorted((each for worker in workers for each in worker.silent), key=lambda each: each.since)
    return SessionsStatus(
        address=addresses[0] if len(addresses) == 1 else None,
        workers=addresses,
        open=sum(worker.open for worker in workers),
        finished=sum(worker.finished for worker in workers),
        waiting=sum(worker.waiting for worker in workers),
        counters=msgspec.to_builtins(together(msgspec.convert(w.counters, Counters) for w in workers)),
        silent=tuple(silent[:SILENT]),
        clients=max(
            (worker.clients for worker in workers if worker.clients is not None),
            key=lambda clients: clients.without_key,
            default=None,
        ),
    )
