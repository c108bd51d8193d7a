"""The current phase of a run in one line, for the header and ``status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liverl.model import Carrier, ReplicaSet, RunState, ServiceStatus, TrialsStatus

_OVER = ("stopping", "stopped", "failed", "backing_off", "gave_up")  # states of a trainer that trains no more
_PHASES = {"rollout": "rollout", "update": "policy update", "sync": "sending weights", "init": "starting"}


def phase_words(
    state: RunState,
    services: Sequence[ServiceStatus],
    replicas: ReplicaSet,
    trainer: Mapping[str, Any],
    total_steps: int | None,
    trials: TrialsStatus,
    carrier: Carrier = "proxy",
    *,
    waits: bool = False,
) -> str:
    """The first unfinished part of the start, the training step, or the end. ``trainer``: the content of
    ``trainer.json``, empty before it is written. ``total_steps``: None if unknown. ``trials``: the counts that every
    other part of the snapshot has. ``carrier``: what carries the trials. ``waits``: a breakpoint waits for a
    debugger."""
    if state == "stopping":
        running = [s.name for s in services if s.pid is not None]
        return f"stopping: {', '.join(running)}" if running else "stopping"
    if state in ("done", "failed", "stopped", "dead"):
        return state
    if waits:
        return "stopped at a breakpoint; liverl-tui events shows how to attach"
    trainer_service = next((s for s in services if s.kind == "trainer"), None)
    trains = trainer_service is not None and trainer_service.state in ("ready", "degraded") and bool(trainer)
    if state == "running" and trains:  # also while a replica is added or the proxy is replaced
        return _training_words(trainer, total_steps, trials)
    if trainer_service is not None and trainer_service.state in _OVER:  # also while its replicas end with it
        return f"trainer: {trainer_service.state.replace('_', ' ')}"
    for service in services:
        if service.kind == "environment" and service.state in ("waiting", "preparing"):
            return f"environment {service.name.removeprefix('env:')}: {service.why}"
    if trainer_service is not None and trainer_service.state == "waiting":  # for what a task makes, too
        for service in services:
            if service.kind == "task" and service.state in ("starting", "ready"):
                return f"{service.name}: {service.stage or 'running'}"
    if replicas.ready < replicas.expected:
        return f"replicas: {replicas.ready} of {replicas.expected} ready"
    carrying = next((s for s in services if s.kind == carrier), None)
    if carrying is not None and carrying.state != "ready":
        return f"{carrying.name}: {carrying.stage or carrying.state}"
    if trainer_service is None:
        return "serving"
    if trains:
        return _training_words(trainer, total_steps, trials)
    return f"trainer: {trainer_service.stage or trainer_service.state}"


def _training_words(trainer: Mapping[str, Any], total_steps: int | None, trials: TrialsStatus) -> str:
    of = f"/{total_steps}" if total_steps else ""
    step = int(trainer.get("step") or 0) + 1
    if total_steps and step > total_steps + 1 and trainer.get("phase") != "done":
        return f"{step - 1} steps done, more than the {total_steps} that were announced"
    if total_steps and step > total_steps and trainer.get("phase") != "done":
        return f"all {total_steps} steps done, the trainer is finishing"
    phase = _PHASES.get(str(trainer.get("phase")), str(trainer.get("phase")))
    if trainer.get("phase") == "rollout" and trainer.get("trials_total"):
        counted = next((s.finished for s in trials.steps if s.step == step), None)
        done = trainer.get("trials_done", 0) if counted is None else counted
        phase += f" {done}/{trainer['trials_total']} trials"
    return "training done" if trainer.get("phase") == "done" else f"step {step}{of}: {phase}"
