"""When what happened in one step: its parts, what each trial did, which replicas answered, how busy the GPUs were.

Read from the files of a run, live or ended: the step's event for its end, verl's ``timing_s/*`` for its parts, the
records of its trials for their phases and calls, and ``history.jsonl`` for the GPUs. What a source does not say is in
``unknown``, in words, and drawn as nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from liverl.diagnose.where import parts
from liverl.model import TrialHead, TrialsStatus, UnixTime
from liverl.observe.history import INTERVAL, read_history
from liverl.observe.trials.cut_off import cut_off_head, of_present
from liverl.observe.trials.phases import AGENT, MODEL, PHASES, WAITS, beside_calls
from liverl.observe.trials.replica_names import replica_name
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.step_times import FinishedStep, StepTimes
from liverl.observe.trials.steps import heads_of_step
from liverl.observe.trials.trajectory import Trajectory, read_trajectory
from liverl.util.plural import quantity

LEFT = "what is drawn is of an earlier attempt: the present one has not reached this step again"
MOST_TRIALS = 256  # trials of a step whose records are read: about a second for the turns of so many
# The order in which verl's trainers do the parts of a step (main_ppo ``fit``); it does not tell when each begins.
ORDER = (
    parts.GENERATE,
    parts.REWARD,
    parts.LOG_PROBS,
    parts.UPDATE,
    parts.WEIGHTS,
    parts.CHECKPOINT,
    parts.VALIDATION,
    parts.OTHER,
)


class Span(msgspec.Struct, frozen=True):
    """``what``: queue, sandbox, model, tool, verifier, or agent where the calls have no durations. Unix seconds."""

    what: str
    begin: UnixTime
    end: UnixTime


class TrialLane(msgspec.Struct, frozen=True):
    """One trial. ``version``: of the weights when it began; ``behind``: how many versions that is behind the newest one
    of the step's trials. None: not known."""

    name: str
    path: str
    state: str
    reward: float | None
    spans: tuple[Span, ...]
    version: int | None = None
    behind: int | None = None


class ReplicaLane(msgspec.Struct, frozen=True):
    """The calls that one replica answered: begin and end of each."""

    name: str
    calls: tuple[tuple[UnixTime, UnixTime], ...]


class GpuLane(msgspec.Struct, frozen=True):
    """A GPU's use, 0..1, at some moments; about one each ten seconds."""

    uuid: str
    use: tuple[tuple[UnixTime, float], ...]

    @property
    def mean(self) -> float:
        """Over all of its moments."""
        return fmean(share for _, share in self.use)


class StepTimeline(msgspec.Struct, frozen=True):
    """``begin`` and ``end``: of the step, Unix seconds, None if neither its event nor its trials tell; ``seconds``: as
    its trainer tells; ``parts``: their seconds, in the order in which they are done; ``waits``: what its trials waited
    for, the seconds of all of them together; ``running``: it has not ended; ``cut_off``: the run ended
    before it did; ``unknown``: what is not drawn, and why."""

    step: int
    begin: UnixTime | None
    end: UnixTime | None
    seconds: float | None
    running: bool
    parts: dict[str, float] = {}
    waits: dict[str, float] = {}
    trials: tuple[TrialLane, ...] = ()
    replicas: tuple[ReplicaLane, ...] = ()
    gpus: tuple[GpuLane, ...] = ()
    unknown: tuple[str, ...] = ()
    cut_off: bool = False

    @property
    def left(self) -> bool:
        """Whether all of it is of an earlier attempt, and the present one has not reached the step again."""
        return self.unknown[:1] == (LEFT,)


def read_step(
    run_dir: str | os.PathLike[str],
    step: int,
    values: Mapping[str, float],
    names: Mapping[str, str],
    now: float,
    run_ended: float | None = None,
    counts: TrialsStatus | None = None,
) -> StepTimeline:
    """The timeline of ``step``. ``values``: its metrics, empty while it runs; ``names``: see ``replica_names``;
    ``now``: Unix seconds, up to which running trials are drawn; ``run_ended``: when the run ended, Unix seconds, None
    while it goes on: nothing is drawn behind it; ``counts``: of the trials of the run, by which a step is known that
    its present attempt has not reached again. Blocking.

    Raises:
        OSError: the storage failed.
    """
    times = StepTimes(run_dir)
    heads = sorted(heads_of_step(run_dir, step, times), key=lambda head: head.started_at or head.updated_at)
    starts = TrainerStarts(run_dir)
    starts.poll()
    marked = heads if counts is None else of_present(heads, starts, counts)
    present = [head for head in marked if not head.earlier]
    left = bool(marked) and not present  # nothing else is known of this step: it is drawn, with a mark
    heads = list(map(cut_off_head, marked)) if left else present
    read = [
        (head, read_trajectory(Path(run_dir) / head.path)) for head in heads[:MOST_TRIALS] if not head.dumped
    ]
    return timeline(
        step,
        values,
        times.finished,
        read,
        len(heads),
        _gpu_samples(run_dir, times.finished, step),
        names,
        now,
        run_ended,
        left=left,
    )


