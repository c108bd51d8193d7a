"""Since when a run solves (nearly) all of its tasks, from the mean reward of each step. Pure.

Rewards of verifiers are 0 to 1 (verl's reward functions, Harbor's reward.txt): ``FULL`` is a full solution, where no
step has more. A plateau begins with ``ALL`` steps in a row of exactly that, or once the newest ``WINDOW`` have a mean
of ``NEARLY``; a trial that fails now and then does not end it. It ends once the newest ``WINDOW`` have a mean below
``LEFT``, or the newest ``LONG`` one below ``SANK``. What begins a plateau and what ends it lie apart, so that noise
between them does not make it come and go."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from liverl.util.trend import Point

FULL = 1.0
ALL = 3  # steps in a row in which all trials have it
WINDOW, NEARLY, LEFT = 5, 0.97 * FULL, 0.9 * FULL
LONG, SANK = 20, 0.95 * FULL
FAR = 0.8 * FULL  # one step below this ends a plateau of fewer than ``WINDOW`` steps


class Plateau(NamedTuple):
    """``since``: its first step; ``all``: each of its steps has exactly ``FULL``, or each but the first few, which then
    do not count."""

    since: int
    all: bool


def plateau(points: Sequence[Point]) -> Plateau | None:
    """The plateau in which the newest of finite points (step, mean reward) lies, the oldest point first."""
    values = [value for _, value in points]
    if not values or max(values) > FULL:  # this is not all that can be had
        return None
    begin: int | None = None
    for end in range(ALL, len(values) + 1):
        if begin is None:
            begin = _begin(values, end)
        elif _left(values, begin, end):
            begin = None
    if begin is None:
        return None
    full = next((at for at in range(len(values), begin, -1) if values[at - 1] != FULL), begin)
    if full == begin or (
        full - begin < WINDOW and len(values) - full >= LONG
    ):  # from there on all are solved
        return Plateau(int(points[full][0]), True)
    return Plateau(int(points[begin][0]), False)


def _begin(values: Sequence[float], end: int) -> int | None:
    """Where the plateau that the value before ``end`` shows has begun."""
    if min(values[end - ALL : end]) == FULL:
        return end - ALL
    if end < WINDOW or values[end - 1] < NEARLY or fmean(values[end - WINDOW : end]) < NEARLY:
        return None
    return next(at for at in range(end - WINDOW, end) if values[at] >= NEARLY)


def _left(values: Sequence[float], begin: int, end: int) -> bool:
    if end - begin < WINDOW:  # the steps before it were no part of it
        return values[end - 1] < FAR
    if fmean(values[end - WINDOW : end]) < LEFT:
        return True
    return end - begin >= LONG and fmean(values[end - LONG : end]) < SANK
