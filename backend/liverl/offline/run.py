"""The state of a run without a backend, from its files and the process table.

Its services may still run: what they write is read, what only a backend can measure is left as last known or None.
No service without a process is reported as ready.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from liverl.control.history import end_told
from liverl.diagnose.advice import Means, means
from liverl.diagnose.muting import mutes
from liverl.diagnose.where import step_time
from liverl.model import (
    BackendInfo,
    Event,
    HostStats,
    Result,
    RunState,
    ServiceStatus,
    Snapshot,
    StepTime,
    Symptom,
    TreeStats,
    TrialsStatus,
)
from liverl.observe.metrics.rewards import judged_anew
from liverl.observe.trials.cut_off import cut_off, may_end
from liverl.observe.trials.engine_parser import engine_parser
from liverl.observe.trials.script_sampling import script_sampling
from liverl.offline.readings import FileReadings
from liverl.offline.recorded import newest_alerts
from liverl.offline.replica_names import names_of
from liverl.offline.services import (
    OrphanedServices,
    orphaned_proxy,
    orphaned_replicas,
    read_records,
    unmeasured_gpu,
)
from liverl.plan import moved
from liverl.plan.spec import Plan
from liverl.procs import procfs
from liverl.procs.stats import ProcSampler
from liverl.rundir.journal import read_object
from liverl.rundir.layout import BackendRecord, DeadBackend, RemoteBackend, RunDir, backend_alive, hostname
from liverl.supervise.services.unused_environments import unused
from liverl.util.backward_lines import lines_backwards
from liverl.util.decode import JsonDecoder
from liverl.util.regular_file import read_regular
from liverl.version import __version__

T = TypeVar("T")
REWARD_FLAT = "reward_flat"
NO_RESULT = ", before it could write the result"
NAMED = 3  # services of which the names are said; of more, their number
_ENDED = ("done", "failed", "stopped")


class _Cached(Generic[T]):
    """The result of ``read``, kept until one of the files at ``paths`` changes (time, size or inode)."""

    def __init__(self, read: Callable[[], T], *paths: Path) -> None:
        self._read = read
        self._paths = paths
        self._key: list[object] = []  # equals no key, as there is at least one path
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
    """Reads the files of one run directory; each ``poll`` includes what its services have written since.

    Not thread-safe: one poll at a time, from any thread."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.run_dir = Path(run_dir)
        run = self._run = RunDir(self.run_dir)
        self._last = _Cached(run.read_snapshot, run.snapshot)
        self._plan = _Cached(self._read_plan, run.plan)
        self._result = _Cached(run.read_result, run.result)
        self._parser = _Cached(lambda: engine_parser(self.run_dir), run.config)
        self._sampling = _Cached(lambda: script_sampling(self.run_dir), run.config)
        self._event = _Cached(self._read_event, run.events)
        self._end = _Cached(lambda: end_told(self.run_dir), run.events)
        self._records = _Cached(lambda: read_records(self.run_dir), run.journal, run.members)
        self._trainer = _Cached(lambda: read_object(run.trainer) or {}, run.trainer)
        self._files = FileReadings(self.run_dir)
        self._procs = ProcSampler()

    def poll(self) -> Snapshot | None:
        """Return the last known state, updated from files and process table; None if this is not a run directory.

        Missing, truncated and damaged files are skipped. Call it only while no backend runs: a backend has newer
        facts."""
        now = time.time()
        last, plan, result = self._last.get(), self._plan.get(), self._result.get()
        records = self._records.get()
        history = records.history
        if last is None and not self._run.is_run() and not history.attempt:
            return None
        if last is not None and last.attempt < history.attempt:
            last = None  # the snapshot is of an earlier attempt
        alive = backend_alive(self.run_dir, now=now)
        record = alive.record
        host = record.host if record is not None else last.backend.host if last is not None else hostname()
        died_at = self._last_sign(last, record, now)
        orphans = OrphanedServices(
            self.run_dir,
            records,
            plan,
            here=host == hostname(),
            same_boot=_same_boot(history.era, record),
            words=_why(host, result),
            died_at=died_at,
        )
        services = self._services(orphans, last)
        go_on = host == hostname() and any(s.members for s in services)
        state = _state(result, alive, last, go_on)
        metrics, trainer = self._files.metrics(), self._trainer.get()
        if result is not None and metrics is not None:  # else nothing that is read anew contradicts it
            course = self._files.rewards.course
            result = msgspec.structs.replace(result, summary=judged_anew(result.summary, course))
        trials = self._scan(last, now)
        may_run = host != hostname() or any(s.members for s in services)  # on another host it is unknown
        gone = isinstance(alive, DeadBackend) and host == hostname()
        if result is not None or (gone and not may_end(services)):
            trials = cut_off(trials)  # no process is left that could finish them
        if result is not None or (isinstance(alive, DeadBackend) and not may_run):
            services = tuple(unused(services, died_at if result is None else result.ended_at))
        base = last if last is not None else self._empty_snapshot(plan)
        snapshot = msgspec.structs.replace(
            base,
            seq=self._seq(base),
            at=now,
            run_dir=str(self.run_dir),
            state=state,
            phase=_phase(
                state,
                result,
                host,
                alive,
                now - died_at,
                bool(history.attempt or last),
                services,
                self._end.get() if result is None else "",
            ),
            attempt=max(base.attempt, history.attempt),
            backend=_backend(base, record),
            started_at=history.attempt_started_at
            or base.started_at
            or (record.started_at if record else died_at),
            services=services,
            replicas=orphaned_replicas(base.replicas, services, orphans),
            proxy=orphaned_proxy(base.proxy, services, orphans),
            step=_most(trainer.get("step"), metrics and metrics.step, result and result.steps, base.step),
            total_steps=(result and result.total_steps)
            or _most(trainer.get("total_steps"))
            or (plan and plan.total_steps)
            or base.total_steps,
            trials_per_step=(plan and plan.trials_per_step) or base.trials_per_step,
            step_seconds=self._files.step_seconds or base.step_seconds,
            metrics=metrics or base.metrics,
            step_time=self._step_time(base, trials, services),
            rewards=self._files.rewards if metrics is not None else base.rewards,
            policy_version=_most(trainer.get("policy_version"), base.policy_version),
            trials=trials,
            gpus=tuple(unmeasured_gpu(gpu, services) for gpu in base.gpus),
            gpu_note="not measured: no backend" if base.gpus else base.gpu_note,
            host=self._procs.host() if host == hostname() else HostStats(),
            symptoms=(),
            unreadable=(
                *(
                    msgspec.structs.replace(one, path=one.path.removeprefix(f"{self.run_dir}/"))
                    for one in self._files.unreadable
                ),
                *self._files.trials.unreadable,
            ),
            changes=plan.changes if plan is not None else base.changes,
            result=result,
        )
        if snapshot.awaits_closing:
            phase = f"training is complete; {snapshot.phase}"
            snapshot = msgspec.structs.replace(snapshot, phase=phase)
        stand = newest_alerts(self.run_dir, last)
        named = {one.id for one in stand}
        symptoms = self._symptoms(snapshot, (*stand, *(s for s in base.muted if s.id not in named)))
        mute = plan.settings.mute if plan is not None else ()
        return msgspec.structs.replace(
            snapshot,
            symptoms=tuple(s for s in symptoms if not mutes(mute, s.id)),
            muted=tuple(s for s in symptoms if mutes(mute, s.id)),
        )

    def _step_time(
        self, base: Snapshot, trials: TrialsStatus, services: tuple[ServiceStatus, ...]
    ) -> StepTime | None:
        """Where the time of the newest steps goes. Of an attempt that its backend ended it is what that has said, as in
        ``report.md``: a record that was written after its last look changes no share any more."""
        if base.result is not None and base.step_time is not None:
            return base.step_time
        names = names_of(msgspec.structs.replace(base, services=services, run_dir=str(self.run_dir)))
        return step_time(self._files.recent, trials, names, self._means()) or base.step_time

    def _means(self) -> Means:
        plan = self._plan.get()
        return Means() if plan is None else means(plan.inert, cpus=plan.cpus)

    # --- files ---

    def _read_plan(self) -> Plan | None:
        try:
            return moved.read_plan(read_regular(self._run.plan))
        except (OSError, ValueError, RecursionError):
            return None

    def _read_event(self) -> Event | None:
        """Return the newest readable event; None without one."""
        decoder = JsonDecoder(Event)
        try:
            for line in lines_backwards(self._run.events):
                try:
                    return decoder.decode(line)
                except (ValueError, RecursionError):
                    continue
        except OSError:
            return None
        return None

    def _seq(self, base: Snapshot) -> int:
        event = self._event.get()
        return event.seq if event is not None else base.seq

    def _last_sign(self, last: Snapshot | None, record: BackendRecord | None, now: float) -> float:
        """Return the Unix time of the backend's last heartbeat, event or snapshot; ``now`` without any of them."""
        event = self._event.get()
        signs = [last.at if last else 0.0, event.at if event else 0.0, record.started_at if record else 0.0]
        for path in (self._run.backend, self._run.plan, self._run.path):
            try:
                signs.append(os.stat(path).st_mtime)
                break
            except OSError:
                continue
        return max((sign for sign in signs if 0.0 < sign <= now), default=now)

    def _scan(self, last: Snapshot | None, now: float) -> TrialsStatus:
        trials = self._files.trials.scan(now=now)
        # The first scan of many trials may take several polls; until then the last snapshot has the better count.
        complete = self._files.trials.complete or last is None or trials.total >= last.trials.total
        return trials if complete or last is None else last.trials

    # --- parts ---

    def _empty_snapshot(self, plan: Plan | None) -> Snapshot:
        """Return a snapshot with only what plan and directory say, for a run without a readable snapshot."""
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
            carrier=plan.carrier if plan is not None else "proxy",
        )

    def _services(self, orphans: OrphanedServices, last: Snapshot | None) -> tuple[ServiceStatus, ...]:
        shown = {s.name: s for s in last.services} if last is not None else {}
        names = [*shown, *(n for n in orphans.names() if n not in shown)]
        living = {name: orphans.living(name) for name in names}
        trees = self._procs.sample({name: [pid for pid, _ in members] for name, members in living.items()})
        return tuple(
            msgspec.structs.replace(
                orphans.status(name, shown.get(name), living[name]),
                tree=trees[name] if trees[name].processes else TreeStats(),
            )
            for name in names
        )

    def _symptoms(self, snapshot: Snapshot, before: tuple[Symptom, ...]) -> tuple[Symptom, ...]:
        """Return the symptoms: of an ended run its last ones, else those of the rules that need files only, and of the
        others what the backend saw last.

        None has an action: without a backend no fix can be applied."""
        ended = snapshot.result is not None and bool(before)
        if ended and not any(symptom.id == REWARD_FLAT for symptom in before):
            return tuple(msgspec.structs.replace(s, action=None) for s in before)
        # The rules are a half of this program: most commands have nothing to ask them.
        from liverl.offline.judged import judged_anew_of, judged_by_files

        known = self._means()
        if ended:
            return judged_anew_of(snapshot, before, self._files.recent, known)
        plan = self._plan.get()
        self._files.ray = plan is None or plan.may_use_ray
        self._files.gpus = plan is None or not plan.cpus
        causes = {s.name: c for s in snapshot.services if (c := self._files.cause(s, snapshot.services))}
        sampling, recent = self._sampling.get(), self._files.recent
        return judged_by_files(snapshot, before, causes, self._parser.get(), sampling, recent, known)