def timeline(
    step: int,
    values: Mapping[str, float],
    finished: Sequence[FinishedStep],
    trials: Sequence[tuple[TrialHead, Trajectory]],
    total: int,
    gpus: Mapping[str, Sequence[tuple[float, float]]],
    names: Mapping[str, str],
    now: float,
    run_ended: float | None = None,
    left: bool = False,
) -> StepTimeline:
    """The timeline of a step out of what was read. ``total``: of its trials, of which ``trials`` are the first ones;
    ``run_ended``: see ``read_step``; ``left``: all of them are of an earlier attempt, and the present one has not
    reached the step again. Pure."""
    now = now if run_ended is None else run_ended
    seconds, found = parts.seconds_of(values), parts.parts_of(values)
    lanes = [_lane(head, trial, now) for head, trial in trials]
    newest = max((lane.version for lane in lanes if lane.version is not None), default=None)
    lanes = [
        msgspec.structs.replace(lane, behind=newest - lane.version)
        if newest is not None and lane.version is not None
        else lane
        for lane in lanes
    ]
    begin, end = _bounds(step, seconds, parts.beside(values), finished, lanes)
    over = any(one.step == step for one in finished) or bool(values)
    if not over and begin is not None and not left:
        end = max(now, end or now)
    replicas = _replicas([trial for _, trial in trials], names)
    used = [
        GpuLane(uuid, tuple((at, use) for at, use in samples if _within(at, begin, end)))
        for uuid, samples in gpus.items()
        if any(_within(at, begin, end) for at, _ in samples)
    ]
    return StepTimeline(
        step,
        begin,
        end,
        seconds,
        not over and not left and run_ended is None,
        {part: found[part] for part in ORDER if part in found},
        _waits(lanes),
        tuple(lanes),
        tuple(replicas),
        tuple(used),
        (
            *((LEFT,) if left else ()),
            *_unknown(
                over, left or run_ended is not None, found, trials, total, lanes, replicas, used, begin
            ),
        ),
        cut_off=not over and (left or run_ended is not None),
    )


def _within(at: float, begin: float | None, end: float | None) -> bool:
    return begin is not None and end is not None and begin - INTERVAL <= at <= end + INTERVAL


def _bounds(
    step: int,
    seconds: float | None,
    beside: float,
    finished: Sequence[FinishedStep],
    lanes: Sequence[TrialLane],
) -> tuple[float | None, float | None]:
    """Begin and end: from the event of the step's end and its length, else from its trials. Trials that began before,
    as in asynchronous training, belong to it.

    The event says between which two looks the metrics were written. Within these the step ends so that it begins with
    its first trial: else its rollouts would be drawn seconds behind its trials. ``beside``: the seconds from its end
    until its metrics were written, see ``parts.beside``."""
    own = next((one for one in reversed(finished) if one.step == step), None)
    before = next((one for one in reversed(finished) if one.step == step - 1), None)
    begins = [span.begin for lane in lanes for span in lane.spans]
    ends = [span.end for lane in lanes for span in lane.spans]
    end = own.by if own is not None else max(ends, default=None)
    begin = min(begins, default=None)
    if own is not None and seconds is not None:
        # Events of older versions, as in recordings, do not say since when: then it was after the step before.
        since = own.after if own.after < own.by else before.by if before is not None else own.by - seconds
        earliest, end = since - beside, own.by - beside
        if begin is not None:
            end = min(end, max(earliest, begin + seconds))
        begin = min(end - seconds, begin if begin is not None else end)
    elif begin is None and before is not None and own is not None:
        begin = before.by
    return (begin, end) if begin is not None and end is not None and begin < end else (None, None)


def _lane(head: TrialHead, trial: Trajectory, now: float) -> TrialLane:
    return TrialLane(
        head.name,
        head.path,
        head.state,
        head.reward,
        tuple(_spans(head, trial, now)),
        trial.policy_version,
    )


