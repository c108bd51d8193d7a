"""What rules over many steps ask of a metric: where it was lowest, how far it has come since, and whether it still
moves. Pure.

A trend is claimed over at least ten steps with |t| >= 2 (``util.trend``). Where a rule chooses the step from which it
looks, as the lowest one, chance has more ways to look like a trend, and ``SURE_SINCE`` is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from liverl.diagnose.muting import mutes
from liverl.model import Evidence, StepMetrics, Symptom
from liverl.observe.metrics.names import keys_of
from liverl.observe.metrics.recent import RecentSteps
from liverl.util.trend import FLAT, LEAST, Point, Trend, logarithms, smoothed, trend

if TYPE_CHECKING:
    from liverl.diagnose.tracker import Evaluate, Window

IN_A_ROW = 3  # steps in a row in which a condition must hold: one step may be an outlier
SMOOTH = 5  # steps whose median is compared: of the lowest ones, and of the newest ones
SURE_SINCE = 4.0  # |t| since a step that was chosen as the lowest one
OUT_OF_NOISE = 4.0  # and times the noise from step to step that it must have risen (both as logarithms)
AS_LOW = 1.1  # times the lowest: about as low
NORMAL = 1.4826  # standard deviations of a normal distribution in the median of its absolute values
MOST_T = 100.0  # a larger t is not told as a number
WARMER = 1.001  # factor by which a learning rate grows from a step to the next while it warms up
_RATE = "actor/lr"
_REWARDS = keys_of("reward")


class Rise(NamedTuple):
    """How far a metric has come from its lowest. ``low``: median of the lowest ``SMOOTH`` steps in a row, the first of
    which is step ``since``; ``left``: the last step at which it was about as low; ``now``: median of the newest
    ``SMOOTH``; ``trend``: of the logarithms since ``since``; ``noise``: see the function."""

    key: str
    low: float
    since: int
    left: int
    now: float
    trend: Trend
    noise: float
    points: tuple[Point, ...]  # since then

    @property
    def factor(self) -> float:
        """How many times its lowest it is."""
        return self.now / self.low

    @property
    def t(self) -> str:
        """The t of the trend in words: ``t = 5.1``."""
        return f"t = {self.trend.t:.1f}" if self.trend.t < MOST_T else f"t above {MOST_T:.0f}"

    @property
    def sure(self) -> bool:
        """Whether it has grown, and not only come back from a low that chance has made."""
        grown = self.trend.points >= LEAST and self.trend.t >= SURE_SINCE
        return grown and log(self.factor) >= OUT_OF_NOISE * self.noise


def noise(points: Sequence[Point]) -> float:
    """How much the logarithm of a metric differs from step to step by chance: a standard deviation, from the median of
    the differences, so that neither a trend nor a jump counts."""
    changes = [later - earlier for (_, earlier), (_, later) in pairwise(logarithms(points))]
    usual = median(changes)
    return NORMAL * median(abs(change - usual) for change in changes) / sqrt(2.0)


def newest(recent: RecentSteps, key: str, count: int = IN_A_ROW) -> Sequence[StepMetrics]:
    """The newest ``count`` steps, if all of them report ``key``; empty otherwise. The last step may lack it: in
    asynchronous training the rollouter reports a step before the trainer does."""
    steps = recent.steps if recent.steps and key in recent.steps[-1].values else recent.steps[:-1]
    steps = steps[-count:]
    return steps if len(steps) == count and all(key in step.values for step in steps) else ()


def latest(recent: RecentSteps, key: str) -> float | None:
    """The value of a metric in the newest step, or in the one before if that does not report it; None without any."""
    steps = newest(recent, key, 1)
    return steps[0].values[key] if steps else None


def evidence(steps: Sequence[StepMetrics], key: str) -> tuple[Evidence, ...]:
    """The values of a metric, the newest step first."""
    return tuple(
        Evidence(f"step {step.step}: {key} {step.values[key]:.4g}", value=step.values[key])
        for step in reversed(steps)
        if key in step.values
    )


def tells(rule: Evaluate, window: Window) -> bool:
    """Whether a rule raises an alert that the user has not muted: another rule then need not tell what that brings
    about."""
    return any(isinstance(one, Symptom) and not mutes(window.beside.mute, one.id) for one in rule(window))


def key_of(recent: RecentSteps, keys: Iterable[str]) -> str | None:
    """The first of the keys that the newest step reports, or the one before; None if neither reports any."""
    return next((key for key in keys if newest(recent, key, 1)), None)


def warmed_up(recent: RecentSteps, points: Sequence[Point]) -> list[Point]:
    """The points from the step on in which the learning rate had stopped to grow. While it warms up, updates become
    larger, and gradients, step sizes and divergences with them: that is no fault."""
    rates = recent.course(_RATE)
    warm = [x for (_, before), (x, rate) in pairwise(rates) if rate > before * WARMER]
    return [point for point in points if not warm or point[0] > warm[-1]]


def beginning(points: Sequence[Point]) -> tuple[int, float]:
    """Of at least one point: the last step of the first ``SMOOTH``, and their median. A rule that says that something
    is worse than before compares with this: beside the best stretch of a run, usual ones look bad."""
    first = points[:SMOOTH]
    return int(first[-1][0]), median(value for _, value in first)


def rise(key: str, points: Sequence[Point]) -> Rise | None:
    """How far a metric has come from its lowest; None of fewer than ``LEAST`` points, or of values that are not
    positive."""
    if len(points) < LEAST or any(value <= 0.0 for _, value in points):
        return None
    since, low = min(smoothed(points, SMOOTH), key=lambda point: point[1])
    after = [point for point in points if point[0] >= since]
    now = median(value for _, value in points[-SMOOTH:])
    left = max(x for x, value in after if value <= low * AS_LOW)
    return Rise(key, low, int(since), int(left), now, trend(logarithms(after)), noise(points), tuple(after))


def reward_course(recent: RecentSteps) -> list[Point]:
    """Step and mean reward over the whole run."""
    key = key_of(recent, _REWARDS)
    return recent.course(key) if key is not None else []


def reward_since(recent: RecentSteps, step: int) -> Trend:
    """The trend of the mean reward from a step on."""
    points = [point for point in reward_course(recent) if point[0] >= step]
    return trend(points) if points else FLAT


def reward_falls(recent: RecentSteps, step: int) -> bool:
    """Whether the mean reward has fallen since a step that a rule has chosen."""
    since = reward_since(recent, step)
    return since.points >= LEAST and since.t <= -SURE_SINCE


def reward_words(recent: RecentSteps, step: int) -> str:
    """``0.41 to 0.02``: the mean reward at a step and now."""
    values = [value for at, value in reward_course(recent) if at >= step]
    return f"{fmean(values[:IN_A_ROW]):.3g} to {fmean(values[-IN_A_ROW:]):.3g}"