def _same_boot(era: str, record: BackendRecord | None) -> bool:
    """Whether recorded pids still denote the same processes: no reboot and no other pid namespace since."""
    if era:
        return era == procfs.pid_era()
    return record is None or record.boot_id == procfs.boot_id()


def _why(host: str, result: Result | None) -> str:
    if host != hostname():
        return f"the run is on host {host}" if result is None else f"the run was on host {host}"
    return "the backend is not running" if result is None else "the run has ended"


def _state(result: Result | None, alive: object, last: Snapshot | None, go_on: bool) -> RunState:
    """``go_on``: whether a process of a service is left on this host."""
    if result is not None:
        return result.state
    if isinstance(alive, RemoteBackend):
        return last.state if last is not None and last.state != "dead" else "running"
    return "unsupervised" if go_on else "dead"


def _phase(
    state: RunState,
    result: Result | None,
    host: str,
    alive: object,
    silent: float,
    began: bool,
    services: Sequence[ServiceStatus],
    end: str,
) -> str:
    """``end``: why it has begun to end, as its events tell it; "" if none does."""
    where = f"on host {host}" if host != hostname() else ""
    if result is not None:
        return result.summary or state
    if isinstance(alive, RemoteBackend):
        return f"{where}: read from its files"
    if isinstance(alive, DeadBackend) and alive.record is None and not began:
        return "never started"
    left = _left_words(services) if state == "unsupervised" else "no service is left"
    died = f"backend died {_ago(silent)} ago{NO_RESULT if end else ''}; {left}"
    died = f"{end}; {died}" if end else died
    return f"{where}: no heartbeat for {_ago(silent)}" if where else died


def _left_words(services: Sequence[ServiceStatus]) -> str:
    """Which services still run: ``its services still run`` where all do that were started; else ``r1 and proxy still
    run``."""
    started = [s for s in services if s.kind != "environment" and s.state != "waiting"]
    left = [s.name for s in started if s.members]
    if not left or len(left) == len(started):
        return "its services still run"
    if len(left) > NAMED:
        return f"{len(left)} of its {len(started)} services still run"
    *others, last = left
    return f"{', '.join(others)} and {last} still run" if others else f"{last} still runs"


def _ago(seconds: float) -> str:
    total = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if total >= length:
            return f"{total // length}{unit}"
    return f"{total}s"


def _backend(base: Snapshot, record: BackendRecord | None) -> BackendInfo:
    if record is None:
        return base.backend
    same = base.backend.pid == record.pid
    return BackendInfo(
        pid=record.pid,
        started_at=record.started_at,
        host=record.host,
        version=record.version,
        keeper_pid=base.backend.keeper_pid if same else None,
    )


def _most(*numbers: Any) -> int | None:
    """Return the greatest integer of ``numbers``; values of other types are skipped, None without any integer."""
    integers = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    return max(integers) if integers else None
