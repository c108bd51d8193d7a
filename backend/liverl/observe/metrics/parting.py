"""Where two runs leave each other in one metric. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

import msgspec

from liverl.observe.metrics.series import Series

LEAST = 3  # steps for which one run must stay above the other, to the end
# Steps over which the difference is averaged: a batch of prompts is easier or harder than the next one
SMOOTH = 5


class Parting(msgspec.Struct, frozen=True):
    """``common``: steps that both runs have; ``differs``: the first of them with another value, None if all are the
    same; ``parts``: the first step from which on the second run stays above or below the first one to the end, by more
    than their steps vary, None if they do not; ``by``: how far above (below: negative) it is from there on, on
    average; ``noise``: how much one step usually differs from the one before it."""

    common: int
    differs: int | None = None
    parts: int | None = None
    by: float | None = None
    noise: float | None = None


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
    begin = _one_sided(_smoothed(gaps))
    # The mean of a step and its neighbours may be on that side, and the step itself not.
    while begin < len(gaps) and gaps[begin] * gaps[-1] <= 0:
        begin += 1
    by = fmean(gaps[begin:]) if len(gaps) - begin >= LEAST else 0.0
    if abs(by) <= noise:
        return Parting(len(pairs), differs, noise=noise)
    return Parting(len(pairs), differs, pairs[begin][0], by, noise)


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
