"""The newest steps of a run with all their metrics, for rules that compare a step with those before it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from liverl.model import StepMetrics

# Steps that are kept. The longest rule needs 50 (knowledge/liverl.md §7 T20); a step of verl has about 100 numbers.
MOST = 60


class RecentSteps(msgspec.Struct, frozen=True):
    """``steps``: the newest ones, the oldest first. ``not_finite``: each metric that is not a finite number in the
    newest step, and the step since which it has not been one."""

    steps: tuple[StepMetrics, ...] = ()
    not_finite: Mapping[str, int] = {}

    def values(self, key: str) -> list[float]:
        """The values of a metric in those steps that report it as a finite number, the oldest first."""
        return [step.values[key] for step in self.steps if key in step.values]


class StepCollector:
    """Collects steps in the order in which they are written."""

    def __init__(self) -> None:
        self._steps: deque[StepMetrics] = deque(maxlen=MOST)
        self._not_finite: dict[str, int] = {}

    def clear(self) -> None:
        """Forget all steps: the file is read again from its beginning."""
        self._steps.clear()
        self._not_finite.clear()

    def add(self, news: Sequence[StepMetrics]) -> None:
        """Add new steps. A lower step than the last one is of a resumed trainer: it replaces the later steps."""
        for metrics in news:
            while self._steps and self._steps[-1].step >= metrics.step:
                self._steps.pop()
            self._steps.append(metrics)
            known = {key: step for key, step in self._not_finite.items() if step < metrics.step}
            self._not_finite = {key: known.get(key, metrics.step) for key in metrics.not_finite}

    def recent(self) -> RecentSteps:
        """The newest steps."""
        return RecentSteps(tuple(self._steps), dict(self._not_finite))
