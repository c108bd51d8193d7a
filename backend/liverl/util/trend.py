"""Whether a series grows or falls: the slope of a straight line through it, and how sure that slope is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from statistics import median
from typing import NamedTuple

Point = tuple[float, float]  # x (a step, or seconds) and value

LEAST = 10  # points from which a trend is claimed (LiveRL's own practice: |t| >= 2 on a slope, over 10 steps)
SURE = 2.0  # |t| from which a slope is one


class Trend(NamedTuple):
    """The least-squares line through points. ``slope``: units of the value per unit of x; ``t``: slope divided by its
    standard error, infinite for points that lie exactly on a sloping line; ``points``: how many there are."""

    slope: float
    t: float
    points: int

    @property
    def grows(self) -> bool:
        """Whether it is sure that the values grow: ``t`` of at least ``SURE`` over at least ``LEAST`` points."""
        return self.points >= LEAST and self.t >= SURE


FLAT = Trend(0.0, 0.0, 0)


def trend(points: Sequence[Point]) -> Trend:
    """The trend of finite points. Fewer than three, or points at one x only, have none: slope and t are 0."""
    count = len(points)
    if count < 3:
        return Trend(0.0, 0.0, count)
    xs, ys = _around_their_mean([x for x, _ in points]), _around_their_mean([y for _, y in points])
    spread_x, spread_y = math.fsum(map(mul, xs, xs)), math.fsum(map(mul, ys, ys))
    if not spread_x or not spread_y:
        return Trend(0.0, 0.0, count)
    slope = math.fsum(map(mul, xs, ys)) / spread_x
    # What the line does not explain. Differences of large sums leave rounding errors, which are no noise.
    rest = spread_y - slope * slope * spread_x
    if rest <= 1e-12 * spread_y:
        return Trend(slope, math.copysign(math.inf, slope), count)
    return Trend(slope, slope / math.sqrt(rest / (count - 2) / spread_x), count)


def _around_their_mean(values: list[float]) -> list[float]:
    middle = math.fsum(values) / len(values)
    return [value - middle for value in values]


def logarithms(points: Sequence[Point]) -> list[Point]:
    """The points with the natural logarithms of their values, without those that are not positive: growth by a factor
    per step is then a straight line."""
    return [(x, math.log(y)) for x, y in points if y > 0.0]


def smoothed(points: Sequence[Point], width: int) -> list[Point]:
    """The median of each ``width`` successive values, at the x of the first of them; fewer points have none."""
    values = [y for _, y in points]
    return [(points[at][0], median(values[at : at + width])) for at in range(len(points) - width + 1)]
