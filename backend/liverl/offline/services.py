"""The services of a run without a backend, from its journal, the keeper's exit files and the process table.

Read-only and tolerant: malformed records and files are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import msgspec

from liverl.model import (
    Clients,
    Exit,
    GpuStatus,
    ProxyStatus,
    ReplicaSet,
    ReplicaStatus,
    ServiceKind,
    ServiceState,
    ServiceStatus,
    TreeStats,
)
from liverl.plan.spec import Plan, ServiceSpec
from liverl.procs import procfs
from liverl.procs.tree import Member
from liverl.rundir.journal import JournalContent
from liverl.rundir.layout import RunDir
from liverl.serving.proxy_counters import ProxyCounters, counts_of, ended_counts
from liverl.supervise.recovery import evidence
from liverl.supervise.recovery.replay import Intent, RunHistory, ServiceHistory
from liverl.supervise.services import state_machine
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular


class _ExitFile(msgspec.Struct):
    exit: Exit | None = None


@dataclass(frozen=True)
class RunRecords:
    """What a run directory has recorded of its services' processes.

    ``processes``: service -> its last recorded processes, of any generation; they may have exited since."""

    history: RunHistory
    processes: Mapping[str, Set[Member]]


def read_records(run_dir: Path) -> RunRecords:
    """Read the journal and the last recorded process trees, completed by what the exit files and the tags of processes
    show. Without all of them the history is empty."""
    run = RunDir(run_dir).name
    try:
        record = evidence.read_run(run_dir, run)
    except OSError:
        record = evidence.RunRecord(RunHistory(), JournalContent())
    evidence.rebuild(record, run_dir, run)
    history = record.history
    processes: dict[str, set[Member]] = {}
    for key, tree in history.members.items():
        processes.setdefault(key.rpartition(".")[0], set()).update(tree)
    for service, generations in history.generations.items():
        for past in generations.values():
            if past.pid is not None and past.tick is not None:
                processes.setdefault(service, set()).add((past.pid, past.tick))
    return RunRecords(history, processes)


def anything_left(run_dir: Path) -> bool:
    """Whether a recorded process of the run's services still runs on this host.

    False after a reboot or in another pid namespace, where recorded pids mean nothing."""
    records = read_records(run_dir)
    if records.history.era != procfs.pid_era():
        return False
    return any(procfs.alive(*member) for tree in records.processes.values() for member in tree)


@dataclass(frozen=True)
class OrphanedServices:
    """The services of a run without a backend.

    ``here``: they run, or ran, on this host. ``same_boot``: recorded pids still denote the same processes."""

    run_dir: Path
    records: RunRecords
    plan: Plan | None
    here: bool
    same_boot: bool
    words: str  # why running services are not supervised: "the backend is not running"
    died_at: float  # Unix time of the backend's last heartbeat, event or snapshot

    def living(self, service: str) -> set[Member]:
        """Return the recorded processes of ``service`` that still run; none if their pids cannot be checked here."""
        if not self.here or not self.same_boot:
            return set()
        return {
            (pid, tick) for pid, tick in self.records.processes.get(service, ()) if procfs.alive(pid, tick)
        }

    @property
    def history(self) -> RunHistory:
        """What the journal says of attempts and generations; empty without a journal."""
        return self.records.history

    def status(self, service: str, base: ServiceStatus | None, living: set[Member]) -> ServiceStatus:
        """Return the present status of ``service``: its recorded state, corrected by which processes still run.

        ``base``: its status in the last snapshot, if any. ``living``: see ``living``."""
        past = self.history.current(service)
        status = self._as_journalled(service, base, past)
        pid = past.pid if past is not None else None
        if pid is None and base is not None:
            pid = base.pid  # the journal has no pid; the check against ``living`` below decides
        if not self.here:
            ended = status.state in state_machine.ENDED or status.kind == "environment"
            why = status.why if ended else f"last known state; {self.words}"
            return msgspec.structs.replace(status, pid=None if ended else pid, why=why, tree=TreeStats())
        status = msgspec.structs.replace(
            status,
            pid=None,
            members=tuple(sorted(p for p, _ in living)),
            tree=TreeStats(),
            deadline=None,
            incoming_pid=_pid(self.history.incoming(service), living),
            retiring_pids=tuple(
                leader for old in self.history.retiring(service) if (leader := _pid(old, living)) is not None
            ),
        )
        if pid is not None and pid in status.members:
            state = status.state if status.state in (*state_machine.LIVE, "stopping") else "starting"
            why = f"still running; {self.words}"
            return msgspec.structs.replace(status, state=state, pid=pid, why=why, exit=None)
        return self._without_leader(status, past)

    def _without_leader(self, status: ServiceStatus, past: ServiceHistory | None) -> ServiceStatus:
        """Return the status of a service whose main process is not running: stopped, unless it had ended before,
        was not started yet or is a ready environment."""
        if status.state in state_machine.ENDED or (status.kind == "environment" and status.state == "ready"):
            return status
        if status.kind == "environment":  # it has no process that could exit
            why = f"not prepared; {self.words}"
            return msgspec.structs.replace(
                status, state="stopped", why=why, since=self.died_at, progress=None
            )
        if status.state == "waiting" and (past is None or past.pid is None):
            return msgspec.structs.replace(status, why=f"not started; {self.words}")
        exit_ = (past.exit if past is not None else None) or self._exit_file(status)
        why = f"exited: {exit_.words()}" if exit_ is not None and exit_.known else "exited"
        if status.members:
            why += f"; {len(status.members)} of its processes are still running"
        since = exit_.at if exit_ is not None and exit_.at is not None else self.died_at
        served = status.state in state_machine.SERVING
        return msgspec.structs.replace(
            status,
            state="stopped",
            why=why,
            since=since,
            exit=exit_,
            down_since=since if served else status.down_since,
            failure=exit_.words() if served and exit_ is not None else status.failure,
        )

    def _exit_file(self, status: ServiceStatus) -> Exit | None:
        """Return the exit that the keeper recorded; None if it recorded none. The keeper outlives the backend."""
        path = self.run_dir / "exits" / f"{status.name}.{status.generation}.json"
        try:
            return decode_json(read_regular(path), type=_ExitFile).exit
        except (OSError, ValueError, RecursionError):
            return None

    # --- names ---

    def spec(self, service: str) -> ServiceSpec | None:
        """Return what the plan says of ``service`` (for replicas the template); None if the plan lacks it."""
        if self.plan is None:
            return None
        template = self.plan.replica_template
        if template is not None and service in self._replica_names():
            return template
        return next((s for s in self.plan.services if s.name == service), None)

    def _replica_names(self) -> list[str]:
        plan = self.plan
        if plan is None or plan.replica_template is None:
            return []
        wanted = self.history.replicas if self.history.replicas is not None else range(plan.expected_replicas)
        indices = sorted({*wanted, *self.history.leaving})
        return [plan.replica_template.name.replace("{index}", str(index)) for index in indices]

    def names(self) -> list[str]:
        """Return all services of plan and journal: first the plan's, in its order.

        Others, such as replicas removed by scaling down, follow only while a process of them runs; without a plan,
        always."""
        planned = (
            [*self._replica_names(), *(s.name for s in self.plan.services if self.plan)] if self.plan else []
        )
        removed = [n for n in self.history.generations if n not in planned]
        return [*planned, *(n for n in removed if self.plan is None or self.living(n))]

    def _as_journalled(
        self, name: str, base: ServiceStatus | None, past: ServiceHistory | None
    ) -> ServiceStatus:
        spec = self.spec(name)
        status = base or ServiceStatus(
            name=name,
            kind=spec.kind if spec is not None else _kind(name),
            owner=spec.owner if spec is not None else "ours",
            state="waiting",
            why="",
            since=self.died_at,
            pid=None,
            generation=0,
            restarts=0,
            log=None,
            depends_on=tuple(d.on for d in spec.depends_on) if spec is not None else (),
        )
        if past is None:
            return status
        intent = past.intent or Intent()
        port = intent.ports.get("http")
        host = spec.host if spec is not None else "127.0.0.1"
        state: ServiceState = past.machine.state if past.machine is not None else "starting"
        return msgspec.structs.replace(
            status,
            state=state,
            why=_why(past.machine, spec) if past.machine is not None else "",
            since=past.machine.since if past.machine is not None else intent.at or self.died_at,
            generation=past.generation,
            restarts=max(0, past.generation - self.history.base.get(name, 0) - 1),
            log=intent.log or status.log,
            address=f"http://{host}:{port}" if port else None,
            ports=intent.ports,
            gpus=intent.gpus,
            started_at=intent.at,
            ready_at=past.machine.ready_at if past.machine is not None else None,
            exit=past.exit or (past.machine.exit if past.machine is not None else None),
            stage=None,
            progress=None,
            down_since=past.machine.down_since if past.machine is not None else None,
            failed_at=state_machine.failed_at(past.machine) if past.machine is not None else None,
            failure=state_machine.failure(past.machine) if past.machine is not None else "",
        )


def _why(machine: state_machine.MachineState, spec: ServiceSpec | None) -> str:
    if machine.completed and machine.wanted and spec is not None and not spec.completes:
        return state_machine.UNASKED_EXIT  # older versions said that it had completed
    return machine.why


_KINDS: dict[str, ServiceKind] = {"proxy": "proxy", "sessions": "sessions", "trainer": "trainer"}


def _kind(name: str) -> ServiceKind:
    """Guess the kind of a service by its name, for runs without a readable plan."""
    if name.startswith("replica-"):
        return "replica"
    return _KINDS.get(name, "task")


def _pid(past: ServiceHistory | None, living: set[Member]) -> int | None:
    return past.pid if past is not None and (past.pid, past.tick) in living else None


# --- replicas, proxy and GPUs ---------------------------------------------------------------------------


def orphaned_replicas(
    last: ReplicaSet, services: Sequence[ServiceStatus], orphans: OrphanedServices
) -> ReplicaSet:
    """Return the replicas of ``last`` (the last snapshot), updated from ``services``.

    Facts that need a request to an engine are dropped. On another host ``last`` is returned unchanged, unless it is
    empty."""
    if not orphans.here and last.items:
        return last
    shown = {item.name: item for item in last.items}
    items = []
    for service in services:
        if service.kind != "replica":
            continue
        item = shown.get(service.name) or ReplicaStatus(
            name=service.name, state=service.state, address=None, listed=False
        )
        items.append(
            msgspec.structs.replace(
                item,
                state=service.state,
                address=service.address if service.pid is not None else None,
                listed=item.listed and service.pid is not None,
                generation=service.generation,
                restarts=service.restarts,
                gpus=service.gpus,
                since=service.since,
                engine=item.engine.lasting(),
                stage=None,
                progress=None,
                idle_for=None,
            )
        )
    items += [_orphaned_actor(item, services, orphans) for item in last.items if item.kind == "verl"]
    ready = sum(i.state in ("ready", "degraded") for i in items)
    plan = orphans.plan
    expected = last.expected or (plan.expected_replicas if plan is not None else len(items))
    return ReplicaSet(expected, ready, sum(i.listed for i in items), tuple(items))


_NOT_BEGUN = ("waiting", "preparing")  # states of a replica that has no process yet


def _orphaned_actor(
    item: ReplicaStatus, services: Sequence[ServiceStatus], orphans: OrphanedServices
) -> ReplicaStatus:
    """Return the status of a replica managed by verl. It counts as running only while the trainer runs too."""
    training = any(s.kind == "trainer" and s.pid is not None for s in services)
    running = training and item.pid is not None and procfs.alive(item.pid, None)
    state, why = item.state, f"still running; {orphans.words}"
    if not running and state == "failed":
        why = item.why
    elif not running:
        state = "stopped"
        if item.state in _NOT_BEGUN and item.pid is None and item.address is None:
            why = "was not started yet" if training else "was never started: the trainer ended first"
        else:
            why = "its process has exited" if training else "exited with the trainer"
    return msgspec.structs.replace(
        item,
        state=state,
        why=why,
        listed=item.listed and running,
        address=item.address if running else None,
        pid=item.pid if running else None,
        activity=None,
        activity_since=None,
        engine=item.engine.lasting(),
        stage=None,
        progress=None,
        idle_for=None,
    )


class _Report(msgspec.Struct):
    """The status file that a proxy process writes."""

    backends: tuple[str, ...] = ()
    cooled_down: tuple[str, ...] = ()
    requests: int | None = None
    failures: int | None = None
    unattributed: int = 0
    refused: int = 0
    unknown_models: dict[str, int] = {}
    too_large: int = 0
    unrecorded: int = 0
    turned_away: int = 0
    dropped: int = 0
    descriptors: int | None = None
    descriptor_limit: int | None = None
    record_error: str | None = None
    clients: Clients | None = None


def orphaned_proxy(
    last: ProxyStatus, services: Sequence[ServiceStatus], orphans: OrphanedServices
) -> ProxyStatus:
    """Return the proxy's status with the counters of its status file, or of ``last`` if that is unreadable.

    A proxy that is not running has no backends; on another host ``last`` is returned unchanged."""
    service = next((s for s in services if s.kind == "proxy"), None)
    if service is None or not orphans.here:
        return last
    if service.pid is None:
        return msgspec.structs.replace(
            last, backends=(), cooled_down=(), descriptors=None, descriptor_limit=None, clients=None
        )
    path = orphans.run_dir / "proxy" / f"status.{service.generation}.json"
    try:
        report = decode_json(read_regular(path), type=_Report)
        counts = counts_of(msgspec.structs.asdict(report))
        counts = sum(ended_counts(path.parent, {service.generation}).values(), counts)
    except (OSError, ValueError, RecursionError):
        report = _Report()
        counts = ProxyCounters(
            last.requests or 0,
            last.failures or 0,
            last.unattributed,
            last.refused,
            last.unknown,
            last.too_large,
            last.unrecorded,
            last.turned_away,
            last.dropped,
        )
    return ProxyStatus(
        address=last.address or service.address,
        backends=report.backends,
        config=last.config,
        generation=service.generation,
        requests=counts.requests,
        failures=counts.failures,
        unattributed=counts.unattributed,
        refused=counts.refused,
        unknown=counts.unknown,
        unknown_models=tuple(report.unknown_models) or last.unknown_models,
        cooled_down=report.cooled_down,
        too_large=counts.too_large,
        unrecorded=counts.unrecorded,
        turned_away=counts.turned_away,
        dropped=counts.dropped,
        descriptors=report.descriptors,
        descriptor_limit=report.descriptor_limit,
        record_error=report.record_error,
        clients=report.clients,
    )


def unmeasured_gpu(last: GpuStatus, services: Sequence[ServiceStatus]) -> GpuStatus:
    """Return a GPU of the last snapshot without its measurements; its owner is the running service that has it."""
    holder = next((s.name for s in services if last.uuid in s.gpus and s.pid is not None), None)
    return GpuStatus(
        index=last.index,
        uuid=last.uuid,
        name=last.name,
        utilization=None,
        memory_used=None,
        memory_total=last.memory_total,
        power_w=None,
        power_limit_w=last.power_limit_w,
        temperature_c=None,
        owner=holder or "unknown (not measured)",
        node=last.node,
    )
