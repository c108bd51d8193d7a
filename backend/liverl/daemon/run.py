"""One attempt of a run: creates and connects its parts, and answers the control socket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from liverl.daemon.batch_end import BatchEndWatch
from liverl.daemon.commands import Commands
from liverl.daemon.data_check import environment_checks
from liverl.daemon.reconfigure import Reconfiguration
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.daemon.sampler import STALL_PERIOD, Sampler
from liverl.daemon.sandboxes import Sandboxes
from liverl.daemon.second_look import SecondLooks
from liverl.daemon.snapshot import SnapshotBuilder, events_since
from liverl.daemon.stack_saver import StackSaver
from liverl.daemon.state_writer import StateWriter
from liverl.daemon.verdict import RunOutcome
from liverl.exposition.server import MetricsServer
from liverl.logs.files import ray_logs
from liverl.model import Breakpoint, Cause, Event, Result, SandboxesEnd, Snapshot
from liverl.notify.notifier import Notifier, Voice
from liverl.observe.clock_jumps import ClockJumps
from liverl.observe.metrics.verl_phase import verl_trainer_facts
from liverl.observe.oom_kills import OomKills
from liverl.observe.volumes import SHARED_MEMORY, Volume, is_low
from liverl.plan.spec import Plan, ScriptOutputs
from liverl.proxy.keys import ensure_metrics_token
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.replica_source import ReplicaSource
from liverl.serving.scaling import Scaling
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.leader import LeaderProcess
from liverl.util import redact
from liverl.util.blocking_call import BlockingCalls
from liverl.util.clocks import Moment

if TYPE_CHECKING:
    from liverl.daemon.retention import Removed, Retention
    from liverl.external.launch_script import LaunchScript
    from liverl.external.outputs import OutputLinks
    from liverl.external.repair import Repair
    from liverl.hosts.nodes import Nodes
    from liverl.verl.replicas import VerlReplicas

RETENTION_S = 30.0  # seconds between two looks for steps whose files may go
CLOCKS_S = 5.0  # seconds between two looks at the clocks


class Run:
    """The parts of the backend for one attempt. ``started_at``: Unix time at which it began; None: it begins now.
    ``monotonic``: the monotonic clock at that time, if it is known and of this boot.

    Raises:
        OSError: the run directory cannot be written.
    """

    def __init__(
        self,
        plan: Plan,
        run_dir: Path,
        attempt: int,
        started_at: float | None,
        monotonic: float | None = None,
    ) -> None:
        settings = plan.settings
        self.plan = plan
        oom_kills = OomKills()
        self.supervisor = supervisor = RunSupervisor(
            plan,
            run_dir,
            attempt,
            settings.scan_interval,
            on_change=self._on_change,
            found_serving=self._found_serving,
            unwritten=self._unwritten,
            environment_checks=environment_checks(plan, run_dir / "config.yaml"),
            oom_kills=oom_kills,
            before_kill=self._before_kill,
            before_start=self._before_start,
            goes_on=None if started_at is None or monotonic is None else Moment(started_at, monotonic),
        )
        self.stacks = StackSaver(supervisor)
        self._second_looks = SecondLooks(supervisor)
        supervisor.end_causes.ray = plan.may_use_ray
        supervisor.end_causes.gpus = not plan.cpus
        if plan.ray is not None and plan.ray.temp_dir:
            supervisor.end_causes.below = partial(ray_logs, Path(plan.ray.temp_dir))
            supervisor.end_causes.ray_dir = plan.ray.temp_dir
        if plan.script is not None:
            supervisor.end_causes.logs_moved = partial(_link_logs, _output_links(run_dir, plan.script))
        began_at = started_at or supervisor.now()
        script = _launch_script(supervisor, plan)
        if script is not None:
            supervisor.end_causes.below = script.ray_logs
        self._verl = verl = _verl_replicas(supervisor, plan) if script is None else None
        self.source = source = script or verl
        self.replicas = replicas = _registry(supervisor, plan, script, source)
        self.sampler = sampler = Sampler(
            supervisor,
            host_interval=settings.host_interval,
            gpus_interval=settings.gpus_interval,
            trials_interval=settings.trials_interval,
            gpu_members=source.members if source is not None else dict,
            outputs=_output_links(run_dir, plan.script) if plan.script is not None else None,
        )
        supervisor.end_causes.strangers = sampler.strangers
        if verl is not None:
            verl.finishing = self._finishing
        self.nodes: Nodes | None = None
        if plan.ray is not None and plan.ray.hosts > 1:
            from liverl.hosts.nodes import Nodes

            asked = (None, str) if verl is None else (verl.ask_nodes, verl.filled)
            self.nodes = nodes = Nodes(supervisor, plan.ray, *asked)
            supervisor.joined_hosts = lambda: nodes.joined
            replicas.node_of = nodes.name_of
            if verl is not None:
                verl.elsewhere = nodes.elsewhere
        self.scaling = scaling = Scaling(
            supervisor, plan, replicas, sampler.look_at_gpus_now, replica_bytes=sampler.replica_bytes
        )
        self.outcome = outcome = RunOutcome(
            supervisor, replicas, scaling, source, began_at, progress=self._progress
        )
        outcome.nodes = self.nodes
        records = supervisor.records
        voice = Voice(
            supervisor.say,
            records.journal,
            lambda: outcome.state,
            records.write_failed,
            supervisor.spawn_task,
            records.guarded,
        )
        self.notifier = notifier = Notifier(plan.notify, run_dir, attempt, supervisor.now, voice)
        self.snapshots = SnapshotBuilder(supervisor, replicas, sampler, outcome, script, began_at)
        self.snapshots.nodes = self.nodes
        self.batch_end = batch_end = BatchEndWatch(supervisor, lambda: self.plan.settings)
        self.snapshots.batch_end = batch_end
        self.state_writer = StateWriter(
            supervisor,
            self.snapshots.build,
            oom_kills,
            lambda: sampler.facts,
            source,
            lambda: outcome.failure,
            lambda: notifier.unreached,
            self.stacks,
            lambda: outcome.verdict is not None and outcome.verdict.state == "stopped",
        )
        self.metrics = MetricsServer(self.snapshot, supervisor.say)
        keep = settings.keep_steps
        self.sandboxes = Sandboxes(supervisor, settings.sweep_sandboxes)
        self._retention = None if keep is None else _retention(run_dir, keep)
        self._clocks = ClockJumps()
        self._trackers: dict[str, str] = {}  # those that an event has named
        self._removals: BlockingCalls[list[Removed]] = BlockingCalls()
        repair = _repair(supervisor, script) if script is not None else None
        changing = Reconfiguration(supervisor, scaling, self._use_plan)
        stop = outcome.request_stop
        self.commands = Commands(supervisor, scaling, sampler, stop, source, changing, batch_end, repair)

    def start(self) -> None:
        """Begin to start services and to sample facts."""
        supervisor = self.supervisor
        supervisor.start()
        self.sampler.start()
        supervisor.spawn_task(supervisor.forever(self._look_at_replicas))
        if self.source is not None:
            supervisor.spawn_task(supervisor.forever(self.source.look))
        if self.nodes is not None:
            supervisor.spawn_task(supervisor.forever(self.nodes.look))
        supervisor.spawn_task(supervisor.forever(self._look_at_batch_end))
        supervisor.spawn_task(supervisor.forever(self.state_writer.look))
        supervisor.spawn_task(supervisor.forever(self._look_at_clocks))
        self.notifier.start()
        if self._retention is not None:
            supervisor.spawn_task(supervisor.forever(self._retain))
        supervisor.spawn_task(supervisor.forever(self._serve_metrics))
        if self.plan.settings.sweep_sandboxes is not None:
            supervisor.spawn_task(supervisor.forever(self.sandboxes.watch))

    def conclude(self, unkilled: list[str], sandboxes: SandboxesEnd | None = None) -> Result:
        """The attempt's result, without secrets. ``unkilled``: processes that could not be killed; empty if every
        service has ended. ``sandboxes``: what trials had in Docker."""
        result = self.outcome.conclude(
            unkilled,
            self.snapshots.step() or 0,
            self.state_writer.diagnosis,
            self.sampler.facts.rewards,
            self.snapshots.total_steps(),
            sandboxes,
        )
        if self.plan.smoke:
            result = msgspec.structs.replace(result, resume=None)  # a smoke run has no next attempt
        return redact.struct(result)

    async def _look_at_clocks(self) -> float:
        """Tell that the system's clock was set, or that the host was suspended."""
        jump = self._clocks.look()
        if jump is not None:
            self.supervisor.say(
                "clock", jump.words, "warning", step=round(jump.step, 1), suspended=round(jump.suspended, 1)
            )
        return self.supervisor.pace.until_next(CLOCKS_S, STALL_PERIOD)

    async def _look_at_batch_end(self) -> float:
        """Know when the batch job ends. Without one nothing but a change of the configuration gives it an end, and a
        change ends the pause of a quiet run."""
        pause = await self.batch_end.look()
        return pause if self.batch_end.status is not None else self.supervisor.pace.until_next(pause)

    async def _serve_metrics(self) -> float:
        """Serve metrics as the present configuration says, a change of which ends the pause of a quiet run."""
        settings = self.plan.settings
        own = partial(ensure_metrics_token, self.supervisor.run_dir)
        pause = await self.metrics.look(settings.metrics_port, settings.metrics_token_file, own)
        return self.supervisor.pace.until_next(pause)

    async def _retain(self) -> float:
        """Remove files of earlier steps' trials."""
        retention, facts = self._retention, self.sampler.facts
        assert retention is not None
        step, low, told = self.snapshots.step(), any(map(is_low, _on_disk(facts.volumes))), retention.problem
        try:
            for removed in await self._removals.call(lambda: retention.look(step, low), None):
                self.supervisor.say("retention", removed.words, step=removed.step, bytes=removed.bytes)
        except OSError as error:
            retention.problem = f"files of earlier trials cannot be removed: {error}"
        if retention.problem != told:
            self.supervisor.say("retention", retention.problem, "warning")
        return RETENTION_S

    async def _progress(self) -> int:
        await self.sampler.look_at_files()
        return self.snapshots.step() or 0

    def _use_plan(self, plan: Plan) -> None:
        """Go on with a plan in which values have changed, but no service was added or removed."""
        self.plan = self.supervisor.plan = self.scaling.plan = self.replicas.plan = plan
        self.state_writer.configuration_changed()

    # --- what the supervisor calls ---

    def _on_change(self) -> None:
        with (
            self.supervisor.records.guarded()
        ):  # an error in the replica lists must not keep the run from ending
            self.replicas.update()
        self.outcome.update()
        self.state_writer.services_changed()

    async def _before_kill(self, instance: Instance, why: str) -> None:
        await self.stacks.before_kill(instance, why)

    async def _before_start(self, instance: Instance) -> Cause | None:
        if self.nodes is not None and instance.spec.ends_run:
            await self.nodes.before_restart(instance.machine.failures[-1:], instance.name)
        return await self._second_looks.before(instance)

    def _unwritten(self, kind: str) -> str | None:
        return self.replicas.unwritten(kind)

    def _found_serving(self) -> int:
        return self.source.serving() if self.source is not None else 0

    def _finishing(self) -> bool:
        """Whether the trainer has made all the steps that it owes."""
        total = self.snapshots.total_steps()
        return total is not None and (self.snapshots.step() or 0) >= total

    async def _look_at_replicas(self) -> float:
        facts, trainer = self.sampler.facts, None
        if self.plan.ray is not None:
            trainer = verl_trainer_facts(facts.metrics, facts.trials, self.plan.trials_per_step)
            if self.source is not None and self.source.total_steps is not None:
                # verl's number, where the configuration sets none
                trainer["total_steps"] = self.source.total_steps
            if self.source is not None and self.source.trackers:
                trainer["trackers"] = self.source.trackers
                self._tell_trackers(self.source.trackers)
        if self._verl is not None:
            self._tell_breakpoints(self._verl.breakpoints)
        held_up = facts.held_up(self.supervisor.now()) or bool(self.snapshots.breakpoints)
        return await self.replicas.look(facts.trials, trainer, self.scaling.drain, held_up=held_up)

    def _tell_breakpoints(self, waiting: tuple[Breakpoint, ...]) -> None:
        before, self.snapshots.breakpoints = self.snapshots.breakpoints, waiting
        for one in waiting:
            if one not in before:
                words = f"{one.process or 'a process'} stopped at a breakpoint ({one.address}); to attach, run on its "
                words += f"host: {one.command}"
                self.supervisor.say("breakpoint", words, "warning", "trainer")
        if before and not waiting:
            self.supervisor.say("breakpoint", "no process waits at a breakpoint any more", service="trainer")

    def _tell_trackers(self, trackers: dict[str, str]) -> None:
        for name, where in trackers.items():
            if self._trackers.get(name) != where:
                self._trackers[name] = where
                self.supervisor.say("tracker", f"metrics are also at {name}: {where}", service="trainer")

    # --- what the control socket calls ---

    def snapshot(self) -> Snapshot:
        """The run's present state, for clients."""
        return self.snapshots.build(self.state_writer.symptoms, self.state_writer.muted)

    def events_since(self, seq: int) -> list[Event]:
        """Every event with a number above ``seq``, oldest first."""
        return events_since(self.supervisor, seq)

    async def command(self, name: str, args: dict[str, Any], client: str) -> dict[str, Any]:
        """Carry out one command of a client; returns plain data.

        Raises:
            CommandError: see ``Commands.run``.
        """
        return await self.commands.run(name, args, client)