def _spans(head: TrialHead, trial: Trajectory, now: float) -> Iterator[Span]:
    """What a trial did when. Its phases lie one behind the other and end with it; the calls are in its agent's."""
    running = head.state == "running"
    end = now if running else head.ended_at if head.ended_at is not None else head.updated_at
    calls = sorted(
        (turn.started_at, min(end, turn.started_at + turn.seconds))
        for turn in trial.turns
        if turn.started_at is not None and turn.seconds is not None and turn.started_at <= end
    )
    at = end - sum(trial.phases.seconds.values())
    if running and trial.phases.since is not None:
        at = trial.phases.since - sum(trial.phases.seconds.values())
    seconds = dict(trial.phases.seconds)
    if running and trial.phases.last is not None and trial.phases.since is not None:
        seconds.setdefault(trial.phases.last, max(0.0, end - trial.phases.since))
    if not seconds and head.started_at is not None:
        seconds, at = {"agent": max(0.0, end - head.started_at)}, head.started_at
    for phase in PHASES:
        if phase not in seconds:
            continue
        begin, at = at, at + seconds[phase]
        if phase in WAITS:
            yield Span(WAITS[phase], begin, at)
        elif not calls:
            yield Span(AGENT, begin, at)
        else:
            yield from _calls(calls, begin, at, beside_calls(head))


def _calls(calls: Sequence[tuple[float, float]], begin: float, end: float, rest: str) -> Iterator[Span]:
    """The time of an agent: in its calls it waits for the model, behind each of them for ``rest``. Before the first one
    no tool was called."""
    at = begin
    for first, last in calls:
        first, last = max(first, at), min(last, end)
        if last <= first:
            continue
        if first > at:
            yield Span(rest if at > begin else AGENT, at, first)
        yield Span(MODEL, first, last)
        at = last
    if at < end:
        yield Span(rest, at, end)


def _waits(lanes: Sequence[TrialLane]) -> dict[str, float]:
    found: dict[str, float] = {}
    for lane in lanes:
        for span in lane.spans:
            found[span.what] = found.get(span.what, 0.0) + span.end - span.begin
    return {what: round(seconds, 3) for what, seconds in found.items()}


def _replicas(trials: Sequence[Trajectory], names: Mapping[str, str]) -> list[ReplicaLane]:
    calls: dict[str, list[tuple[float, float]]] = {}
    for trial in trials:
        for turn in trial.turns:
            if turn.replica is not None and turn.started_at is not None and turn.seconds is not None:
                calls.setdefault(replica_name(turn.replica, names), []).append(
                    (turn.started_at, turn.started_at + turn.seconds)
                )
    return [ReplicaLane(name, tuple(sorted(calls[name]))) for name in sorted(calls)]


def _unknown(
    over: bool,
    ended: bool,
    found: Mapping[str, float],
    trials: Sequence[tuple[TrialHead, Trajectory]],
    total: int,
    lanes: Sequence[TrialLane],
    replicas: Sequence[ReplicaLane],
    gpus: Sequence[GpuLane],
    begin: float | None,
) -> Iterator[str]:
    if not over and ended:
        yield "the run ended during this step: the trainer reports the times of its parts only at its end"
    elif not over:
        yield "the step is still running: the trainer reports the times of its parts when it ends"
    elif not found:
        yield "the trainer did not report the times of this step's parts (timing_s/*)"
    if not total:
        yield "no trial of this step is recorded"
    elif not any(lane.spans for lane in lanes):
        yield "the trials of this step have no recorded times"
    elif total > len(trials):
        yield f"only {len(trials)} of {quantity(total, 'trial')} are drawn"
    if any(lane.spans for lane in lanes) and not replicas:
        yield "the records do not say which replica answered"
    if not gpus:
        yield "no GPU use was recorded during this step"
    if begin is None:
        yield "the start and end of this step are unknown"


def _gpu_samples(
    run_dir: str | os.PathLike[str], finished: Sequence[FinishedStep], step: int
) -> dict[str, list[tuple[float, float]]]:
    """UUID -> (Unix seconds, use) since the end of the step before."""
    before = next((one.by for one in reversed(finished) if one.step < step), 0.0)
    samples: dict[str, list[tuple[float, float]]] = {}
    for sample in read_history(run_dir, before - INTERVAL):
        for uuid, use in sample.gpus.items():
            if use.utilization is not None:
                samples.setdefault(uuid, []).append((sample.at, use.utilization))
    return samples
