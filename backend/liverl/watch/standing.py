"""Where a watched run stands: its state and phase, in words, and since when it is there. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from liverl.causes.quiet.reasons import JOB, QUIET
from liverl.daemon.phase import phase_words
from liverl.model import ReplicaSet, RunState, ServiceStatus, StepMetrics, TrialsStatus
from liverl.observe.metrics.verl_phase import verl_trainer_facts
from liverl.offline.doctor.ends import STOPS
from liverl.offline.doctor.silence import HANGS
from liverl.util.plural import quantity
from liverl.watch.scene import Scene
from liverl.watch.settings import Settings
from liverl.watch.units import MAY_BE_COPIED, UNSEEN
from liverl.watch.verdicts import Judgement

NOTHING_YET = "the folder is still empty: waiting for a log, metrics, trials or a process"
NOT_HERE = "nothing of it runs here"
READING = f"{NOT_HERE}; its logs are being read, which may tell how it ended"
ONLY_METRICS = "its metrics were lately written, or copied; its trainer is not visible from here"
ONLY_LOGS = "logs are being written; none of their processes is visible from here"
COPIES = "lately written, or copied: no process here has them open, and none has been seen to grow"
ONLY_COPIES = f"logs were {COPIES}"
UNKNOWN_KIND = (
    "it runs; its processes are of no kind that is known, and no steps were found: they are read from lines like "
    "step:1 - critic/score/mean:0.5, from metrics.jsonl and from tensorboard's files"
)
_ENDS = QUIET | {HANGS, STOPS}
_UP = ("ready", "degraded", "starting")
_SERVERS = ("replica", "proxy")  # some are known by their logs only


class Standing(msgspec.Struct, frozen=True):
    """What was found of a run. ``read``: its logs were judged once; ``writes``: its metrics are being written."""

    services: tuple[ServiceStatus, ...]
    replicas: ReplicaSet
    metrics: StepMetrics | None
    trials: TrialsStatus
    judgement: Judgement
    settings: Settings
    read: bool = True
    writes: bool = False


def standing(seen: Standing) -> tuple[RunState, str]:
    """The state of the run, and its phase in words."""
    if _goes_on(seen):
        return "running", _phase(seen)
    if seen.judgement.cause:
        return "failed", seen.judgement.cause
    if not seen.read:
        return "stopped", READING
    return ("done" if _all_steps(seen) else "stopped"), _end(seen)


def _goes_on(seen: Standing) -> bool:
    """Whether anything of the run is up. Where its trainer has ended, a log that another service wrote a moment ago is
    no sign of that; a process is one."""
    up = [one for one in seen.services if one.state in _UP]
    trainers = [one for one in seen.services if one.kind == "trainer"]
    if any(one.state in _UP for one in seen.replicas.items) or any(one.pid is not None for one in up):
        return True
    if seen.writes and not trainers:
        return True
    return bool(up) and (not trainers or any(one in up for one in trainers))


def at_rest(services: tuple[ServiceStatus, ...], state: RunState) -> tuple[ServiceStatus, ...]:
    """The services of a run in ``state``: of one that has ended, a log that grew a moment ago makes none of them ready.
    What answers at an address does so after the end, too."""
    if state not in ("done", "failed", "stopped"):
        return services
    return tuple(
        msgspec.structs.replace(
            one, state="stopped", why=one.why.replace(UNSEEN, "no process writes its log")
        )
        if one.state in _UP and one.pid is None and one.address is None
        else one
        for one in services
    )


def ended_by_its_log(settings: Settings, judgement: Judgement) -> bool:
    """Whether the training says in its log that it has ended, or is known to have ended by it. A job that was only
    submitted may run elsewhere."""
    ids = {one.id.removeprefix("log:") for one in judgement.symptoms}
    return bool(settings.closed) or not ids.isdisjoint(QUIET - {JOB})


def _phase(seen: Standing) -> str:
    hangs = next((one.title for one in seen.judgement.symptoms if one.id == f"log:{HANGS}"), "")
    if hangs:
        return hangs
    up = [one for one in seen.services if one.state in _UP]
    if not up and not seen.replicas.items:
        return ONLY_METRICS
    unseen = bool(up) and all(one.pid is None and MAY_BE_COPIED in one.why for one in up)
    copies = unseen and not seen.replicas.items
    others = all(one.kind == "task" or (one.kind in _SERVERS and one.pid is None) for one in up)
    if seen.metrics is None and not seen.replicas.items and others:
        if copies:
            return ONLY_COPIES
        return ONLY_LOGS if all(one.pid is None for one in up) else UNKNOWN_KIND
    metrics, trials, total = seen.metrics, seen.trials, seen.settings.total
    trainer: dict[str, Any] = {"step": metrics.step, "phase": "training"} if metrics is not None else {}
    if trials.total:  # only they tell a rollout from an update
        trainer = verl_trainer_facts(metrics, trials, None)
    words = phase_words("running", seen.services, seen.replicas, trainer, total, trials)
    return f"by its logs {words}; these were {COPIES}" if copies else words


def _all_steps(seen: Standing) -> bool:
    """Whether its log has all steps that were announced, and nothing says that it ended early: "stopped" is the word
    for what can be resumed."""
    ids = {one.id.removeprefix("log:") for one in seen.judgement.symptoms}
    step = seen.metrics.step if seen.metrics is not None else seen.settings.step
    return ids.isdisjoint(_ENDS) and seen.settings.total is not None and (step or 0) >= seen.settings.total


def _end(seen: Standing) -> str:
    """How a run ended of which nothing is left, as far as its logs tell: nobody else knows its exit status."""
    early = next((one.title for one in seen.judgement.symptoms if one.id.removeprefix("log:") in _ENDS), "")
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
    trained = any(one.kind == "trainer" for one in seen.services)
    ends = "its log stops" if trained else "its metrics stop"
    return f"{ends} after {after} without an end; {NOT_HERE}"


def signs(scene: Scene, trials: TrialsStatus) -> list[float]:
    """Unix times at which the run was seen to be there, where nothing says when it was launched."""
    heads = (head for head in trials.newest if not head.earlier)
    times = [
        *(one.started_at for one in scene.processes),
        *(head.started_at or head.updated_at for head in heads),
    ]
    return [*times, scene.first] if scene.first is not None else times
