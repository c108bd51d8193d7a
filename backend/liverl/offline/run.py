"""A run without a backend, as its files and the process table tell it.

Its services may go on: what they write is seen, what only a backend can measure is not known any more. Nothing is
called ready that has no process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.logs.fatal_lines import find_cause
from liverl.model import (
    BackendInfo,
    Cause,
    Event,
    HostStats,
    Result,
    RunState,
    ServiceStatus,
    Snapshot,
    StepMetrics,
    Symptom,
    TreeStats,
    TrialsStatus,
)
from liverl.observe.metrics.pace import StepPace
from liverl.observe.metrics.steps import MetricsReader
from liverl.observe.trials.scanner import TrialScanner, cut_off
from liverl.offline.services import OrphanedServices, left_gpu, left_proxy, left_replicas, read_past
from liverl.plan import moved
from liverl.plan.spec import Plan
from liverl.procs import procfs
from liverl.procs.stats import ProcSampler
from liverl.rundir.journal import read_object
from liverl.rundir.layout import BackendRecord, DeadBackend, RemoteBackend, RunDir, backend_alive, hostname
from liverl.util.backward_lines import lines_backwards
from liverl.version import __version__

T = TypeVar("T")
_ENDED = ("done", "failed", "stopped")
_POLLS = 64  # of a metrics file at one look; one reads 4 MiB


class _Kept(Generic[T]):
    """What was read from a file, until the file is another one."""

    def __init__(self, read: Callable[[], T], *paths: Path) -> None:
        self._read = read
        self._paths = paths
        self._key: list[object] = []  # that of no files at all
        self._value: T

    def get(self) -> T:
        key = [_identity(path) for path in self._paths]
        if key != self._key:
            self._key, self._value = key, self._read()
        return self._value


def _identity(path: Path) -> object:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class OfflineRun:
    """Reads the files of one run directory; ``poll`` sees what its services still write. Not thread-safe: one poll
    at a time, from any thread."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.run_dir = Path(run_dir)
        run = self._run = RunDir(self.run_dir)
        self._last = _Kept(run.read_snapshot, run.snapshot)
        self._plan = _Kept(self._read_plan, run.plan)
        self._result = _Kept(run.read_result, run.result)
        self._event = _Kept(self._read_event, run.events)
        self._past = _Kept(lambda: read_past(self.run_dir), run.journal, run.members)
        self._trainer = _Kept(lambda: read_object(run.trainer) or {}, run.trainer)
        self._steps = MetricsReader.of_run(self.run_dir)
        self._pace = StepPace()
        self._metrics: StepMetrics | None = None
        self._trials = TrialScanner(self.run_dir)
        self._procs = ProcSampler()
        self._causes: dict[tuple[str, int], Cause | None] = {}

    def poll(self) -> Snapshot | None:
        """The last known state, with what can be seen of it now; None where nothing tells one. Files that are
        missing, cut or damaged are passed over. Must not be called while a backend lives: that one knows."""
        now = time.time()
        last, plan, result, past = self._last.get(), self._plan.get(), self._result.get(), self._past.get()
        history = past.history
        if last is None and not self._run.is_run() and not history.attempt:
            return None
        if last is not None and last.attempt < history.attempt:
            last = None  # of an earlier attempt
        alive = backend_alive(self.run_dir, now=now)
        record = alive.record
        host = record.host if record is not None else last.backend.host if last is not None else hostname()
        died_at = self._last_sign(last, record, now)
        remains = OrphanedServices(
            self.run_dir,
            past,
            plan,
            here=host == hostname(),
            same_boot=_same_boot(history.era, record),
            words=_why(host, result),
            died_at=died_at,
        )
        services = self._services(remains, last)
        state = _state(result, alive, last)
        metrics, trainer = self._read_metrics(), self._trainer.get()
        trials = self._scan(last, now)
        lives = host != hostname() or any(s.members for s in services)  # or may do so
        if result is not None or (isinstance(alive, DeadBackend) and not lives):
            trials = cut_off(trials)  # nobody is left who could finish them
        known = last if last is not None else self._nothing(plan)
        snapshot = msgspec.structs.replace(
            known,
            seq=self._seq(known),
            at=now,
            run_dir=str(self.run_dir),
            state=state,
            phase=_phase(state, result, host, alive, now - died_at, bool(history.attempt or last)),
            attempt=max(known.attempt, history.attempt),
            backend=_backend(known, record),
            started_at=history.attempt_started_at
            or known.started_at
            or (record.started_at if record else died_at),
            services=services,
            replicas=left_replicas(known.replicas, services, remains),
            proxy=left_proxy(known.proxy, services, remains),
            step=_most(trainer.get("step"), metrics and metrics.step, result and result.steps, known.step),
            total_steps=_most(trainer.get("total_steps")) or (plan and plan.total_steps) or known.total_steps,
            step_seconds=self._pace.seconds or known.step_seconds,
            metrics=metrics or known.metrics,
            policy_version=_most(trainer.get("policy_version"), known.policy_version),
            trials=trials,
            gpus=tuple(left_gpu(gpu, services) for gpu in known.gpus),
            gpu_note="not measured: no backend" if known.gpus else known.gpu_note,
            host=self._procs.host() if host == hostname() else HostStats(),
            symptoms=(),
            result=result,
        )
        return msgspec.structs.replace(snapshot, symptoms=self._symptoms(snapshot, known.symptoms))

    # --- files ---

    def _read_plan(self) -> Plan | None:
        try:
            return moved.read_plan(self._run.plan.read_bytes())
        except (OSError, ValueError):
            return None

    def _read_event(self) -> Event | None:
        """The newest one."""
        decoder = msgspec.json.Decoder(Event)
        try:
            for line in lines_backwards(self._run.events):
                try:
                    return decoder.decode(line)
                except ValueError:
                    continue
        except OSError:
            return None
        return None

    def _seq(self, known: Snapshot) -> int:
        event = self._event.get()
        return event.seq if event is not None else known.seq

    def _last_sign(self, last: Snapshot | None, record: BackendRecord | None, now: float) -> float:
        """When the backend was seen last: it beats into its record, and writes events and snapshots."""
        event = self._event.get()
        signs = [last.at if last else 0.0, event.at if event else 0.0, record.started_at if record else 0.0]
        for path in (self._run.backend, self._run.plan, self._run.path):
            try:
                signs.append(os.stat(path).st_mtime)
                break
            except OSError:
                continue
        return max((sign for sign in signs if 0.0 < sign <= now), default=now)

    def _read_metrics(self) -> StepMetrics | None:
        for _ in range(_POLLS):
            resets = self._steps.resets
            try:
                news = self._steps.poll()
            except OSError:
                break
            if self._steps.resets != resets:
                self._pace.clear()
            if not news:
                break
            self._metrics = news[-1]
            self._pace.add(news, time.monotonic(), fresh=False)
        return self._metrics

    def _scan(self, last: Snapshot | None, now: float) -> TrialsStatus:
        found = self._trials.scan(now=now)
        # A first look at many trials may take several polls.
        counted = self._trials.unread == 0 or last is None or found.total >= last.trials.total
        return found if counted or last is None else last.trials

    # --- parts ---

    def _nothing(self, plan: Plan | None) -> Snapshot:
        """Where no snapshot can be read: what the directory says of itself."""
        return Snapshot(
            seq=0,
            at=0.0,
            run=plan.run if plan is not None else self._run.name,
            run_dir=str(self.run_dir),
            state="dead",
            phase="",
            attempt=0,
            topology=plan.topology if plan is not None else "managed",
            backend=BackendInfo(pid=0, started_at=0.0, host=hostname(), version=__version__),
            started_at=0.0,
        )

    def _services(self, remains: OrphanedServices, last: Snapshot | None) -> tuple[ServiceStatus, ...]:
        shown = {s.name: s for s in last.services} if last is not None else {}
        names = [*shown, *(n for n in remains.names() if n not in shown)]
        living = {name: remains.living(name) for name in names}
        trees = self._procs.sample({name: [pid for pid, _ in found] for name, found in living.items()})
        return tuple(
            msgspec.structs.replace(
                remains.status(name, shown.get(name), living[name]),
                tree=trees[name] if trees[name].processes else TreeStats(),
            )
            for name in names
        )

    def _symptoms(self, snapshot: Snapshot, before: tuple[Symptom, ...]) -> tuple[Symptom, ...]:
        """Of a run that has ended: those it ended with. Else what can be judged by files alone. Nobody is there
        to apply a fix."""
        if snapshot.result is not None and before:
            return tuple(msgspec.structs.replace(s, action=None) for s in before)
        causes = {s.name: c for s in snapshot.services if (c := self._cause(s)) is not None}
        seen = Window(snapshot, None, RunContext(causes=causes))
        since = {symptom.id: symptom.since for symptom in before}
        found = [s for rule in FILE_RULES for s in rule.look(seen) if isinstance(s, Symptom)]
        return tuple(
            msgspec.structs.replace(s, since=s.since or since.get(s.id) or snapshot.at, action=None)
            for s in found
        )

    def _cause(self, service: ServiceStatus) -> Cause | None:
        if service.state not in ("failed", "gave_up") or service.log is None:
            return None
        key = (service.name, service.generation)
        if key not in self._causes:
            try:
                found = find_cause(self.run_dir / service.log)
            except (OSError, ValueError):
                found = None
            self._causes[key] = (
                Cause(service.name, found[0], service.since, service.log, found[1]) if found else None
            )
        return self._causes[key]


