"""Trials that will not end any more, and trials of a step that was begun again after them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from liverl.model import ServiceStatus, SlowTrial, StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials.ending_words import CUT_OFF
from liverl.observe.trials.phases import slow_trial
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.step_times import StepTimes
from liverl.observe.trials.tallies import WentBack


def may_end(services: Iterable[ServiceStatus]) -> bool:
    """Whether a process of a run without a backend is left that may end its trials: the trainer, which runs them. Where
    the run has none, agents outside of it call its replicas for as long as one of its services runs."""
    services = tuple(services)
    trainers = [one for one in services if one.kind == "trainer"]
    return any(one.members for one in trainers or services)


def cut_off(trials: TrialsStatus) -> TrialsStatus:
    """Mark the unfinished trials of a run that has ended as cut off."""
    if not trials.running:
        return trials

    newest = tuple(map(cut_off_head, trials.newest))
    cut = {head.path: slow_trial(head) for head in newest if head.state == "cut_off"}

    def slow_ended(slow: SlowTrial) -> SlowTrial:
        if slow.state != "running":
            return slow
        # Of one that is not among the newest it is not known for how long it ran.
        return cut.get(slow.path, msgspec.structs.replace(slow, state="cut_off", waits_for=""))

    def ended(step: StepTrials) -> StepTrials:
        """A step whose running trials are cut off too."""
        calling = step.calling - step.calling_now if step.calling is not None else None
        return msgspec.structs.replace(
            step,
            cut_off=step.total - step.finished,
            ends=step.ends | {CUT_OFF: step.total - step.finished} if step.running else step.ends,
            calling=calling,
            calling_now=0,
            slowest=tuple(map(slow_ended, step.slowest)),
        )

    calling = trials.calling - trials.calling_now if trials.calling is not None else None
    return msgspec.structs.replace(
        trials,
        running=0,
        calling=calling,
        calling_now=0,
        cut_off=trials.cut_off + trials.running,
        newest=newest,
        steps=tuple(map(ended, trials.steps)),
    )


def cut_off_head(head: TrialHead) -> TrialHead:
    """Mark one trial as cut off, if it is unfinished."""
    return msgspec.structs.replace(head, state="cut_off", waits_for="") if head.state == "running" else head


def with_starts(heads: Iterable[TrialHead], starts: TrainerStarts) -> list[TrialHead]:
    """Mark those of ``heads`` whose trainer has ended before they had a result, and those whose step was begun again
    after them. ``heads`` must contain every trial of their steps."""
    marked = [ended_with(head, starts) for head in heads]
    back = WentBack((start_of(head, starts), head.step) for head in marked)
    return [begun_again(head, starts, back) for head in marked]


def start_of(head: TrialHead, starts: TrainerStarts) -> int:
    """The number of the trainer's start that ran this trial."""
    return starts.number(age_of(head))


def in_step(head: TrialHead, starts: TrainerStarts, times: StepTimes) -> tuple[TrialHead, bool]:
    """``head`` with the step that it counts for, and whether that is final. A trial that names none has that in whose
    time it began; one from before the trainer's first start has none, nor has one of a run whose trainer was never
    started, nor one of a validation."""
    if (
        head.step is not None
        or head.validated is not None
        or not starts.newest
        or age_of(head) < starts.first
    ):
        return head, True
    step, final = times.step_of(age_of(head), head.ended_at)
    return msgspec.structs.replace(head, step=step), final


def ended_with(head: TrialHead, starts: TrainerStarts) -> TrialHead:
    """``head``, cut off if the trainer that ran it was started anew before it had a result."""
    return cut_off_head(head) if start_of(head, starts) < starts.newest else head


def begun_again(head: TrialHead, starts: TrainerStarts, back: WentBack) -> TrialHead:
    """``head``, marked if the trainer went back to its step, or to one before it."""
    earlier = back.before(head.step, start_of(head, starts))
    return msgspec.structs.replace(head, earlier=True) if earlier else head


def of_present(heads: Iterable[TrialHead], starts: TrainerStarts, trials: TrialsStatus) -> list[TrialHead]:
    """``heads``, all trials of some steps, with those marked that the present attempt has thrown away: also of a step
    that it has not reached again, which ``trials``, the counts of the run, do not name."""
    marked = with_starts(heads, starts)
    reached = max((one.step for one in trials.steps), default=None)
    if reached is None or starts.newest < 2:
        return marked
    return [
        msgspec.structs.replace(head, earlier=True)
        if head.step is not None and head.step > reached and start_of(head, starts) < starts.newest
        else head
        for head in marked
    ]


def age_of(head: TrialHead) -> float:
    """When the trial began, as far as that is known: Unix seconds."""
    return head.started_at if head.started_at is not None else head.updated_at
