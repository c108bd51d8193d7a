"""Counts of trials per training step."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from liverl.model import EarlierTrials, PhaseTimes, ReplicaTimes, SlowTrial, StepTail, StepTrials, TrialHead
from liverl.observe.trials.ending_words import DONE, ending_of
from liverl.observe.trials.phases import PHASES, slow_trial, slowness, waited
from liverl.observe.trials.rows import DAMAGED
from liverl.observe.trials.tools_offered import NOT_RECORDED, ZERO

STEPS = 50  # maximum steps shown
SLOWEST = 3  # trials of a step that are named
LEAST_TAIL = 8  # trials of a step that has a tail: the last of fewer is no exception
TAIL = 10  # one of so many trials belongs to the tail at most: the rest is no exception
WITHOUT_FEW = 0.8  # of the tail's seconds that fewer trials account for: only these are counted
LONG = 2.0  # times as long as the other trials: no trial that only began late


@dataclass(slots=True)
class Tally:
    """Counts of some trials."""

    total: int = 0
    finished: int = 0
    cut_off: int = 0
    zero: int = 0
    zero_unknown: int = 0  # those of ``zero`` of which it is not known whether they were offered tools
    # Of which it is not known whether they call tools: answers are missing in their records
    unrecorded: int = 0
    calling: int = 0
    calling_now: int = 0
    reward_sum: float = 0.0
    rewards: int = 0
    sessions: int = 0
    rewritten: int = 0
    session_tokens: int = 0
    sub_tokens: int = 0
    aside_tokens: int = 0
    dumped: int = 0
    earlier: int = 0  # trials that were run again: they do not count
    finishes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    endings: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)
    ended_by: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    failed_in: dict[str, int] = field(default_factory=dict)
    phases: dict[str, tuple[int, float, float]] = field(
        default_factory=dict
    )  # -> trials, their sum, the longest
    slowest: list[SlowTrial] = field(default_factory=list)
    waits: dict[str, float] = field(default_factory=dict)
    spans: array[float] = field(default_factory=lambda: array("d"))  # begin and end of each finished trial
    replicas: dict[str, ReplicaTimes] = field(default_factory=dict)

    def add(self, head: TrialHead) -> None:
        """Count one trial."""
        if head.earlier:
            self.earlier += 1
            return
        self.total += 1
        self.finished += head.state == "finished"
        self.cut_off += head.state == "cut_off"
        if ZERO in head.flags:
            self.zero += 1
            self.zero_unknown += head.tools_offered is None
        self.unrecorded += NOT_RECORDED in head.flags and not head.tool_calls
        if head.state != "cut_off" and head.tool_calls:
            self.calling += 1
            self.calling_now += head.state == "running"
        if head.finish_reason is not None:
            self.finishes[head.finish_reason] = self.finishes.get(head.finish_reason, 0) + 1
        if head.failure:
            kind = head.failure.partition(":")[0]
            self.failures[kind] = self.failures.get(kind, 0) + 1
        if head.state == "finished" and head.ended_by is not None:
            self.ended_by[head.ended_by] = self.ended_by.get(head.ended_by, 0) + 1
        if ending := ending_of(head):
            self.ends[ending] = self.ends.get(ending, 0) + 1
        if head.error and head.phase is not None:
            self.failed_in[head.phase] = self.failed_in.get(head.phase, 0) + 1
        for phase, seconds in head.phases.items():
            self._take_phase(phase, (1, seconds, seconds))
        if not head.dumped:
            if self._may_be_slowest(head):
                self._take_slowest([slow_trial(head)])
            if head.state == "finished":
                self._add_times(head)
        for flag in DAMAGED.intersection(head.flags):
            self.damaged[flag] = self.damaged.get(flag, 0) + 1
        if head.cause and head.outcome:
            told = f"{head.cause} {head.outcome}"
            self.endings[told] = self.endings.get(told, 0) + 1
        if (reward := head.counted_reward) is not None:
            self.reward_sum += reward
            self.rewards += 1
        if head.state == "finished" and head.rewrites is not None:
            self.sessions += 1
            self.rewritten += head.rewrites > 0
            self.session_tokens += head.completion_tokens
            self.sub_tokens += head.sub_tokens or 0
            self.aside_tokens += head.aside_tokens

    def _add_times(self, head: TrialHead) -> None:
        """What a finished trial waited for, when it ran, and what served it."""
        for what, seconds in waited(head).items():
            self.waits[what] = self.waits.get(what, 0.0) + seconds
        ran = sum(seconds for phase, seconds in head.phases.items() if phase != "queue")
        took = ran or head.took(head.last_at)
        if took is not None:
            self.spans.extend((head.last_at - took, head.last_at))
        if head.replica is not None and head.model_seconds and "moved_replica" not in head.flags:
            self._take_replica(
                head.replica, ReplicaTimes(1, head.completion_tokens, min(head.model_seconds, took or 0.0))
            )

    def _take_replica(self, name: str, times: ReplicaTimes) -> None:
        known = self.replicas.get(name, ReplicaTimes(0, 0, 0.0))
        self.replicas[name] = ReplicaTimes(
            known.trials + times.trials, known.tokens + times.tokens, known.seconds + times.seconds
        )

    def tail(self) -> StepTail | None:
        """The trials that ended last; None of fewer than ``LEAST_TAIL`` that have times."""
        spans = sorted(zip(self.spans[::2], self.spans[1::2], strict=True), key=lambda span: span[1])
        if len(spans) < LEAST_TAIL:
            return None
        ends = [end for _, end in spans]
        most = len(spans) // TAIL or 1
        few = next(
            k
            for k in range(1, most + 1)
            if ends[-1] - ends[-1 - k] >= WITHOUT_FEW * (ends[-1] - ends[-1 - most])
        )
        usual = median(end - begin for begin, end in spans[:-few])
        return StepTail(
            trials=few,
            of=len(spans),
            seconds=round(ends[-1] - ends[-1 - few], 3),
            span=round(ends[-1] - min(begin for begin, _ in spans), 3),
            long=median(end - begin for begin, end in spans[-few:]) >= LONG * usual,
        )

    def _take_phase(self, phase: str, times: tuple[int, float, float]) -> None:
        trials, total, longest = self.phases.get(phase, (0, 0.0, 0.0))
        self.phases[phase] = (trials + times[0], total + times[1], max(longest, times[2]))

    def _may_be_slowest(self, head: TrialHead) -> bool:
        """Whether it may belong to ``slowest``: most do not, which is quicker to see than to sort."""
        return len(self.slowest) < SLOWEST or slowness(head) < slowness(self.slowest[-1])

    def _take_slowest(self, slow: Iterable[SlowTrial]) -> None:
        self.slowest = sorted([*self.slowest, *slow], key=slowness)[:SLOWEST]

    def add_dumped(self, score: float | None) -> None:
        """Count one trial of which only its row in verl's dump is known."""
        self.total += 1
        self.finished += 1
        self.dumped += 1
        self.ends[DONE] = self.ends.get(DONE, 0) + 1
        if score is not None:
            self.reward_sum += score
            self.rewards += 1

    def take(self, other: Tally) -> None:
        """Add the counts of other trials."""
        self.total += other.total
        self.dumped += other.dumped
        self.earlier += other.earlier
        self.finished += other.finished
        self.cut_off += other.cut_off
        self.zero += other.zero
        self.zero_unknown += other.zero_unknown
        self.unrecorded += other.unrecorded
        self.calling += other.calling
        self.calling_now += other.calling_now
        self.reward_sum += other.reward_sum
        self.rewards += other.rewards
        self.sessions += other.sessions
        self.rewritten += other.rewritten
        self.session_tokens += other.session_tokens
        self.sub_tokens += other.sub_tokens
        self.aside_tokens += other.aside_tokens
        for mine, others in (
            (self.finishes, other.finishes),
            (self.failures, other.failures),
            (self.endings, other.endings),
            (self.damaged, other.damaged),
            (self.ended_by, other.ended_by),
            (self.ends, other.ends),
            (self.failed_in, other.failed_in),
        ):
            for name, number in others.items():
                mine[name] = mine.get(name, 0) + number

        for phase, times in other.phases.items():
            self._take_phase(phase, times)
        self._take_slowest(other.slowest)
        for what, seconds in other.waits.items():
            self.waits[what] = self.waits.get(what, 0.0) + seconds
        self.spans.extend(other.spans)
        for replica, served in other.replicas.items():
            self._take_replica(replica, served)

    def without(self, unknown: bool) -> int:
        """How many trials called no tool. ``unknown``: also of those that may have been offered none."""
        return self.zero if unknown else self.zero - self.zero_unknown


