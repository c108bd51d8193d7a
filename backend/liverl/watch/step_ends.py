"""When the steps of a watched run ended, for trials that name no step. Of steps from before the watch that is an
estimate: a log has no times of them, but each says how long it took. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from liverl.model import StepMetrics
from liverl.observe.metrics.names import keys_of
from liverl.observe.trials.step_times import FinishedStep

_SECONDS = keys_of("seconds per step")


def ends_of(
    news: Sequence[StepMetrics], written: Mapping[int, tuple[float, float]], *, first: bool
) -> list[FinishedStep]:
    """The steps ``news``, oldest first, each with the times after which and by which it was written. ``written``: what
    is known of that; ``first``: they were there when the watch began, so that only the last one's file tells a time,
    and each step before ended as long before the next as that one took."""
    if not first:
        return [FinishedStep(one.step, *written[one.step]) for one in news if one.step in written]
    ends: list[FinishedStep] = []
    end = written[news[-1].step][1] if news and news[-1].step in written else None
    for one in reversed(news):
        if end is None:
            break
        ends.append(FinishedStep(one.step, end, end))
        took = next((one.values[key] for key in _SECONDS if one.values.get(key, 0.0) > 0.0), None)
        end = end - took if took is not None else None
    return ends[::-1]
