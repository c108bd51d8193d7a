"""Rules for a run that has stopped making progress although all of its processes live. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from liverl.diagnose.catalogue.processes import waits_for_stalled
from liverl.diagnose.tracker import GOING, Resolved, Window
from liverl.model import Evidence, ServiceStatus, Snapshot, Symptom
from liverl.observe.silence import Silence

# A step that takes three times the median is late (knowledge/verl.md, §6: "step age > 3x median")
MEDIANS = 3.0
# Seconds of silence that say nothing, however short the steps are: a small checkpoint, a slow disk, a busy host.
LEAST_S = 20.0
# Seconds of silence with idle GPUs that no step explains, however long it is (knowledge/liverl.md §7 T10: a log of
# more than 30 minutes without a line). Long phases of a trainer use GPUs or the CPU, so they are not silent.
MOST_S = 1800.0
# Before the first line: an environment on a slow network disk needs five minutes to import (liverl.md §7 B18).
FIRST_LINE_S = 300.0
# Until the first step has ended there is no median. Loading takes 10 to 20 minutes and LiveRL's own script waits 30
# (liverl.md §4); a first step of 20 to 40 minutes is normal, but not without a sign for 30.
FIRST_STEP_S = 1800.0
QUOTED = 3  # processes whose innermost frames an alert quotes
_TRAINS = ("starting", "ready", "degraded")


class Limit(NamedTuple):
    """How long the silence may be, in seconds, and why so long. ``measured``: the run's own steps say so."""

    seconds: float
    why: str
    measured: bool = False


def trainer_stalled(window: Window) -> Iterator[Symptom | Resolved]:
    """The trainer lives, but nothing has shown progress for longer than its limit: no line in its logs, no step, no
    trial, no request, no token; its CPU is idle, and so is each GPU whose use is known. It is not raised while another
    alert names what the trainer waits for.

    - the alert says that stacks were saved -> read them in ``attempt_NNN/stacks/`` of the run: the function in which
      most processes wait is the place
    - the alert shows ``py-spy dump`` commands -> run them first: a restart destroys what they show
    - the stacks wait in NCCL or in a collective -> one process is missing or behind: look for the one that waits
      elsewhere
    - the stacks wait in ``get`` of Ray -> the actor that is asked hangs or is dead: look at its process, and at the
      replicas
    - you have seen enough -> ``liverl-tui restart SERVICE``
    """
    now, silence = window.now, window.beside.silence
    trainer = next((s for s in now.services if s.kind == "trainer"), None)
    if trainer is None:
        return
    name = f"trainer_stalled:{trainer.name}"
    due = None if silence is None else stalls_at(now, silence)
    if silence is None or due is None or now.at < due:
        yield Resolved(name)
        return
    allowed = limit(now, trainer, silence)
    spins = now.at - silence.since < allowed.seconds
    since = silence.without_cpu if spins else silence.since
    quiet = now.at - since
    idle = f"its {silence.gpus} GPUs are idle" if silence.gpus else "its processes use no CPU"
    evidence = [
        Evidence("only the CPU is used" if spins else f"the last sign of progress was {silence.sign}"),
        Evidence(f"limit: {allowed.seconds:.0f} s, {allowed.why}", value=allowed.seconds),
    ]
    if trainer.log is not None:
        evidence.append(Evidence("", log=trainer.log))
    stacks = window.beside.stacks
    hang = [f"{one.name} (pid {one.pid}) hangs in {one.words}" for one in stacks.saved[:QUOTED]]
    evidence[:0] = [Evidence(text) for text in hang]
    if stacks.pid is not None:
        evidence.append(Evidence(f"no stacks of pid {stacks.pid}: {stacks.problem}"))
    again = f"restart {trainer.name}, which resumes from its last checkpoint, or from the first step if there is none"
    yield Symptom(
        id=name,
        severity="critical" if allowed.measured else "warning",
        title=f"{trainer.name} makes no progress: {doing(now, trainer)}",
        cause=f"for {_time(quiet)} {_pid(trainer)} has written no line to its log and no metrics, no trial has begun "
        f"or changed, and {idle}",
        fix=f"{_looking(window)}{again}",
        evidence=tuple(evidence),
        since=since,
        action=f"restart {trainer.name}" if trainer.owner == "ours" else None,
    )


