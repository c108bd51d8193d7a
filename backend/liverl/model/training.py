"""The trainer's metrics, the course of its rewards, and where the time of its steps goes."""

from typing import Literal

import msgspec


class StepMetrics(msgspec.Struct, frozen=True):
    """The trainer's metrics of one step: name -> value. ``not_finite``: those that are not finite numbers, as ``nan``,
    ``inf`` or ``-inf``; a file that writes ``null`` for all of them gives ``nan``."""

    step: int
    values: dict[str, float]
    not_finite: dict[str, str] = {}


class Validation(msgspec.Struct, frozen=True):
    """The validation score of the steps that have one: the metric of this name, ``key``. ``first``, ``last``: the first
    and the newest, and ``step`` of that; ``best``: the highest, at ``best_step``, the first of several; ``count``: how
    many there are, None in a snapshot of an older version."""

    key: str
    first: float
    last: float
    step: int
    best: float
    best_step: int
    count: int | None = None


class RewardCourse(msgspec.Struct, frozen=True):
    """Whether the mean reward proves that the run learns (``observe.metrics.rewards.course_of``), and from which step
    on that holds; None where the whole run is meant, or nothing is known. ``early``: too few steps to say; ``unclear``:
    enough steps, but noise covers what they do; ``solved``: nothing left to learn from these tasks; ``nearly_solved``:
    little, as a trial fails now and then."""

    verdict: Literal["early", "unclear", "learning", "flat", "falling", "solved", "nearly_solved"]
    since: int | None = None

    @property
    def proved(self) -> bool:
        """Whether the rewards say anything."""
        return self.verdict not in ("early", "unclear")


class Trained(msgspec.Struct, frozen=True):
    """How many of the trials of some steps were trained, with any reward. A trainer's mean reward is of these alone."""

    trained: int
    trials: int

    @property
    def all(self) -> bool:
        """Whether none was left out."""
        return self.trained >= self.trials


class MostUntrained(msgspec.Struct, frozen=True):
    """``steps`` of ``of`` steps had more trials that were not trained than trained ones; ``newest``: the last of
    them, and ``trained``: how many of its trials were."""

    steps: int
    of: int
    newest: int
    trained: Trained


class Rewards(msgspec.Struct, frozen=True):
    """Mean rewards of the steps that report one. ``first`` and ``last``: means over the first and the last three of
    them, of fewer than six both the mean of all; ``newest``: of at most 24 of them, the oldest first; ``curve``: of all
    of them, in at most 24 parts of the same length, the mean of each; empty in a snapshot of an older version;
    ``validation``: None without one; ``course``: None without a reward, and in a snapshot of an older version.
    ``first_of``, ``last_of``, ``newest_of``: the trials that the means are of, and those of the newest step; None where
    the metrics do not say it, or the means have the others as 0; ``untrained``: None where no step is such."""

    steps: int = 0
    first: float | None = None
    last: float | None = None
    newest: tuple[float, ...] = ()
    curve: tuple[float, ...] = ()
    validation: Validation | None = None
    course: RewardCourse | None = None
    first_of: Trained | None = None
    last_of: Trained | None = None
    newest_of: Trained | None = None
    untrained: MostUntrained | None = None


class Bottleneck(msgspec.Struct, frozen=True):
    """What most of a step waits for. ``share``: of its time, 0..1; ``what``: tail, waves, tool, sandbox, verifier,
    replica, reward, log_probs, update, weights, checkpoint or validation; ``sentence``: with what to do about it;
    ``key``: of the configuration, that moves it, or for a replica a command; "" if none of this run does."""

    share: float
    what: str
    sentence: str
    key: str


class StepTime(msgspec.Struct, frozen=True):
    """Where the time of a step goes, as the median of the newest ``steps`` steps, in ``seconds`` each. ``shares``: of
    each part, 0..1, the largest first: generate, or model, tool, sandbox, verifier and agent in its place where it is
    known what the trials waited for; reward, log_probs, update, weights, checkpoint, validation, other. ``bottleneck``:
    None if nothing certain can be said; ``slower``: which part takes longer than in the first steps; "" if none does.
    ``queue``: the share of the trials' time, 0..1, before they ran, as fewer run at once than there are; None: not
    known; ``queue_key``: of the configuration, that limits how many run at once; "" if that is not known, or more at
    once cannot help; ``engine``: the share, 0..1, of the trials' wait for the model that the engines themselves took
    for answers of the last minute; None: not known; ``cpus_full``: whether the CPUs of the host were; None: not
    known."""

    steps: int
    seconds: float
    shares: dict[str, float]
    bottleneck: Bottleneck | None = None
    slower: str = ""
    queue: float | None = None
    queue_key: str = ""
    engine: float | None = None
    cpus_full: bool | None = None