# What only runs of some kinds have is imported at their start: others would hold it in memory to the end. Not later, as
# an upgrade may replace the files meanwhile.


def _retention(run_dir: Path, keep_steps: int) -> Retention:
    from liverl.daemon.retention import Retention

    return Retention(run_dir / "trials", keep_steps)


def _on_disk(volumes: Iterable[Volume]) -> Iterator[Volume]:
    return (volume for volume in volumes if volume.what != SHARED_MEMORY)


def _link_logs(outputs: OutputLinks, process: LeaderProcess) -> None:
    """Link what the launch script may have written just now."""
    from liverl.external.outputs import RunningScript

    with contextlib.suppress(OSError):
        outputs.link_logs(RunningScript(process.log, process.started_at))


def _output_links(run_dir: Path, script: ScriptOutputs) -> OutputLinks:
    from liverl.external.outputs import OutputLinks

    return OutputLinks(run_dir, script)


def _launch_script(supervisor: RunSupervisor, plan: Plan) -> LaunchScript | None:
    if plan.adopted_port is None:
        return None
    from liverl.external.launch_script import LaunchScript

    return LaunchScript(supervisor, plan)


def _repair(supervisor: RunSupervisor, script: LaunchScript) -> Repair:
    from liverl.external.repair import Repair

    return Repair(supervisor, script)


def _verl_replicas(supervisor: RunSupervisor, plan: Plan) -> VerlReplicas | None:
    if plan.ray is None:
        return None
    from liverl.verl.replicas import VerlReplicas

    model = plan.served_model if plan.needs_token_routes else ""
    return VerlReplicas(supervisor, plan.ray, plan.replica_token_file, model)


def _registry(
    supervisor: RunSupervisor, plan: Plan, script: LaunchScript | None, source: ReplicaSource | None
) -> ReplicaRegistry:
    cooldown, interval = plan.settings.cooldown, plan.settings.replicas_interval
    if script is not None:
        from liverl.external.launch_script import LaunchScriptReplicas

        return LaunchScriptReplicas(supervisor, plan, cooldown, interval, script)
    return ReplicaRegistry(supervisor, plan, cooldown, interval, source)
