"""How long a training step takes: the median of the newest ones."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence

from liverl.model import StepMetrics

NEWEST = 5  # steps that count: the pace changes while the policy learns to write longer or shorter
_KEYS = ("timing_s/step", "perf/time_per_step")  # verl's names, seconds


class StepPace:
    """``seconds`` of one step; None until one is known."""

    def __init__(self) -> None:
        self._taken: deque[float] = deque(maxlen=NEWEST)
        self._step: int | None = None  # newest, and when its line was seen
        self._at: float | None = None

    @property
    def seconds(self) -> float | None:
        return statistics.median(self._taken) if self._taken else None

    def add(self, news: Sequence[StepMetrics], now: float, *, fresh: bool = True) -> None:
        """Steps whose lines were found at ``now`` (any clock that only grows). ``fresh``: they have been written
        since the last look; only then does the time between two looks say how long they took, where the lines
        do not say it themselves."""
        for metrics in news:
            told = next((metrics.values[key] for key in _KEYS if metrics.values.get(key, 0.0) > 0.0), None)
            if told is not None:
                self._taken.append(told)
            elif fresh and self._at is not None and self._step is not None and metrics.step > self._step:
                # Lines that came together share the time since the last one.
                self._taken.append((now - self._at) / (news[-1].step - self._step))
        if news:
            self._step, self._at = news[-1].step, now if fresh else None

    def clear(self) -> None:
        """The file was written anew."""
        self.__init__()  # type: ignore[misc]
