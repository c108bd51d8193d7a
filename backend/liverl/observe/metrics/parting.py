"""Where two runs leave each other in one metric. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

import msgspec

from liverl.observe.metrics.series import Series
from liverl.util.direction import FEWEST

LEAST = 3  # steps for which one run must stay above the other, to the end
# Share of the steps that may be left out at the beginning so that each step of the rest is on one side.
LATER = 0.25
# Steps over which the difference is averaged: a batch of prompts is easier or harder than the next one
SMOOTH = 5


class Parting(msgspec.Struct, frozen=True):
    """``common``: steps that both runs have; ``differs``: the first of them with another value, None if all are the
    same; ``parts``: the first step from which on the second run is above or below the first one to the end, as a mean
    of five steps and by more than their steps vary, None if it is not; ``by``: how far above (below: negative) it is
    from there on, on average; ``noise``: how much one step usually differs from the one before it; ``sided``: the
    steps from there on in which it is on that side, and ``of``: how many steps there are."""

    common: int
    differs: int | None = None
    parts: int | None = None
    by: float | None = None
    noise: float | None = None
    sided: int | None = None
    of: int | None = None

    @property
    def early(self) -> bool:
        """Whether the steps that both have are too few to say anything but that some differ: as few as are too few for
        the verdict on the rewards of one run."""
        return self.differs is not None and self.common < FEWEST

    @property
    def throughout(self) -> bool:
        """Whether the second run is on that side in each step from ``parts`` on."""
        return self.sided == self.of


def parting(first: Series, second: Series) -> Parting:
    """Compare two runs step by step. Steps at which one has no finite number are left out."""
    others = dict(zip(second.steps, second.values, strict=True))
    pairs = [
        (step, value, others[step])
        for step, value in zip(first.steps, first.values, strict=True)
        if step in others and math.isfinite(value) and math.isfinite(others[step])
    ]
    differs = next((step for step, one, other in pairs if not math.isclose(one, other, rel_tol=1e-9)), None)
    if differs is None or len(pairs) < LEAST + 1:
        return Parting(len(pairs), differs)
    noise = median([*_changes([one for _, one, _ in pairs]), *_changes([other for _, _, other in pairs])])
    gaps = [other - one for _, one, other in pairs]
    means = _smoothed(gaps)
    side, begin = means[-1], _one_sided(means)
    # The mean of a step and its neighbours may be on that side, and the step itself not.
    while begin < len(gaps) and gaps[begin] * side <= 0:
        begin += 1
    whole = _one_sided([*gaps, side])  # from here on each step is on that side
    early = whole - begin <= LATER * (len(gaps) - begin) and abs(_mean(gaps[whole:])) > noise
    begin = max(begin, whole) if early else begin
    by = _mean(gaps[begin:])
    if abs(by) <= noise or by * side <= 0:
        return Parting(len(pairs), differs, noise=noise)
    sided = sum(gap * side > 0 for gap in gaps[begin:])
    return Parting(len(pairs), differs, pairs[begin][0], by, noise, sided, len(gaps) - begin)


def _mean(gaps: Sequence[float]) -> float:
    """Their mean; 0 of fewer than ``LEAST``, which prove nothing."""
    return fmean(gaps) if len(gaps) >= LEAST else 0.0


def _changes(values: Sequence[float]) -> list[float]:
    return [abs(after - before) for before, after in pairwise(values)]


def _smoothed(values: Sequence[float]) -> list[float]:
    """Each value as the mean of itself and its neighbours."""
    side = SMOOTH // 2
    return [fmean(values[max(0, place - side) : place + side + 1]) for place in range(len(values))]


def _one_sided(gaps: Sequence[float]) -> int:
    """The place from which on all gaps are on the side of the last one; the length where the last one is 0."""
    place = len(gaps)
    while place and gaps[place - 1] * gaps[-1] > 0:
        place -= 1
    return place
