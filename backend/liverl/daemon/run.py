"""One attempt of a run: the supervisor joined to replicas and observer, its verdict, and what clients see and ask."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from liverl.control.history import read_events
from liverl.daemon.commands import Commands
from liverl.daemon.phase import phase_words
from liverl.daemon.sampler import Sampler
from liverl.daemon.state_writer import StateWriter
from liverl.external.launch_script import LaunchScript
from liverl.external.repair import Repair
from liverl.model import (
    BackendInfo,
    Cause,
    Event,
    Result,
    RunState,
    ServiceStatus,
    Snapshot,
    TreeStats,
)
from liverl.observe.metrics.verl_phase import verl_trainer_facts
from liverl.observe.trials.scanner import cut_off
from liverl.plan.spec import Plan
from liverl.rundir.layout import hostname
from liverl.serving.endpoint import ReplicaEndpoint
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.scaling import Scaling
from liverl.supervise.services import state_machine
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor
from liverl.verl.replicas import VerlReplicas
from liverl.version import __version__

FULL_BYTES = 64 << 10  # less than a step's records need


class Verdict(msgspec.Struct, frozen=True):
    """Why the run ends. The first one counts."""

    state: str  # done, failed, stopped
    exit_code: int
    cause: Cause | None = None


class Run:
    """The handler of the control socket, and the one who decides when the run is over."""

    def __init__(self, plan: Plan, supervisor: Supervisor, started_at: float) -> None:
        settings = plan.settings
        self.plan = plan
        self.supervisor = supervisor
        self.started_at = started_at
        self.backend_started_at = supervisor.now()
        self.adopted = LaunchScript(supervisor, plan) if plan.adopted_port is not None else None
        make = ReplicaRegistry if self.adopted is None else self.adopted.replicas
        self.replicas = make(supervisor, plan, settings.cooldown, settings.replicas_interval)
        self.found: VerlReplicas | LaunchScript | None = self.adopted
        if plan.ray is not None and self.adopted is None:
            self.found = VerlReplicas(supervisor, plan.ray)
        if self.found is not None:
            self.replicas.found = self.found.endpoints
            self.replicas.judge = self.found.doing
            supervisor.found_serving = self.found.serving
        self.sampler = Sampler(
            supervisor,
            host_interval=settings.host_interval,
            gpus_interval=settings.gpus_interval,
            trials_interval=settings.trials_interval,
        )
        if self.found is not None:
            self.sampler.gpu_members = self.found.members
        self.scaling = Scaling(supervisor, plan, self.replicas, self.sampler.look_at_gpus_now)
        self.state_writer = StateWriter(supervisor, self.snapshot)
        repair = Repair(supervisor, self.adopted) if self.adopted is not None else None
        found = self.found.endpoints if self.found is not None else list[ReplicaEndpoint]
        self.commands = Commands(supervisor, self.scaling, self.sampler, self.request_stop, found, repair)
        self.verdict: Verdict | None = None
        self.result: Result | None = None
        self.over = asyncio.Event()
        self._stuck_since: float | None = None
        self._was_ready = False
        self._stop_noted = False
        supervisor.on_change = self.on_change

    def start(self) -> None:
        """Begin to start services, and to look."""
        self.supervisor.start()
        self.sampler.start()
        self.supervisor.spawn_task(self.supervisor.forever(self._look_at_replicas))
        if self.found is not None:
            self.supervisor.spawn_task(self.supervisor.forever(self.found.look))
        self.supervisor.spawn_task(self.supervisor.forever(self.state_writer.look))

    async def _look_at_replicas(self) -> float:
        facts, told = self.sampler.facts, None
        if self.plan.ray is not None:
            told = verl_trainer_facts(facts.metrics, facts.trials, self.plan.trials_per_step)
            if self.found is not None and self.found.total_steps is not None:
                # verl's own, where the configuration leaves it open
                told["total_steps"] = self.found.total_steps
        return await self.replicas.look(facts.trials, told)

    # --- deciding ---

    def on_change(self) -> None:
        """Something changed in the services: lists, verdict, end."""
        with self.supervisor.records.guarded():  # a run whose lists are at fault must still come to its end
            self.replicas.update()
        if self.verdict is None:
            self._judge()
        if self.supervisor.stopping and self.supervisor.all_ended:
            self.over.set()
        if not self._was_ready and not self.supervisor.stopping and self.ready:
            self._was_ready = True
            self.supervisor.say("run_ready", "all services are ready")

    @property
    def ready(self) -> bool:
        slots = self.supervisor.slots.values()
        return (
            bool(slots)
            and self.replicas.complete
            and all(s.state == "ready" or (s.state == "stopped" and s.spec.completes) for s in slots)
        )

    def _judge(self) -> None:
        for socket, why in self.supervisor.unheld.items():
            self.end(Verdict("failed", 1, Cause(socket.partition(".")[0], why, self.supervisor.now())))
            return
        if self.found is not None and self.found.cause is not None:
            self.end(Verdict("failed", 1, self.found.cause))
            return
        failed = self.supervisor.environments.failed
        for slot in self.supervisor.slots.values():
            machine = slot.current.machine
            name = slot.spec.environment
            if name in failed and machine.state == "waiting" and machine.wanted:
                # What runs already needs no environment any more: only who waits for it is lost.
                self.end(Verdict("failed", 1, Cause(f"env:{name}", failed[name], self.supervisor.now())))
                return
            if slot.spec.ends_run and machine.state == "stopped" and machine.wanted:
                self.end(Verdict("done", 0))
                return
            fatal = slot.spec.ends_run or slot.spec.fatal
            if fatal and machine.state in ("failed", "gave_up") and slot.incoming is None:
                if slot.spec.kind == "replica" and slot.name not in self._wanted_replicas():
                    continue  # a failed `scale +1` is that command's failure
                number = machine.exit.signal if machine.exit is not None else None
                self.end(Verdict("failed", 128 + number if number else 1, self._cause(slot.current)))
                return

    def _wanted_replicas(self) -> set[str]:
        if self.plan.replica_template is None:
            return {s.name for s in self.replicas.slots()}
        return {self.scaling.name_of(i) for i in range(self.plan.expected_replicas)}

    def _cause(self, instance: Instance) -> Cause:
        """The line of its log that says why it ended, else its state's reason; and why it is not started again,
        if that has a reason of its own."""
        process, machine = instance.process, instance.machine
        how = machine.exit.words() if machine.exit is not None else ""
        reason = machine.last_failure or machine.why or how
        also = ""
        if process is not None and process.generation != machine.generation and how:
            reason, also = how, f"; {machine.why}"  # its next generation could not even be started
        if self._disk_is_full() and os.strerror(errno.ENOSPC) not in reason:
            also += f"; {os.strerror(errno.ENOSPC)} in {self.supervisor.run_dir}"  # its log may have been cut
        if instance.spec.kind == "trainer" and self.found is not None and (dead := self.found.dead()):
            also += f"; {dead}"  # verl ends some seconds after one of its replicas
        says = self.supervisor.records.log_says
        tells = machine.exit is not None and not machine.shut_down
        found = says(process.log, process.log_start) if process is not None and tells else None
        if process is None or found is None or (machine.exit is not None and machine.exit.signal == 9):
            return Cause(instance.name, reason + also, self.supervisor.now())
        text, offset = found
        if (
            machine.exit is not None and machine.exit.ok
        ):  # of a server: its log seldom says that this is a fault
            text += f"; {reason}"
        log = str(process.log.relative_to(self.supervisor.run_dir))
        return Cause(instance.name, text + also, self.supervisor.now(), log, offset)

    def _disk_is_full(self) -> bool:
        try:
            return shutil.disk_usage(self.supervisor.run_dir).free < FULL_BYTES
        except OSError:
            return False

    def end(self, verdict: Verdict, *, now: bool = False) -> None:
        """Give the verdict and stop everything in order."""
        if self.verdict is None:
            self.verdict = verdict
            cause = verdict.cause
            if verdict.state == "failed" and cause is not None:
                self.supervisor.say("run_failed", f"the run failed: {cause.text}", "error", cause.service)
            elif verdict.state == "done":
                self.supervisor.say("run_done", "training has completed; stopping the rest")
        record = {"k": "stop", "now": now, "verdict": msgspec.to_builtins(self.verdict)}
        self.supervisor.records.journal_soon(record)
        self.supervisor.begin_stop(now=now)

    def resume_stop(self, record: Mapping[str, Any]) -> None:
        """The stop that an earlier backend had begun."""
        self.verdict = msgspec.convert(record["verdict"], Verdict)
        self.supervisor.begin_stop(now=bool(record.get("now")))

    def request_stop(self, *, now: bool, who: str, why: str | None = None) -> None:
        """Somebody wants the run to end; a second request escalates. ``why``: what the result says instead of who
        asked."""
        finite = any(s.spec.ends_run for s in self.supervisor.slots.values())
        how = "killing all services" if now else "stopping services in dependency order"
        self.supervisor.say("stop", f"stop requested by {who}; {how}")
        cause = Cause(None, why or f"stopped by {who}", self.supervisor.now())
        self.end(Verdict("stopped", 5 if finite else 0, cause), now=now)

    async def until_over(self) -> list[str]:
        """Wait until every service has ended; returns the processes that could not be killed."""
        while True:
            try:
                # Nothing can be stuck before a stop has gone through its stages.
                async with asyncio.timeout(1.0 if self.supervisor.stopping else 5.0):
                    await self.over.wait()
                await self.supervisor.environments.closed()
                left = await self.supervisor.process_scan.sweep_strays()
                return [f"pid {pid}" for pid in left]
            except TimeoutError:
                pass
            stuck = self.supervisor.process_scan.stuck()
            now = self.supervisor.now()
            slots = self.supervisor.slots.values()
            if not self.supervisor.stopping or not stuck or not all(map(self.supervisor.hopeless, slots)):
                self._stuck_since = None  # the others are still being ended
                self.supervisor.kick()  # or may be, now that so much time has passed
            elif self._stuck_since is None:
                self._stuck_since = now
            elif now - self._stuck_since > self.plan.settings.stuck_after:
                await self.supervisor.process_scan.sweep_strays()
                return stuck

    def conclude(self, left: list[str]) -> Result:
        """The attempt's result, once everything has ended (or would not)."""
        verdict = self.verdict or Verdict("stopped", 5)
        code, summary = verdict.exit_code, verdict.state
        known = self.state_writer.diagnosis
        if left:
            code, summary = 75, f"{verdict.state}, but some processes could not be killed: {', '.join(left)}"
        elif verdict.cause is not None:
            because = f"{known.title}: " if known is not None and verdict.state == "failed" else ""
            summary = f"{verdict.state}: {because}{verdict.cause.text}"
        elif verdict.state == "done":
            summary = f"done: {self.sampler.learning_words() or 'completed'}"
            if known is not None:  # it has reached its last step, and that is all
                summary += f"; but {known.title}"
        state = verdict.state if verdict.state in ("done", "failed", "stopped") else "failed"
        self.result = Result(
            state=state,  # type: ignore[arg-type]
            exit_code=code,
            cause=verdict.cause if verdict.state != "done" else None,
            steps=self._step() or 0,
            started_at=self.started_at,
            ended_at=self.supervisor.now(),
            attempt=self.supervisor.attempt,
            summary=summary,
        )
        return self.result

    def _step(self) -> int | None:
        metrics = self.sampler.facts.metrics
        step = self.replicas.trainer.get("step")
        known = [s for s in (step, metrics.step if metrics else None) if isinstance(s, int)]
        return max(known) if known else None

    # --- what clients see ---

    @property
    def state(self) -> RunState:
        if self.result is not None:
            return self.result.state
        if self.supervisor.stopping:
            return "stopping"
        return "running" if self._was_ready else "starting"

    def snapshot(self) -> Snapshot:
        supervisor, facts = self.supervisor, self.sampler.facts
        services = [*supervisor.environments.statuses()]
        services += [self._service(slot, facts.trees.get(slot.name)) for slot in supervisor.slots.values()]
        services += self.adopted.services() if self.adopted is not None else ()
        replicas = self.replicas.status(facts.stages)
        total = self.replicas.trainer.get("total_steps") or self.plan.total_steps
        return Snapshot(
            seq=supervisor.records.events.seq,
            at=supervisor.now(),
            run=self.plan.run,
            run_dir=str(supervisor.run_dir),
            state=self.state,
            phase=phase_words(self.state, services, replicas, self.replicas.trainer, total),
            attempt=supervisor.attempt,
            topology=self.plan.topology,
            backend=BackendInfo(
                pid=os.getpid(),
                started_at=self.backend_started_at,
                host=hostname(),
                version=__version__,
                keeper_pid=supervisor.keeper_manager.pid,
            ),
            started_at=self.started_at,
            services=tuple(services),
            replicas=replicas,
            proxy=self.replicas.proxy_status(),
            step=self._step(),
            total_steps=total,
            step_seconds=facts.step_seconds,
            metrics=facts.metrics,
            policy_version=self.replicas.policy_version,
            trials=cut_off(facts.trials) if self.result is not None else facts.trials,
            gpus=facts.gpus,
            gpu_note=facts.gpu_note,
            host=facts.host,
            symptoms=self.state_writer.symptoms,
            result=self.result,
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
            blocked = self.supervisor.blocked_by(slot.spec)
            why = f"waiting for {blocked}" if blocked else "starting soon"
        elif machine.state == "starting" and instance.last_problem:
            why = instance.last_problem
        stage = self.sampler.facts.stages.get(slot.name) if machine.state == "starting" else None
        port = instance.port("http")
        host = slot.spec.ports[0].host if slot.spec.ports else "127.0.0.1"
        incoming = slot.incoming.process if slot.incoming is not None else None
        trees = self.supervisor.process_scan.trees.members
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
            log=str(process.log).removeprefix(f"{self.supervisor.run_dir}/") if process else None,
            address=f"http://{host}:{port}" if port else None,
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
        )

    def events_since(self, seq: int) -> list[Event]:
        kept = self.supervisor.records.events
        newest = kept.since(seq)
        if newest is not None:
            return newest
        written = list(read_events(Path(self.supervisor.run_dir), seq))
        last = written[-1].seq if written else seq
        return [*written, *(event for event in kept.newest if event.seq > last)]

    # --- what clients ask ---

    async def command(self, name: str, args: dict[str, Any], client: str) -> dict[str, Any]:
        """Carry out one command; see ``Commands``."""
        return await self.commands.run(name, args, client)
