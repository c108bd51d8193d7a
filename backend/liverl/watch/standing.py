"""Where a watched run stands: its state and phase, in words, and since when it is there. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from liverl.causes.quiet.reasons import QUIET
from liverl.daemon.phase import phase_words
from liverl.model import ReplicaSet, RunState, ServiceStatus, StepMetrics, TrialsStatus
from liverl.observe.metrics.verl_phase import verl_trainer_facts
from liverl.util.plural import quantity
from liverl.watch.scene import Scene
from liverl.watch.settings import Settings
from liverl.watch.verdicts import Judgement

NOTHING_YET = "the folder is still empty: waiting for a log, metrics, trials or a process"
NOT_HERE = "nothing of it runs here"
_UP = ("ready", "degraded", "starting")


class Seen(msgspec.Struct, frozen=True):
    """What was found of a run."""

    services: tuple[ServiceStatus, ...]
    replicas: ReplicaSet
    metrics: StepMetrics | None
    trials: TrialsStatus
    judgement: Judgement
    settings: Settings


def standing(seen: Seen) -> tuple[RunState, str]:
    """The state of the run, and its phase in words."""
    states = (*(one.state for one in seen.services), *(one.state for one in seen.replicas.items))
    if any(state in _UP for state in states):
        return "running", _phase(seen)
    if seen.judgement.cause:
        return "failed", seen.judgement.cause
    return "stopped", _end(seen)


def _phase(seen: Seen) -> str:
    metrics, trials, total = seen.metrics, seen.trials, seen.settings.total
    trainer: dict[str, Any] = {"step": metrics.step, "phase": "training"} if metrics is not None else {}
    if trials.total:  # only they tell a rollout from an update
        trainer = verl_trainer_facts(metrics, trials, None)
    return phase_words("running", seen.services, seen.replicas, trainer, total, trials)


def _end(seen: Seen) -> str:
    """How a run ended of which nothing is left, as far as its logs tell: nobody else knows its exit status."""
    early = next((one.title for one in seen.judgement.symptoms if one.id.removeprefix("log:") in QUIET), "")
    if early:
        return f"{early}; {NOT_HERE}"
    step = seen.metrics.step if seen.metrics is not None else seen.settings.step
    total = seen.settings.total
    if step is None and total is None:
        return NOT_HERE
    after = quantity(step or 0, "step") if total is None else f"{step or 0} of {quantity(total, 'step')}"
    if total is not None and (step or 0) >= total:
        return f"by its log {after} are done; {NOT_HERE}"
    if seen.settings.closed:
        return f"by its log it ended after {after}; {NOT_HERE}"
    return f"its log stops after {after} without an end; {NOT_HERE}"


def signs(scene: Scene, trials: TrialsStatus) -> list[float]:
    """Unix times at which the run was seen to be there, where nothing says when it was launched."""
    heads = (head for head in trials.newest if not head.earlier)
    times = [
        *(one.started_at for one in scene.processes),
        *(head.started_at or head.updated_at for head in heads),
    ]
    return [*times, scene.first] if scene.first is not None else times
