"""Mean rewards of the run's steps, for one look at whether it learns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Literal

from liverl.model import MostUntrained, RewardCourse, Rewards, StepMetrics, Trained, Validation
from liverl.model.trials import NOT_TRAINED
from liverl.observe.metrics.names import VALIDATION, key_in, keys_of
from liverl.observe.metrics.step_lines import only_validates
from liverl.util.late_pattern import late_pattern

if TYPE_CHECKING:
    from liverl.util.direction import Heading
    from liverl.util.trend import Point

REWARD = keys_of("reward")[0]
NEWEST = 24  # steps of which the reward is kept in a snapshot: as many as a line has room for
_ENDS = 3  # steps at each end over which the mean is taken
_VERDICTS: dict[Heading, Literal["early", "unclear", "learning", "flat", "falling"]] = {
    "early": "early",
    "unclear": "unclear",
    "rising": "learning",
    "flat": "flat",
    "falling": "falling",
}
_SOLVED = {"solved": "all solved", "nearly_solved": "nearly all solved"}
ENDS_SAID = "(first and last three steps)"
_ENDING = "liverl/endings/"  # metrics of verl's steps: how many trials became what
_TRAINED = ("trained", "zeroed")  # words of ``agents.endings``, as in ``NOT_TRAINED``
_STREAMED = "fully_async/"  # a metric of trainers that take a trial which is not trained with the reward 0
_APART = 0.1  # of all trials: means of shares that differ by more cannot be compared
# A verdict that a version of this program has written behind the two means.
_SAID = late_pattern(
    rf"(?P<of>{re.escape(ENDS_SAID[:-1])}(?:; [^()]{{1,200}})?\))"
    r"(?:: (?:too early to say|no clear trend|(?:learning|flat|falling|(?:nearly )?all solved)(?: since step \d+)?))?"
)


def reward_in(values: Mapping[str, float]) -> float | None:
    """The mean reward of a step; None if its metrics do not say it."""
    key = key_in("reward", values)
    return None if key is None else values[key]


def scores_in(metrics: StepMetrics) -> dict[str, float]:
    """The validation scores that were written with a step, or alone, by their metrics; empty if it has none."""
    return {
        key: value
        for key, value in sorted(metrics.values.items())
        if key.startswith(VALIDATION) and math.isfinite(value)
    }


class RewardHistory:
    """Collects the rewards of steps in the order in which they are written."""

    def __init__(self) -> None:
        self._by_step: dict[int, float] = {}
        self._trained: dict[int, Trained] = {}  # of steps whose metrics say it
        self._streamed = False
        self._scores: dict[str, dict[int, float]] = {}  # of validations: metric -> step -> value

    def clear(self) -> None:
        """Forget all steps: the file is read again from its beginning."""
        self._by_step.clear()
        self._trained.clear()
        self._scores.clear()

    def add(self, news: Sequence[StepMetrics]) -> None:
        """Add new steps, and validations between them. A lower step than the last one is of a resumed trainer: it
        replaces the later steps."""
        for metrics in news:
            if only_validates(metrics):
                self._score(metrics)
                continue
            while self._by_step and next(reversed(self._by_step)) > metrics.step:
                self._by_step.popitem()
            self._score(metrics)
            self._count(metrics)
            if (reward := reward_in(metrics.values)) is not None:
                self._by_step[metrics.step] = reward

    def _score(self, metrics: StepMetrics) -> None:
        for scores in self._scores.values():
            while scores and next(reversed(scores)) > metrics.step:
                scores.popitem()
        for key, value in scores_in(metrics).items():
            self._scores.setdefault(key, {})[metrics.step] = value

    def _count(self, metrics: StepMetrics) -> None:
        while self._trained and next(reversed(self._trained)) > metrics.step:
            self._trained.popitem()
        self._streamed = self._streamed or any(key.startswith(_STREAMED) for key in metrics.values)
        if (found := trained_in(metrics.values)) is not None:
            self._trained[metrics.step] = found

    def _untrained(self) -> MostUntrained | None:
        few = [step for step, one in self._trained.items() if 2 * one.trained < one.trials]
        return MostUntrained(len(few), len(self._trained), few[-1], self._trained[few[-1]]) if few else None

    def _validation(self) -> Validation | None:
        key = min((key for key, scores in self._scores.items() if scores), default=None)
        if key is None:
            return None
        scores = self._scores[key]
        step, best = next(reversed(scores)), max(scores.values())
        best_step = next(at for at, value in scores.items() if value == best)
        return Validation(key, next(iter(scores.values())), scores[step], step, best, best_step, len(scores))

    def summary(self) -> Rewards:
        """The newest rewards, the means of the first and of the last three steps (of ``ends``), and the validations."""
        if not self._by_step:
            return Rewards(validation=self._validation(), untrained=self._untrained())
        steps = list(self._by_step)
        values = self._by_step.values()
        newest = list(islice(reversed(values), NEWEST))[::-1]
        every = list(values)
        points = [(float(step), value) for step, value in self._by_step.items() if math.isfinite(value)]
        return Rewards(
            len(every),
            *ends(every),
            tuple(newest),
            resampled(every, NEWEST),
            self._validation(),
            course_of(points) if points else None,
            *_of_ends(steps, self._trained, streamed=self._streamed),
            _of_steps(steps[-1:], self._trained, streamed=self._streamed),
            self._untrained(),
        )


def _of_steps(steps: Sequence[int], trained: Mapping[int, Trained], *, streamed: bool) -> Trained | None:
    """How many trials of these steps were trained; None where that is not known of each, or the others count.
    ``trained``: of the steps whose metrics say it; ``streamed``: their trainer takes the others with the reward 0."""
    if streamed or not steps or not all(step in trained for step in steps):
        return None
    found = [trained[step] for step in steps]
    return Trained(sum(one.trained for one in found), sum(one.trials for one in found))


def _of_ends(
    steps: Sequence[int], trained: Mapping[int, Trained], *, streamed: bool
) -> tuple[Trained | None, Trained | None]:
    """The same of the first and of the last three steps, or twice of all, as ``ends`` takes their means."""
    both = len(steps) < 2 * _ENDS
    first, last = (steps, steps) if both else (steps[:_ENDS], steps[-_ENDS:])
    return _of_steps(first, trained, streamed=streamed), _of_steps(last, trained, streamed=streamed)


def trained_in(values: Mapping[str, float]) -> Trained | None:
    """How many trials of a step were trained, by its metrics; None where they do not say it, or are no counts."""
    counts = [values.get(f"{_ENDING}{word}") for word in (*_TRAINED, *NOT_TRAINED)]
    known = [int(count) for count in counts if count is not None and math.isfinite(count)]
    if len(known) < len(counts) or not sum(known):
        return None
    return Trained(sum(known[: len(_TRAINED)]), sum(known))


def trained_words(of: Trained | None) -> str:
    """``of the 12 of 64 trials that were trained``; "" where all were, or it is not known."""
    if of is None or of.all:
        return ""
    return f"of the {of.trained:,} of {of.trials:,} trials that were trained"


def step_trained_words(values: Mapping[str, float]) -> str:
    """The same of one step, by its metrics; "" too where its mean has the others as 0."""
    streamed = any(key.startswith(_STREAMED) for key in values)
    return "" if streamed else trained_words(trained_in(values))


def ends_trained_words(first: Trained | None, last: Trained | None) -> str:
    """``of the 38 and the 41 of 192 trials that were trained``: what the means of the first and the last three steps
    are of; also that they cannot be compared, where these are other shares of the trials. "": see ``trained_words``."""
    if first is None or last is None or (first.all and last.all):
        return ""
    begin = f"{first.trained:,}" if first.trials == last.trials else f"{first.trained:,} of {first.trials:,}"
    told = f"of the {begin} and the {last.trained:,} of {last.trials:,} trials that were trained"
    apart = abs(first.trained / first.trials - last.trained / last.trials) > _APART
    return f"{told}, which are other shares of all trials" if apart else told


def untrained_words(untrained: MostUntrained | None) -> str:
    """``most trials of 3 of 6 steps were not trained (52 of 64 of step 6)``; "" where of each step most were."""
    if untrained is None:
        return ""
    one = untrained.trained
    example = f"{one.trials - one.trained:,} of {one.trials:,}"
    if untrained.of == 1:
        return f"most trials of step {untrained.newest} were not trained ({example})"
    which = "every step" if untrained.steps == untrained.of else f"{untrained.steps} of {untrained.of} steps"
    return f"most trials of {which} were not trained ({example} of step {untrained.newest})"


def ends_trained(
    steps: Sequence[int], series: Mapping[str, Mapping[int, float]]
) -> tuple[Trained | None, Trained | None]:
    """As ``Rewards.first_of`` and ``last_of``, of ``steps`` with a reward. ``series``: name -> its value by step."""
    counts = {key: at for key, at in series.items() if key.startswith(_ENDING)}
    found = {step: trained_in({key: at[step] for key, at in counts.items() if step in at}) for step in steps}
    streamed = any(
        key.startswith(_STREAMED) and not at.keys().isdisjoint(steps) for key, at in series.items()
    )
    return _of_ends(steps, {step: of for step, of in found.items() if of is not None}, streamed=streamed)


def ends(values: Sequence[float]) -> tuple[float, float]:
    """The means of the first and of the last three ``values``, at least one; of fewer than six, where a step would be
    in both, twice the mean of all: nothing can be said about a change."""
    if len(values) < 2 * _ENDS:
        mean = sum(values) / len(values)
        return mean, mean
    return sum(values[:_ENDS]) / _ENDS, sum(values[-_ENDS:]) / _ENDS


def ends_words(
    first: float | None,
    last: float | None,
    steps: int | None,
    number: Callable[[float], str] = "{:.3f}".format,
    arrow: str = "->",
) -> str | None:
    """``0.190 -> 0.470``; one mean, ``0.054``, where both are the same, as ``ends`` makes them of fewer than six
    rewards: "0.054 -> 0.054" reads as a reward that was followed for long. None without a reward. ``steps``: the number
    of the last finished step, None if not known, which may be far above the count of rewards: a run goes on from the
    checkpoint of another. Below six it tells a run of an older version, which kept two means of fewer."""
    if first is None or last is None:
        return None
    if first == last or (steps is not None and steps < 2 * _ENDS):
        return number(last)
    return f"{number(first)} {arrow} {number(last)}"


def resampled(values: Sequence[float], most: int) -> tuple[float, ...]:
    """``values`` in at most ``most`` parts of the same length, give or take one value: the mean of each."""
    if len(values) <= most:
        return tuple(values)
    bounds = [part * len(values) // most for part in range(most + 1)]
    return tuple(sum(values[a:b]) / (b - a) for a, b in pairwise(bounds))


def change(rewards: Rewards) -> tuple[float, float] | None:
    """The mean rewards of the first and of the last three steps; None while a step would be in both."""
    if rewards.first is None or rewards.last is None or rewards.steps < 2 * _ENDS:
        return None
    return rewards.first, rewards.last


def course_of(points: Sequence[Point]) -> RewardCourse:
    """What the mean rewards of the steps (step, reward), at least one, prove: that (nearly) all tasks are solved, by
    ``metrics.solved``, or where they are heading, by ``util.direction``. The one place where "is it learning" is
    decided."""
    # Not at the top: the interface needs only the words, and these take the module ``statistics``.
    from liverl.util.direction import direction

    solved = solved_of(points)
    if solved is not None:
        return solved
    heading, since = direction(points)
    return RewardCourse(_VERDICTS[heading], since)


def solved_of(points: Sequence[Point]) -> RewardCourse | None:
    """That (nearly) all tasks are solved, as ``course_of`` says it; None where they are not."""
    from liverl.observe.metrics.solved import plateau

    top = plateau(points)
    return None if top is None else RewardCourse("solved" if top.all else "nearly_solved", top.since)


def course_words(course: RewardCourse | None, *, short: bool = False) -> str:
    """``learning``, ``flat since step 12``, in ``short`` without the step; empty where nothing is known. Fewer than
    six rewards have no change that a word could be about: they are told as such elsewhere."""
    if course is None:
        return ""
    if course.verdict == "early":
        return "too early to say"
    if course.verdict == "unclear":
        return "no clear trend"
    word = _SOLVED.get(course.verdict, course.verdict)
    return word if short or course.since is None else f"{word} since step {course.since}"


def words(rewards: Rewards, newest: int = 0) -> str | None:
    """Whether the run has learned, as a sentence; None without rewards. ``newest``: the last finished step, which is
    said where not all steps up to it have told a reward: verl's fully asynchronous trainer tells those of a step one
    later, and a run may go on from the checkpoint of another."""
    if rewards.last is None:
        return None
    count = f"{rewards.steps} step{'' if rewards.steps == 1 else 's'}"
    told = f"{count}, mean reward" if newest <= rewards.steps else f"step {newest}, mean reward of {count}"
    both = change(rewards)
    if both is None:
        of = trained_words(rewards.last_of)
        return f"{told} {rewards.last:.3f}{f' ({of})' if of else ''}"
    proved = course_words(rewards.course)
    verdict = f": {proved}" if proved else ""
    return f"{told} {both[0]:.3f} -> {both[1]:.3f} {ends_said(rewards)}{verdict}"


def ends_said(rewards: Rewards) -> str:
    """``(first and last three steps)``, with the trials that the two means are of, where these are not all."""
    of = ends_trained_words(rewards.first_of, rewards.last_of)
    return f"{ENDS_SAID[:-1]}; {of})" if of else ENDS_SAID


def judged_anew(summary: str, course: RewardCourse | None) -> str:
    """What the end of a run was called, with this verdict on its rewards: another version may have said none, or
    another one than all else that is shown of the run."""
    proved = course_words(course)
    return _SAID.sub(lambda said: f"{said['of']}: {proved}", summary) if proved else summary