class StepTallies:
    """Counts of trials by step, and within a step by the start of the trainer that ran them. Where a later start began
    with an earlier or the same step, the trials before it do not count."""

    def __init__(self) -> None:
        self._steps: dict[int | None, dict[int, Tally]] = {}

    def add(self, head: TrialHead, start: int) -> None:
        """Count one trial of the trainer's start number ``start``."""
        self._of(head.step, start).add(head)

    def put(self, step: int, start: int, tally: Tally) -> None:
        """Add the counts of trials of one step, which the trainer's start number ``start`` ran."""
        self._of(step, start).take(tally)

    def _of(self, step: int | None, start: int) -> Tally:
        starts = self._steps.setdefault(step, {})
        tally = starts.get(start)
        if tally is None:
            tally = starts[start] = Tally()
        return tally

    def take(self, other: StepTallies) -> None:
        """Add the counts of other trials."""
        for step, starts in other._steps.items():
            for start, tally in starts.items():
                self._of(step, start).take(tally)

    def all(self) -> Tally:
        """The counts of all trials."""
        every = Tally()
        for starts in self._steps.values():
            for tally in starts.values():
                every.take(tally)
        return every

    def not_counted(self, back: WentBack, unknown: bool) -> EarlierTrials:
        """The trials that count in no step, as it was begun again after them. ``unknown``: see ``Tally.without``."""
        gone, repeated = Tally(), 0
        for step, starts in self._steps.items():
            for start, tally in starts.items():
                repeated += tally.earlier
                if back.before(step, start):
                    gone.take(tally)
        return EarlierTrials(
            gone.total, gone.finished, gone.cut_off, gone.without(unknown), gone.unrecorded, repeated
        )

    def went_back(self) -> WentBack:
        """Where the trainer began again."""
        return WentBack((start, step) for step, starts in self._steps.items() for start in starts)

    def steps(self, back: WentBack, unknown: bool) -> tuple[StepTrials, ...]:
        """The newest steps that have trials which count, newest first, ``STEPS`` at most. ``unknown``: see
        ``Tally.without``."""
        counted = self._counted(back)
        newest = sorted(counted, reverse=True)[:STEPS]
        return tuple(_step(step, self._steps[step], counted[step], unknown) for step in newest)

    def older(self, back: WentBack) -> int:
        """How many steps have trials which count, but are not among ``steps``."""
        return max(0, len(self._counted(back)) - STEPS)

    def _counted(self, back: WentBack) -> dict[int, int]:
        """Step -> the start whose trials of it count."""
        newest = {step: max(starts) for step, starts in self._steps.items() if step is not None}
        return {step: start for step, start in newest.items() if not back.before(step, start)}


