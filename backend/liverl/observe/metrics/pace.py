"""Duration of a training step: the median of the newest steps."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence

from liverl.model import StepMetrics
from liverl.observe.metrics.names import keys_of

NEWEST = 10  # steps in the median: durations change as the policy learns to write more or less
_KEYS = keys_of("seconds per step")


class StepPace:
    """Estimates the duration of a step."""

    def __init__(self) -> None:
        self._durations: deque[float] = deque(maxlen=NEWEST)
        self._step: int | None = None  # newest step; _at: when its line was read
        self._at: float | None = None

    @property
    def seconds(self) -> float | None:
        """Median duration of the newest steps in seconds; None until one is known."""
        return statistics.median(self._durations) if self._durations else None

    def add(self, news: Sequence[StepMetrics], now: float, *, fresh: bool = True) -> None:
        """Add steps whose lines were read at ``now`` (seconds of any monotonic clock).

        ``fresh``: they were written since the previous call. Only then is the time between two calls used for
        steps that do not report their duration.
        """
        for metrics in news:
            reported = next(
                (metrics.values[key] for key in _KEYS if metrics.values.get(key, 0.0) > 0.0), None
            )
            if reported is not None:
                self._durations.append(reported)
            elif fresh and self._at is not None and self._step is not None and metrics.step > self._step:
                # Lines read together share the time since the previous one.
                self._durations.append((now - self._at) / (news[-1].step - self._step))
        if news:
            self._step, self._at = news[-1].step, now if fresh else None

    def clear(self) -> None:
        """Discard all steps: the file was rewritten."""
        self.__init__()  # type: ignore[misc]
