"""The state of a run's trials."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from liverl.model.times import UnixTime

NOT_TRAINED = ("masked", "dropped")  # outcomes, words of ``agents.endings``


class TrialHead(msgspec.Struct, frozen=True):
    """Summary of one trial. ``state`` is *running* until its result exists; a trial without a result is *cut_off*
    once the run has ended, or the trainer that ran it."""

    name: str
    step: int | None
    task: str
    state: Literal["running", "finished", "cut_off"]
    turns: int  # finished assistant turns
    tool_calls: int
    reward: float | None
    finish_reason: str | None  # of the last turn
    completion_tokens: int
    replica: str | None  # API base or replica name that served the last turn
    started_at: UnixTime | None
    updated_at: UnixTime
    # zero_tool_calls, moved_replica, failed_turns, mostly_sub, no_reward; not_recorded: the record of an answered call
    # has no answer; of its proxy_trajectory.json: zero_logprobs,
    # mask_mismatch, unreadable
    flags: tuple[str, ...] = ()
    path: str = ""  # relative to the run directory
    # While the trial has called no tool: the format (a title of ``observe.trials.tool_formats``) that its text
    # resembles; None if it resembles none.
    writes: str | None = None
    ended_at: UnixTime | None = None  # Unix seconds
    # submit, max_iterations, ..., or the type of an exception, as its result says
    ended_by: str | None = None
    group: str = ""  # its prompt among those of the step: verl's uid, or a number
    preview: str = ""  # the last tool call or the last words of the model, at most 80 characters
    # The trainer was started again after it, and went back to its step or before it; or it was itself run again, as
    # another trial.
    earlier: bool = False
    # Of a trial that goes through a session: how many times it went on with a changed history, and the tokens that its
    # sub-agents sampled; None if it goes through none.
    rewrites: int | None = None
    sub_tokens: int | None = None
    tools_offered: bool | None = None  # its requests offer tools; None: that is not known
    failure: str = ""  # the exception that ended it, and its message, at most 80 characters; "" without one
    # Why its sandbox could not be made, at most 400 characters: the step of its image's build that failed and that
    # step's own words, or what Docker Compose complained of. "" if it was made, or that is not known.
    sandbox_error: str = ""
    # Who caused its end, and what became of its tokens: words of ``agents.endings``; "" if its result does not say.
    cause: str = ""
    outcome: str = ""
    aside_tokens: int = 0  # tokens beside its main conversation that are not trained, as its result says
    # Why its rewards give none (NaN, text, several of which none is named reward); "" if they do
    no_reward: str = ""
    # What its recorded requests ask for, ascending; without those that ask for nothing.
    temperatures: tuple[float, ...] = ()
    top_ps: tuple[float, ...] = ()
    # Seconds of each phase that has ended: queue (from the trainer's request to its begin), setup (its sandbox, and the
    # agent in it), agent, verifier. A phase of which nothing is known is missing.
    phases: dict[str, float] = {}
    # In which it is, or in which its error was raised, else its last; None: not known
    phase: str | None = None
    phase_since: UnixTime | None = None  # when that began
    rewards: dict[str, float] = {}  # all finite numbers of its verifier, by name; capped
    error: str = ""  # type of the exception that ended it; "" without one
    model_seconds: float | None = None  # in which at least one of its calls was answered; None: not recorded
    # What it waits for now: queue, sandbox, model, tool, agent, reward or verifier; "" if that is not known, and once
    # it has ended.
    waits_for: str = ""
    # What most of its time went to, in the same words, or ``agent``; "" while it runs, and if that is not known.
    spent_on: str = ""
    # Only its row in verl's dump of the step is known: input, output and reward. What such a row does not have (turns,
    # tool calls, tokens, times) is 0 or None.
    dumped: bool = False
    kind: str = ""  # the kind of its agent (``agent.kind``): task, chat, command, harbor, ...; "": not known
    validated: int | None = (
        None  # a validation's: the step after which it ran; it counts for no step of training
    )
    repeated: bool = False  # it was run again, as another trial: then it is ``earlier``, too

    @property
    def counts(self) -> bool:
        """Whether its reward, if it has one, is one that was learned from: that of a trial which is not trained, as of
        one that failed, says nothing about its task."""
        return self.outcome not in NOT_TRAINED

    @property
    def counted_reward(self) -> float | None:
        """Its reward; None if it has none, or one that does not count."""
        return self.reward if self.counts else None

    @property
    def last_at(self) -> float:
        """Unix seconds of its end; of its last change where that is not known."""
        return self.ended_at if self.ended_at is not None else self.updated_at

    def took(self, now: float, *, over: bool = False) -> float | None:
        """Seconds that it took, or has taken at ``now`` (Unix seconds); None if it is not known when it began.
        ``over``: the run has ended, so that nothing runs any more."""
        if self.started_at is None:
            return None
        end = now if self.state == "running" and not over else self.last_at
        return max(0.0, end - self.started_at)

    def __hash__(self) -> int:
        """What is drawn of trials is kept by them."""
        return hash((self.path, self.name, self.state, self.turns, self.updated_at))


class PhaseTimes(msgspec.Struct, frozen=True):
    """A phase of the trials of one step: how many have ended it, and their seconds."""

    trials: int
    mean: float
    longest: float


class SlowTrial(msgspec.Struct, frozen=True):
    """One of the slowest trials of a step, see ``TrialHead``. ``seconds``: that it took; None while it runs."""

    name: str
    path: str
    state: Literal["running", "finished", "cut_off"]
    started_at: UnixTime | None = None
    seconds: float | None = None
    phase: str | None = None
    waits_for: str = ""
    spent_on: str = ""


class StepTail(msgspec.Struct, frozen=True):
    """The last trials of a step. ``trials`` of its ``of`` ended last, ``seconds`` behind all others; ``span``: seconds
    from the begin of the first to the end of the last trial; ``long``: they took at least twice as long as the others,
    so that they did not only begin late."""

    trials: int
    of: int
    seconds: float
    span: float
    long: bool


class ReplicaTimes(msgspec.Struct, frozen=True):
    """What one replica answered of a step: trials that it alone served, their sampled tokens, and the seconds in which
    they had a request in flight."""

    trials: int
    tokens: int
    seconds: float


class StepTrials(msgspec.Struct, frozen=True):
    """Counts over the trials of one training step. Of a step that was begun again, only the trials
    since then count; a step that is still to be begun again has none."""

    step: int
    total: int
    finished: int
    zero_tool_calls: int
    mean_reward: float | None  # of its trials that have one, without those that are not trained
    calling: int | None = None  # trials that have called a tool
    finish_reasons: dict[str, int] = {}  # finish reason of a trial's last turn -> trials
    cut_off: int = 0  # trials without a result although the run, or the trainer that ran them, has ended
    # Trials of the step that are not counted, because it was begun again after them, or they were
    earlier: int = 0
    calling_now: int = 0  # those of ``calling`` that have no result yet
    sessions: int = 0  # finished trials that went through a session
    rewritten: int = 0  # those of ``sessions`` that went on with a changed history
    session_tokens: int = 0  # tokens that were sampled in ``sessions`` ...
    sub_tokens: int = 0  # ... those of them that sub-agents sampled ...
    aside_tokens: int = 0  # ... and those beside the main conversations that are not trained
    failures: dict[str, int] = {}  # type of the exception that ended a trial -> trials
    endings: dict[str, int] = {}  # "<TrialHead.cause> <TrialHead.outcome>" -> trials
    dumped: int = 0  # those of ``finished`` that are known from verl's dump only, see ``TrialHead.dumped``
    damaged: dict[str, int] = {}  # zero_logprobs, mask_mismatch, unreadable (``TrialHead.flags``) -> trials
    ended_by: dict[str, int] = {}  # ``TrialHead.ended_by`` of the finished trials that say it -> trials
    # How its trials ended, in the words of lists (submitted, max turns, no tool call, cut off) -> trials
    ends: dict[str, int] = {}
    failed_in: dict[str, int] = {}  # phase in which an error ended a trial -> trials
    phases: dict[str, PhaseTimes] = {}  # queue, setup, agent, verifier -> the times of those that have ended
    slowest: tuple[SlowTrial, ...] = ()  # those that run first, the oldest first; then the longest; at most 3
    unrecorded: int = 0  # trials of which it is not known whether they call tools (``not_recorded``)
    # queue, sandbox, model, tool, verifier, or agent (its calls have no durations) -> seconds that the finished trials
    # waited for it, all together
    waits: dict[str, float] = {}
    tail: StepTail | None = None  # None: of less than 8 finished trials it is known when they ran
    replicas: dict[str, ReplicaTimes] = {}  # ``TrialHead.replica`` -> what it answered of the finished trials
    repeated: int = 0  # those of ``earlier`` that were run again themselves, as another trial of the step

    @property
    def running(self) -> int:
        """How many trials have no result yet and may still get one."""
        return self.total - self.finished - self.cut_off

    def ended(self, outcomes: Iterable[str]) -> dict[str, int]:
        """Who caused the end of the trials of which one of ``outcomes`` has become -> trials, the most first."""
        found: dict[str, int] = {}
        for ending, trials in self.endings.items():
            cause, _, outcome = ending.partition(" ")
            if outcome in outcomes:
                found[cause] = found.get(cause, 0) + trials
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def trained(self) -> int:
        """How many of its finished trials are trained, as far as their results say something else."""
        return self.finished - sum(self.ended(NOT_TRAINED).values())

    def expected(self, planned: int | None) -> int:
        """How many trials the step has, with those that have not begun. ``planned``: trials of a step, None if that
        is not known. A step in which nothing runs gets no more."""
        return max(self.total, planned or 0) if self.running else self.total

    @property
    def judged(self) -> int:
        """How many trials show whether tools are called: they have called one, or ended without a call."""
        return _judged(self)


class EarlierTrials(msgspec.Struct, frozen=True):
    """Trials that count in no step, as their step was begun again after them: the policy was not trained on them.
    Counts as those of ``TrialsStatus``, of which they are a part. ``repeated``: trials that were run again themselves,
    as another trial, which ``TrialsStatus`` counts nowhere."""

    total: int = 0
    finished: int = 0
    cut_off: int = 0
    zero_tool_calls: int = 0
    unrecorded: int = 0
    repeated: int = 0


class TrialsStatus(msgspec.Struct, frozen=True):
    """Counts over all trials of the run, with the newest trials and steps."""

    total: int = 0
    running: int = 0
    finished: int = 0
    zero_tool_calls: int = 0
    newest: tuple[TrialHead, ...] = ()  # newest first, capped
    steps: tuple[StepTrials, ...] = ()  # newest first, capped
    cut_off: int = 0
    dumped: int = 0  # those of ``finished`` that are known from verl's dumps only, see ``TrialHead.dumped``
    calling: int | None = None  # trials that have called a tool ...
    calling_now: int = 0  # ... and those of them that have no result yet
    unrecorded: int = 0  # trials of which that is not known, as answers are missing in their records
    older_steps: int = 0  # steps with trials that are left out of ``steps``
    earlier: EarlierTrials = EarlierTrials()

    @property
    def judged(self) -> int:
        """How many trials show whether tools are called, as of a step: any share of them is at most all."""
        return _judged(self)

    def steps_before(self, attempt: int, started_at: float) -> frozenset[int | None]:
        """The steps whose counts are those of an earlier attempt: none of their newest trials was written since this
        one, ``attempt``, began at ``started_at`` (Unix seconds). Empty in the first attempt."""
        if attempt <= 1:
            return frozenset()
        since = {head.step for head in self.newest if head.updated_at >= started_at}
        return frozenset(head.step for head in self.newest) - since


def _judged(trials: StepTrials | TrialsStatus) -> int:
    if trials.calling is None:
        return max(trials.finished - trials.dumped, trials.zero_tool_calls)
    return trials.zero_tool_calls + trials.calling
