"""Which replica took much longer for a call of the model than the others did, in one step. Pure.

``bottleneck`` names one only when it is slow in most of the newest steps, and weighs the tokens; this says it of the
step that is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from liverl.diagnose.where.bottleneck import SLOW
from liverl.util.plural import plural

CALLS = 8  # of a replica in the step; of fewer nothing is concluded: estimate, as calls differ in length


class SlowReplica(NamedTuple):
    """``name``: of the replica; ``times``: as long for a call as the median of the ``others``."""

    name: str
    times: float
    others: int

    @property
    def words(self) -> str:
        """``took 2.8 times as long for a call as the other replica``."""
        return f"took {self.times:.1f} times as long for a call as the other {plural(self.others, 'replica')}"


def none_slow(calls: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Why no replica is named slow, of a step in which ``slow_replica`` finds none; "" with fewer than two."""
    if len(calls) < 2:
        return ""
    few = [name for name, spans in calls.items() if len(spans) < CALLS]
    why = (
        f"fewer than {CALLS} answers: {', '.join(few)}"
        if few
        else f"none takes {SLOW:g} times as long as the others"
    )
    return f"no replica is named slow: {why}"


def slow_replica(calls: Mapping[str, Sequence[tuple[float, float]]]) -> SlowReplica | None:
    """The slowest replica, if it takes at least ``SLOW`` times as long as the median of the others. ``calls``: begin
    and end of each call, Unix seconds, by replica."""
    means = {
        name: fmean(end - begin for begin, end in spans)
        for name, spans in calls.items()
        if len(spans) >= CALLS
    }
    if len(means) < 2:
        return None
    slowest = max(means, key=lambda name: means[name])
    usual = median(mean for name, mean in means.items() if name != slowest)
    if usual <= 0.0 or means[slowest] < SLOW * usual:
        return None
    return SlowReplica(slowest, means[slowest] / usual, len(means) - 1)
