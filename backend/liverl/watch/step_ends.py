"""When the steps of a watched run ended, for trials that name no step. Of steps that were read together that is an
estimate: a log has no times of them, but each says how long it took. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from liverl.model import StepMetrics
from liverl.observe.metrics.names import keys_of
from liverl.observe.trials.step_times import FinishedStep

_SECONDS = keys_of("seconds per step")


def ends_of(news: Sequence[StepMetrics], written: Mapping[int, tuple[float, float]]) -> list[FinishedStep]:
    """The steps ``news``, oldest first, each with the times after which and by which it was written, as far as they are
    known. ``written``: the same of what was read with it: of several, only the last one's end is its file's last
    change, and each before it ended as long before the next as that one took."""
    ends: list[FinishedStep] = []
    later: StepMetrics | None = None
    for one in reversed(news):
        if one.step not in written:
            break
        after, by = written[one.step]
        if later is not None and written[later.step][1] == by:
            took = next((later.values[key] for key in _SECONDS if later.values.get(key, 0.0) > 0.0), None)
            if took is None:
                break
            ends.append(FinishedStep(one.step, ends[-1].by - took, ends[-1].by - took))
        else:
            ends.append(FinishedStep(one.step, after, by))
        later = one
    if len(ends) > 1 and ends[0].after < ends[1].by:
        ends[0] = FinishedStep(ends[0].step, ends[0].by, ends[0].by)  # what was read with it lies between
    return ends[::-1]
