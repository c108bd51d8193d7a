"""One attempt of a run: its parts, each made from those above it, and the handler of the control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from liverl.daemon.commands import Commands
from liverl.daemon.sampler import Sampler
from liverl.daemon.snapshot import SnapshotBuilder, events_since
from liverl.daemon.state_writer import StateWriter
from liverl.daemon.verdict import RunOutcome
from liverl.external.launch_script import LaunchScript, LaunchScriptReplicas
from liverl.external.repair import Repair
from liverl.model import Event, Result, Snapshot
from liverl.observe.metrics.verl_phase import verl_trainer_facts
from liverl.plan.spec import Plan
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.replica_source import ReplicaSource
from liverl.serving.scaling import Scaling
from liverl.supervise.services.supervisor import Supervisor
from liverl.verl.replicas import VerlReplicas


class Run:
    """``started_at``: Unix time at which the attempt began; None = it begins now."""

    def __init__(self, plan: Plan, run_dir: Path, attempt: int, started_at: float | None) -> None:
        settings = plan.settings
        self.plan = plan
        self.supervisor = supervisor = Supervisor(
            plan,
            run_dir,
            attempt,
            settings.scan_interval,
            on_change=self._on_change,
            found_serving=self._found_serving,
        )
        began = started_at or supervisor.now()
        script = LaunchScript(supervisor, plan) if plan.adopted_port is not None else None
        self.source = source = script or _verl_replicas(supervisor, plan)
        self.replicas = replicas = _registry(supervisor, plan, script, source)
        self.sampler = sampler = Sampler(
            supervisor,
            host_interval=settings.host_interval,
            gpus_interval=settings.gpus_interval,
            trials_interval=settings.trials_interval,
            gpu_members=source.members if source is not None else dict,
        )
        self.scaling = scaling = Scaling(supervisor, plan, replicas, sampler.look_at_gpus_now)
        self.outcome = outcome = RunOutcome(supervisor, replicas, scaling, source, began)
        self.snapshots = SnapshotBuilder(supervisor, replicas, sampler, outcome, script, began)
        self.state_writer = StateWriter(supervisor, self.snapshots.build)
        repair = Repair(supervisor, script) if script is not None else None
        self.commands = Commands(supervisor, scaling, sampler, outcome.request_stop, source, repair)

    def start(self) -> None:
        """Begin to start services, and to look."""
        supervisor = self.supervisor
        supervisor.start()
        self.sampler.start()
        supervisor.spawn_task(supervisor.forever(self._look_at_replicas))
        if self.source is not None:
            supervisor.spawn_task(supervisor.forever(self.source.look))
        supervisor.spawn_task(supervisor.forever(self.state_writer.look))

    def conclude(self, left: list[str]) -> Result:
        """The attempt's result, once everything has ended, or would not: ``left`` names what is still there."""
        return self.outcome.conclude(
            left, self.snapshots.step() or 0, self.state_writer.diagnosis, self.sampler.learning_words
        )

    # --- what the supervisor calls ---

    def _on_change(self) -> None:
        with self.supervisor.records.guarded():  # a run whose lists are at fault must still come to its end
            self.replicas.update()
        self.outcome.update()

    def _found_serving(self) -> int:
        return self.source.serving() if self.source is not None else 0

    async def _look_at_replicas(self) -> float:
        facts, told = self.sampler.facts, None
        if self.plan.ray is not None:
            told = verl_trainer_facts(facts.metrics, facts.trials, self.plan.trials_per_step)
            if self.source is not None and self.source.total_steps is not None:
                # verl's own, where the configuration leaves it open
                told["total_steps"] = self.source.total_steps
        return await self.replicas.look(facts.trials, told, self.scaling.drain)

    # --- what the control socket calls ---

    def snapshot(self) -> Snapshot:
        """The state at this moment."""
        return self.snapshots.build(self.state_writer.symptoms)

    def events_since(self, seq: int) -> list[Event]:
        """Every event after number ``seq``."""
        return events_since(self.supervisor, seq)

    async def command(self, name: str, args: dict[str, Any], client: str) -> dict[str, Any]:
        """Carry out one command.

        Raises:
            CommandError: see ``Commands.run``.
        """
        return await self.commands.run(name, args, client)


def _verl_replicas(supervisor: Supervisor, plan: Plan) -> VerlReplicas | None:
    return VerlReplicas(supervisor, plan.ray) if plan.ray is not None else None


def _registry(
    supervisor: Supervisor, plan: Plan, script: LaunchScript | None, source: ReplicaSource | None
) -> ReplicaRegistry:
    cooldown, interval = plan.settings.cooldown, plan.settings.replicas_interval
    if script is not None:
        return LaunchScriptReplicas(supervisor, plan, cooldown, interval, script)
    return ReplicaRegistry(supervisor, plan, cooldown, interval, source)
