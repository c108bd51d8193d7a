"""Where a noisy series is heading: it rises, falls, is flat, or nobody can tell. Pure.

The rule, for a series of one value a step; of more than ``MOST`` steps, for the means of equally many:

1. A series *rises* if all of this holds. The newest quarter of its steps lies above the earliest one by ``SURE``
   standard errors, by what single steps differ: noise around a constant does not. Averaged in ``BLOCKS`` blocks, it
   changes from block to block by a mean of ``STEADY`` standard errors, and its steps lie around the best course that
   never falls as noise does, now above and now below (``SCATTERED``): a random walk, whose ends lie apart by chance,
   seldom does either. It *falls* if it rises upside down, as a whole or since its highest.
2. It is *flat* if its newest ``SAME`` values are the very same; or since the step until which it rose and from which a
   straight line surely changes by less than ``LITTLE`` of that rise; or, where it never moved, if the line surely
   changes by less than ``LITTLE`` of its highest value.
3. Anything else is not known: *early* with fewer than ``FEWEST`` steps, *unclear* with more.

Simulated, noise around a constant is called rising less than once in 1,000 series, a random walk about once in 30.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal, NamedTuple

from liverl.util.trend import Point, smoothed, trend

Heading = Literal["early", "unclear", "rising", "falling", "flat"]

FEWEST = 12  # steps from which anything is said
MOST = 120  # points that are looked at
BLOCKS = 6
SURE = 4.0  # standard errors between the newest and the earliest quarter
STEADY = 2.8  # standard errors of the mean change from block to block
SCATTERED = 1.6  # Durbin-Watson statistic: 2 of noise, near 0 of a walk
LITTLE = 0.2  # share
SAME = 5  # steps in a row with the very same value: flat, without any statistics
_SMOOTH = 5
_ROUNDING = 1e-12


class Direction(NamedTuple):
    """``since``: the step from which it holds; None where the whole series is meant or nothing is known."""

    heading: Heading
    since: int | None = None


def direction(points: Sequence[Point]) -> Direction:
    """The direction of finite points (step, value), the oldest first; see the rule above."""
    same = _same(points)
    if same is not None:
        return Direction("flat", int(same))
    points = _fewer(points)
    if len(points) < FEWEST:
        return Direction("early")
    since = _flat_since(points)
    if since is not None:
        return Direction("flat", since)
    if rises(points):
        return Direction("rising")
    middles = smoothed(points, _SMOOTH)
    highest = max(range(len(middles)), key=lambda at: middles[at][1])
    peak = points[highest + _SMOOTH // 2 if highest else 0][0]
    upside_down = [(x, -y) for x, y in points]
    if rises(upside_down) or rises([point for point in upside_down if point[0] >= peak]):
        return Direction("falling", int(peak))
    level = max(abs(y) for _, y in points)
    return Direction("flat", int(points[0][0])) if _still(points, LITTLE * level) else Direction("unclear")


def _fewer(points: Sequence[Point]) -> Sequence[Point]:
    """At most ``MOST`` points: the means of equally many, at the step of the first of them."""
    if len(points) <= MOST:
        return points
    bounds = [part * len(points) // MOST for part in range(MOST + 1)]
    return [(points[a][0], fmean(y for _, y in points[a:b])) for a, b in pairwise(bounds)]


def rises(points: Sequence[Point]) -> bool:
    """Whether it is sure that the values have risen from the first points to the last; see the rule above."""
    values = [y for _, y in points]
    count = len(values)
    if count < FEWEST:
        return False
    width = count // 4
    gain = fmean(values[-width:]) - fmean(values[:width])
    if gain <= 0.0:
        return False
    if gain < SURE * _scatter(values) * math.sqrt(2.0 / width):
        return False
    bounds = [part * count // BLOCKS for part in range(BLOCKS + 1)]
    blocks = [fmean(values[a:b]) for a, b in pairwise(bounds)]
    changes = [later - earlier for earlier, later in pairwise(blocks)]
    steady = fmean(changes) >= STEADY * _deviation(changes) / math.sqrt(len(changes))
    return steady and _scatters(values)


def _scatters(values: Sequence[float]) -> bool:
    """Whether the steps lie around the best course that never falls as noise does, now above it and now below: those
    of a walk stay on one side for long (the Durbin-Watson statistic of what the course leaves over)."""
    rest = [value - level for value, level in zip(values, _never_falling(values), strict=True)]
    power = math.fsum(one * one for one in rest)
    changes = math.fsum((later - earlier) ** 2 for earlier, later in pairwise(rest))
    return power <= _ROUNDING * math.fsum(value * value for value in values) or changes >= SCATTERED * power


def _never_falling(values: Sequence[float]) -> list[float]:
    """The course that never falls with the least squares to the values: neighbours that fall are put together."""
    pools: list[tuple[float, int]] = []  # mean and number of values
    for value in values:
        mean, size = value, 1
        while pools and pools[-1][0] >= mean:
            before, joined = pools.pop()
            mean, size = (mean * size + before * joined) / (size + joined), size + joined
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]


def _scatter(values: Sequence[float]) -> float:
    """The standard deviation of single steps around their course: from the differences of neighbours, so that the
    course itself does not count."""
    return _deviation([later - earlier for earlier, later in pairwise(values)]) / math.sqrt(2.0)


def _deviation(values: Sequence[float]) -> float:
    middle = fmean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def _same(points: Sequence[Point]) -> float | None:
    """The first of the newest points with the very same value, if they are ``SAME`` at least."""
    same = 0
    for _, value in reversed(points):
        if value != points[-1][1]:
            break
        same += 1
    return points[-same][0] if same >= SAME else None


def _still(points: Sequence[Point], little: float) -> bool:
    """Whether a straight line through the points surely changes by less than ``little``, up or down."""
    line, length = trend(points), points[-1][0] - points[0][0]
    if abs(line.t) >= SURE:  # a small slope, but one that is surely there
        return False
    error = abs(line.slope / line.t) if line.t else 0.0
    if not line.t:  # no slope, or no spread
        error = _scatter([y for _, y in points]) / math.sqrt(len(points)) / length * math.sqrt(12.0)
    return (abs(line.slope) + 2.0 * error) * length < little


def _flat_since(points: Sequence[Point]) -> int | None:
    """The first step from which a series that has risen is flat; None while it still rises, or may."""
    start = fmean(y for _, y in points[: len(points) // 4])
    for at in range(1, len(points) - FEWEST + 1):
        rest = points[at:]
        risen = math.fsum([y for _, y in rest]) / len(rest) - start
        if risen > 0.0 and _still(rest, LITTLE * risen) and rises(points[: at + FEWEST]):
            return int(rest[0][0])
    return None
