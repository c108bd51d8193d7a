"""The newest steps of a run with all their metrics, and the earlier ones thinned out, for rules that compare a step
with those before it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from liverl.model import StepMetrics

# Steps that are kept. The longest rule needs 50 (knowledge/liverl.md §7 T20); a step of verl has about 100 numbers.
MOST = 60
THINNED = 64  # means of earlier steps that are kept at most; when there are more, each two of them become one


class RecentSteps(msgspec.Struct, frozen=True):
    """``steps``: the newest ones, the oldest first. ``not_finite``: each metric that is not a finite number in the
    newest step, and the step since which it has not been one. ``earlier``: the steps before ``steps``, the oldest
    first, each entry the means of equally many steps and numbered as the last of them."""

    steps: tuple[StepMetrics, ...] = ()
    not_finite: Mapping[str, int] = {}
    earlier: tuple[StepMetrics, ...] = ()

    def values(self, key: str) -> list[float]:
        """The values of a metric in those steps that report it as a finite number, the oldest first."""
        return [step.values[key] for step in self.steps if key in step.values]

    def course(self, key: str) -> list[tuple[float, float]]:
        """Step and value of a metric over the whole run, the oldest first: means of the earlier steps, then each of the
        newest ones."""
        return [
            (float(step.step), step.values[key])
            for steps in (self.earlier, self.steps)
            for step in steps
            if key in step.values
        ]


class _Mean:
    """The means of the metrics of successive steps."""

    def __init__(self, metrics: StepMetrics) -> None:
        self.last, self.steps = metrics.step, 1
        self._sums = {key: (value, 1) for key, value in metrics.values.items()}

    def join(self, later: _Mean) -> None:
        """Add the steps of a later mean."""
        self.last, self.steps = later.last, self.steps + later.steps
        for key, (value, count) in later._sums.items():
            before, counted = self._sums.get(key, (0.0, 0))
            self._sums[key] = (before + value, counted + count)

    def metrics(self) -> StepMetrics:
        """The means, numbered as the last step."""
        return StepMetrics(self.last, {key: value / count for key, (value, count) in self._sums.items()})


class _Thinned:
    """All steps that it was given, as at most ``THINNED`` means of equally many steps, and the rest of one."""

    def __init__(self) -> None:
        self._means: list[_Mean] = []
        self._width = 1  # steps of each mean but the last

    def add(self, metrics: StepMetrics) -> None:
        """Add the step behind those added before."""
        mean = _Mean(metrics)
        if self._means and self._means[-1].steps < self._width:
            self._means[-1].join(mean)
            return
        if len(self._means) == THINNED:
            for one, other in zip(self._means[::2], self._means[1::2], strict=True):
                one.join(other)
            self._means = self._means[::2]
            self._width *= 2
        self._means.append(mean)

    def cut(self, step: int) -> None:
        """Forget this step and later ones. A mean with some of them is forgotten as a whole."""
        while self._means and self._means[-1].last >= step:
            self._means.pop()

    def steps(self) -> tuple[StepMetrics, ...]:
        """The means, the oldest first."""
        return tuple(mean.metrics() for mean in self._means)


class StepCollector:
    """Collects steps in the order in which they are written."""

    def __init__(self) -> None:
        self._steps: deque[StepMetrics] = deque()
        self._not_finite: dict[str, int] = {}
        self._thinned = _Thinned()
        self._earlier: tuple[StepMetrics, ...] | None = ()  # None: it has changed
        self._recent: RecentSteps | None = None  # None: it has changed

    def clear(self) -> None:
        """Forget all steps: the file is read again from its beginning."""
        self.__init__()  # type: ignore[misc]

    def cut(self, step: int) -> None:
        """Forget the steps behind this one: the trainer was resumed from it."""
        self._recent = None
        while self._steps and self._steps[-1].step > step:
            self._steps.pop()
        if not self._steps:
            self._thinned.cut(step + 1)
            self._earlier = None

    def add(self, news: Sequence[StepMetrics]) -> None:
        """Add new steps. A lower step than the last one is of a resumed trainer: it replaces the later steps. The same
        step again adds to its metrics: in asynchronous training rollouter and trainer each report it."""
        for metrics in news:
            self.cut(metrics.step)
            if self._steps and self._steps[-1].step == metrics.step:
                metrics = _joined(self._steps.pop(), metrics)
            if not self._steps:
                self._thinned.cut(metrics.step)
                self._earlier = None
            self._steps.append(metrics)
            if len(self._steps) > MOST:
                self._thinned.add(self._steps.popleft())
                self._earlier = None
            known = {key: step for key, step in self._not_finite.items() if step < metrics.step}
            self._not_finite = {key: known.get(key, metrics.step) for key in metrics.not_finite}

    def recent(self) -> RecentSteps:
        """The newest steps, and the earlier ones thinned out; the same object until steps are added or forgotten."""
        if self._recent is None:
            if self._earlier is None:
                self._earlier = self._thinned.steps()
            self._recent = RecentSteps(tuple(self._steps), dict(self._not_finite), self._earlier)
        return self._recent


def followed(before: RecentSteps, after: RecentSteps) -> RecentSteps:
    """The steps of two files of one run, of which ``after`` was written last: it replaces what it begins with, and all
    behind that."""
    if not after.steps:
        return before
    first = (after.earlier or after.steps)[0].step
    earlier = [one for one in before.earlier if one.step < first]
    steps = [one for one in before.steps if one.step < first]
    if after.earlier:
        earlier, steps = [*earlier, *steps, *after.earlier], []
    steps = [*steps, *after.steps]
    return RecentSteps(tuple(steps[-MOST:]), after.not_finite, (*earlier, *steps[:-MOST]))


def _joined(first: StepMetrics, again: StepMetrics) -> StepMetrics:
    """A step that was reported twice; what was reported last holds."""
    values = {key: value for key, value in first.values.items() if key not in again.not_finite}
    bad = {key: value for key, value in first.not_finite.items() if key not in again.values}
    return StepMetrics(first.step, values | again.values, bad | again.not_finite)


def of_steps(steps: Iterable[StepMetrics]) -> RecentSteps:
    """The steps of a run, in the order in which they were written, as rules see them at its end."""
    collector = StepCollector()
    collector.add(tuple(steps))
    return collector.recent()