def _looking(window: Window) -> str:
    """What to look at first: the stacks that were saved, or the commands that show them."""
    stacks = window.beside.stacks
    if stacks.saved:
        return f"read where it hangs: {stacks.count} in {stacks.folder}; then "
    if stacks.pid is not None and stacks.command.startswith("sudo"):
        return f"see where it hangs: {stacks.command}; then "
    dumps = [f"py-spy dump --pid {pid} ({title})" for pid, title in window.beside.suspects]
    return f"see where it hangs: {'; '.join(dumps)}; then " if dumps else ""


def stalls_at(now: Snapshot, silence: Silence) -> float | None:
    """Unix time from which the trainer counts as stalled, if nothing shows progress until then; None if there is no
    trainer that could stall, or another alert names what it waits for. A process that spins while it waits for an idle
    GPU uses the CPU for ever: that excuses a silence for ``MOST_S`` only."""
    trainer = next((s for s in now.services if s.kind == "trainer"), None)
    if trainer is None or now.state not in GOING or trainer.state not in _TRAINS or _explained(now):
        return None
    allowed = limit(now, trainer, silence).seconds
    at = silence.since + allowed
    return min(at, silence.without_cpu + max(allowed, MOST_S)) if silence.gpus else at


def limit(now: Snapshot, trainer: ServiceStatus, silence: Silence) -> Limit:
    """How long the silence may last: ``MEDIANS`` times the median of the newest steps, between ``LEAST_S`` and
    ``MOST_S``; before a step has ended in this process, by the stage of the start. While trials of the step run, at
    least as long as a trial may take: a tool may say nothing until then, and the trial's time-out ends it."""
    median = now.step_seconds if silence.stepped and trainer.state != "starting" else None
    if median is not None and _all_done(now):
        found = Limit(MOST_S, "all steps are done and it is finishing", measured=True)
    elif median is not None:
        seconds = min(MOST_S, max(LEAST_S, MEDIANS * median))
        bounds = f"at least {LEAST_S:.0f} s and at most {MOST_S / 60:.0f} minutes"
        found = Limit(
            seconds, f"{MEDIANS:.0f} times the median step of {_time(median)}, {bounds}", measured=True
        )
    elif trainer.state == "starting" and trainer.stage is None:
        found = Limit(FIRST_LINE_S, "as long as a slow disk needs to import its packages")
    else:
        found = Limit(FIRST_STEP_S, f"as long as {trainer.stage or 'a first step'} may take")
    step = now.trials.steps[0] if now.trials.steps else None
    if step is not None and step.running and (now.step is None or step.step > now.step):
        found = max(found, Limit(silence.trial_timeout, "as long as a trial may take"))
    return found


def doing(now: Snapshot, trainer: ServiceStatus) -> str:
    """What the trainer is in the middle of: its boot stage, or the phase of its step."""
    return trainer.stage if trainer.state == "starting" and trainer.stage else now.phase


def _explained(now: Snapshot) -> bool:
    """Whether the trainer waits for something that has an alert of its own, or is not expected to be up yet."""
    replicas = now.replicas
    serving = not replicas.expected or replicas.ready > 0 or now.step is None
    return now.carrier_down is not None or not serving or waits_for_stalled(now) or bool(now.breakpoints)


def _all_done(now: Snapshot) -> bool:
    return now.total_steps is not None and (now.step or 0) >= now.total_steps


def _pid(trainer: ServiceStatus) -> str:
    return f"{trainer.name} (pid {trainer.pid})" if trainer.pid is not None else trainer.name


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} minutes"