def sum_of(heads: Iterable[TrialHead]) -> StepTrials | None:
    """The counts of all trials of one step, which are marked as earlier ones where it was begun again; None: none
    counts."""
    tallies = StepTallies()
    for head in heads:
        tallies.add(head, 0)
    return next(iter(tallies.steps(tallies.went_back(), unknown=True)), None)


class WentBack:
    """The steps with which each start of the trainer began, out of (start, step) of all trials."""

    def __init__(self, trials: Iterable[tuple[int, int | None]]) -> None:
        first: dict[int, int] = {}
        for start, step in trials:
            if step is not None:
                first[start] = min(step, first.get(start, step))
        self._lowest: dict[int, int] = {}  # start -> lowest step of all later ones
        lowest: int | None = None
        for start in sorted(first, reverse=True):
            if lowest is not None:
                self._lowest[start] = lowest
            lowest = first[start] if lowest is None else min(lowest, first[start])

    def __bool__(self) -> bool:
        """Whether it ever began again: without that no trial is one of before."""
        return bool(self._lowest)

    def before(self, step: int | None, start: int) -> bool:
        """Whether a later start began with ``step`` or before it."""
        return step is not None and start in self._lowest and self._lowest[start] <= step


def _step(step: int, starts: dict[int, Tally], counted: int, unknown: bool) -> StepTrials:
    tally = starts[counted]
    return StepTrials(
        step=step,
        total=tally.total,
        finished=tally.finished,
        zero_tool_calls=tally.without(unknown),
        mean_reward=tally.reward_sum / tally.rewards if tally.rewards else None,
        calling=tally.calling,
        finish_reasons=tally.finishes,
        cut_off=tally.cut_off,
        earlier=sum(other.total + other.earlier for other in starts.values()) - tally.total,
        repeated=sum(other.earlier for other in starts.values()),
        calling_now=tally.calling_now,
        sessions=tally.sessions,
        rewritten=tally.rewritten,
        session_tokens=tally.session_tokens,
        sub_tokens=tally.sub_tokens,
        aside_tokens=tally.aside_tokens,
        failures=tally.failures,
        endings=tally.endings,
        damaged=tally.damaged,
        ended_by=tally.ended_by,
        ends=tally.ends,
        failed_in=tally.failed_in,
        phases={
            phase: PhaseTimes(trials, total / trials, longest)
            for phase in PHASES
            for trials, total, longest in (tally.phases.get(phase, (0, 0.0, 0.0)),)
            if trials
        },
        slowest=tuple(tally.slowest),
        dumped=tally.dumped,
        unrecorded=tally.unrecorded,
        waits={what: round(seconds, 3) for what, seconds in tally.waits.items()},
        tail=tally.tail(),
        replicas=dict(tally.replicas),
    )