def _same_boot(era: str, record: BackendRecord | None) -> bool:
    """Whether the numbers of processes still mean what they meant."""
    if era:
        return era == procfs.pid_era()
    return record is None or record.boot_id == procfs.boot_id()


def _why(host: str, result: Result | None) -> str:
    if host != hostname():
        return f"it runs on host {host}" if result is None else f"it ran on host {host}"
    return "the backend is not running" if result is None else "the run has ended"


def _state(result: Result | None, alive: object, last: Snapshot | None) -> RunState:
    if result is not None:
        return result.state
    if isinstance(alive, RemoteBackend):
        return last.state if last is not None and last.state != "dead" else "running"
    return "dead"


def _phase(
    state: RunState, result: Result | None, host: str, alive: object, silent: float, began: bool
) -> str:
    where = f"on host {host}" if host != hostname() else ""
    if result is not None:
        return result.summary or state
    if isinstance(alive, RemoteBackend):
        return f"{where}: read from its files"
    if isinstance(alive, DeadBackend) and alive.record is None and not began:
        return "never started"
    died = f"backend exited {_ago(silent)} ago; showing the run's files"
    return f"{where}: no heartbeat for {_ago(silent)}" if where else died


def _ago(seconds: float) -> str:
    total = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if total >= length:
            return f"{total // length}{unit}"
    return f"{total}s"


def _backend(known: Snapshot, record: BackendRecord | None) -> BackendInfo:
    if record is None:
        return known.backend
    same = known.backend.pid == record.pid
    return BackendInfo(
        pid=record.pid,
        started_at=record.started_at,
        host=record.host,
        version=record.version,
        keeper_pid=known.backend.keeper_pid if same else None,
    )


def _most(*numbers: Any) -> int | None:
    """The greatest of what is a whole number."""
    known = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    return max(known) if known else None
