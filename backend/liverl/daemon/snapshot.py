"""The snapshot of a run that clients see, and the events that they have missed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.control.history import read_events
from liverl.daemon.batch_end import BatchEndWatch
from liverl.daemon.phase import phase_words
from liverl.daemon.sampler import Sampler
from liverl.daemon.verdict import RunOutcome
from liverl.diagnose.advice import means
from liverl.diagnose.where import NewestStepTime
from liverl.model import BackendInfo, Breakpoint, Event, ServiceStatus, Snapshot, Symptom, TreeStats
from liverl.observe.boot.stages import Stage
from liverl.observe.trials.cut_off import cut_off
from liverl.observe.trials.phases import seen_by_sessions
from liverl.observe.trials.replica_names import replica_names
from liverl.rundir.layout import hostname
from liverl.serving.registry import ReplicaRegistry
from liverl.supervise.services import state_machine
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor
from liverl.supervise.services.unused_environments import unused
from liverl.version import __version__

if TYPE_CHECKING:
    from liverl.external.launch_script import LaunchScript
    from liverl.hosts.nodes import Nodes


class SnapshotBuilder:
    """Builds snapshots from the parts of the backend. ``script``: the launch script whose services were adopted; None
    if there is none. ``started_at``: Unix time at which the attempt began."""

    def __init__(
        self,
        supervisor: Supervisor,
        replicas: ReplicaRegistry,
        sampler: Sampler,
        outcome: RunOutcome,
        script: LaunchScript | None,
        started_at: float,
    ) -> None:
        self._supervisor = supervisor
        self._replicas = replicas
        self._sampler = sampler
        self._outcome = outcome
        self._script = script
        self._started_at = started_at
        self.nodes: Nodes | None = None  # of a run on several hosts
        self.batch_end: BatchEndWatch | None = None
        self.breakpoints: tuple[Breakpoint, ...] = ()
        self._step_time = NewestStepTime()
        self._backend_started_at = supervisor.now()

    def build(self, symptoms: tuple[Symptom, ...], muted: tuple[Symptom, ...] = ()) -> Snapshot:
        """The run's present state, with these symptoms, and those that are muted."""
        supervisor, facts = self._supervisor, self._sampler.facts
        result = self._outcome.result
        services = supervisor.environments.statuses()
        if result is not None:
            services = unused(services, result.ended_at)
        services += [self._service(slot, facts.trees.get(slot.name)) for slot in supervisor.slots.values()]
        services += self._script.services() if self._script is not None else ()
        replicas = self._replicas.status(self._stages())
        services = _replicas_together(services, [replica.name for replica in replicas.items])
        sessions = self._replicas.sessions_status()
        trials = cut_off(facts.trials) if result is not None else facts.trials
        if sessions is not None:
            silent = sessions.silent
            trials = seen_by_sessions(trials, (one.id for one in silent), len(silent))
        total = self.total_steps()
        return Snapshot(
            seq=supervisor.records.events.seq,
            at=supervisor.now(),
            run=supervisor.plan.run,
            run_dir=str(supervisor.run_dir),
            state=self._outcome.state,
            phase=phase_words(
                self._outcome.state,
                services,
                replicas,
                self._replicas.trainer,
                total,
                trials,
                supervisor.plan.carrier,
                waits=bool(self.breakpoints),
            ),
            attempt=supervisor.attempt,
            topology=supervisor.plan.topology,
            backend=BackendInfo(
                pid=os.getpid(),
                started_at=self._backend_started_at,
                host=hostname(),
                version=__version__,
                keeper_pid=supervisor.keeper_manager.pid,
                keeper_stalled=facts.keeper_stalled,
            ),
            started_at=self._started_at,
            services=tuple(services),
            replicas=replicas,
            proxy=self._replicas.proxy_status(),
            sessions=sessions,
            sandboxes=facts.sandboxes,
            carrier=supervisor.plan.carrier,
            step=self.step(),
            total_steps=total,
            trials_per_step=self._supervisor.plan.trials_per_step,
            step_seconds=facts.step_seconds,
            metrics=facts.metrics,
            rewards=facts.rewards,
            trackers=self._replicas.trainer.get("trackers") or {},
            policy_version=self._replicas.policy_version,
            trials=trials,
            gpus=facts.gpus if self.nodes is None else self.nodes.gpus(facts.gpus),
            gpu_note=facts.gpu_note,
            host=facts.host,
            disk=facts.disk,
            symptoms=symptoms,
            muted=muted,
            unreadable=(*self._replicas.unreadable, *facts.unreadable),
            changes=supervisor.plan.changes,
            smoke=bool(supervisor.plan.smoke),
            result=result,
            nodes=() if self.nodes is None else self.nodes.measured(),
            batch_end=None if self.batch_end is None else self.batch_end.status,
            breakpoints=self.breakpoints,
            step_time=self._step_time.of(
                facts.recent,
                facts.trials,
                replica_names(services, replicas),
                means(supervisor.plan.inert, cpus=supervisor.plan.cpus),
                replicas=replicas.items,
                # Of several hosts the others may have room.
                cpu_percent=facts.host.cpu_percent if self.nodes is None else None,
            ),
        )

    def _service(self, slot: Slot, stats: TreeStats | None) -> ServiceStatus:
        instance, machine, process = slot.current, slot.current.machine, slot.current.process
        live = (
            process is not None
            and machine.state in (*state_machine.LIVE, "stopping")
            and not machine.leader_gone
        )
        why = machine.why
        if machine.state == "waiting" and machine.wanted:
            blocked = self._supervisor.blocked_by(slot.spec)
            why = f"waiting for {blocked}" if blocked else "starting soon"
        elif machine.state == "starting" and instance.last_problem:
            why = instance.last_problem
        stage = self._stage(slot) if machine.state == "starting" else None
        port = instance.port("http")
        incoming = slot.incoming.process if slot.incoming is not None else None
        trees = self._supervisor.process_scan.trees.members
        members = {p for i in slot.instances() for p, _ in trees.get(i.key, ())}
        return ServiceStatus(
            name=slot.name,
            kind=slot.spec.kind,
            owner=slot.spec.owner,
            state=machine.state,
            why=why,
            since=machine.since,
            pid=process.pid if live and process else None,
            generation=machine.generation,
            restarts=slot.restarts,
            # ``relative_to`` would be half of the cost of a snapshot.
            log=str(process.log).removeprefix(f"{self._supervisor.run_dir}/") if process else None,
            address=f"http://{slot.spec.host}:{port}" if port else None,
            ports=dict(process.ports) if process else {},
            gpus=process.gpus if process else (),
            depends_on=tuple(d.on for d in slot.spec.depends_on),
            started_at=process.started_at if process else None,
            ready_at=machine.ready_at,
            exit=machine.exit,
            stage=stage[0] if stage else None,
            progress=stage[1] if stage else None,
            incoming_pid=incoming.pid if incoming else None,
            retiring_pids=tuple(i.process.pid for i in slot.retiring if i.process is not None),
            deadline=machine.deadline,
            members=tuple(sorted(members)),
            tree=stats or TreeStats(),
            stalled=self._sampler.facts.stalled.get(slot.name, ()),
            down_since=machine.down_since,
            failed_at=state_machine.failed_at(machine),
            failure=state_machine.failure(machine),
        )

    def _stage(self, slot: Slot) -> Stage | None:
        """How far the present process is, by its own log: not that of the process before it."""
        process = slot.current.process
        return self._sampler.facts.stages.get(process.log) if process is not None else None

    def _stages(self) -> dict[str, Stage]:
        found = ((slot.name, self._stage(slot)) for slot in self._supervisor.slots.values())
        return {name: stage for name, stage in found if stage is not None}

    def total_steps(self) -> int | None:
        """How many steps the trainer is to do; None if that is not known."""
        verdict = self._outcome.verdict
        owed = verdict.total_steps if verdict is not None else None
        total = owed or self._replicas.trainer.get("total_steps") or self._supervisor.plan.total_steps
        return total if isinstance(total, int) else None

    def step(self) -> int | None:
        """Number of the newest training step that has ended, by the trainer or by its metrics; None before the
        first."""
        metrics = self._sampler.facts.metrics
        step = self._replicas.trainer.get("step")
        numbers = [s for s in (step, metrics.step if metrics else None) if isinstance(s, int)]
        return max(numbers) if numbers else None


def events_since(supervisor: Supervisor, seq: int) -> list[Event]:
    """Every event with a number above ``seq``, oldest first: from memory, and those no longer in memory from the run's
    file."""
    event_log = supervisor.records.events
    in_memory = event_log.since(seq)
    if in_memory is not None:
        return in_memory
    written = list(read_events(Path(supervisor.run_dir), seq))
    last = written[-1].seq if written else seq
    return [*written, *(event for event in event_log.newest if event.seq > last)]


def _replicas_together(services: list[ServiceStatus], order: Sequence[str]) -> list[ServiceStatus]:
    """Return the services with all replicas at the place of the first of them, in the ``order`` of their names:
    replicas that were added later do not stand behind the trainer."""
    place = {name: index for index, name in enumerate(order)}
    replicas = [service for service in services if service.kind == "replica"]
    if not replicas:
        return services
    first = services.index(replicas[0])
    replicas.sort(key=lambda service: place.get(service.name, len(place)))
    others = [service for service in services if service.kind != "replica"]
    return [*others[:first], *replicas, *others[first:]]
