"""The metrics of a run as series over its steps, for charts: one per key, read while the file grows.

What is no finite number stays in a series as NaN or infinity: a loss that became NaN must be seen.
"""

from __future__ import annotations

import math
import os
from array import array
from bisect import bisect_left

from liverl.observe.metrics.files import CHUNK, Batch, MetricFiles

__all__ = ["CHARTS", "CHUNK", "Batch", "Series", "SeriesReader", "SeriesSet", "chart_name"]

# What is worth a chart by itself: a name for people, and verl's keys for it, the first one that exists.
CHARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reward", ("critic/score/mean", "critic/rewards/mean")),
    ("KL", ("actor/kl_loss", "actor/ppo_kl", "rollout_corr/kl", "actor/reward_kl_penalty")),
    # how far the probabilities of the replicas and of the trainer are apart, for the same tokens and weights
    ("rollout mismatch", ("training/rollout_probs_diff_mean", "rollout_corr/k3_kl")),
    ("entropy", ("actor/entropy", "actor/entropy_loss")),
    ("gradient norm", ("actor/grad_norm",)),
    ("response length", ("response_length/mean",)),
    ("turns", ("num_turns/mean", "training/num_turns/mean")),
    ("throughput", ("perf/throughput", "perf/total_num_tokens")),
    ("seconds per step", ("timing_s/step", "perf/time_per_step")),
)


class Series:
    """One key over the steps. ``steps`` ascend; a step that was written twice has its last value.

    ``version`` grows with every value; ``rewrites`` with every one that did not come behind all others. ``gaps``
    counts the values that are no finite number.
    """

    __slots__ = ("gaps", "rewrites", "steps", "values", "version")

    def __init__(self) -> None:
        self.steps: array[int] = array("q")
        self.values: array[float] = array("d")
        self.version = 0
        self.rewrites = 0
        self.gaps = 0

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, value: float) -> None:
        self.version += 1
        self.gaps += not math.isfinite(value)
        if not self.steps or step > self.steps[-1]:
            self.steps.append(step)
            self.values.append(value)
            return
        self.rewrites += 1
        place = bisect_left(self.steps, step)
        if self.steps[place] == step:
            self.gaps -= not math.isfinite(self.values[place])
            self.values[place] = value
        else:
            self.steps.insert(place, step)
            self.values.insert(place, value)

    def cut(self, step: int) -> None:
        """Forget the points at ``step`` and after it."""
        place = bisect_left(self.steps, step)
        if place < len(self.steps):
            self.version += 1
            self.rewrites += 1
            self.gaps -= sum(not math.isfinite(value) for value in self.values[place:])
            del self.steps[place:]
            del self.values[place:]

    def at(self, step: int) -> tuple[int, float] | None:
        """(step, value) of the newest point that is not after ``step``."""
        place = bisect_left(self.steps, step + 1) - 1
        return None if place < 0 else (self.steps[place], self.values[place])

    def nearest(self, step: int, by: int) -> int | None:
        """The step of the point ``by`` points after (before, where negative) the one nearest to ``step``."""
        if not self.steps:
            return None
        place = bisect_left(self.steps, step)
        if place == len(self.steps) or (place and step - self.steps[place - 1] < self.steps[place] - step):
            place -= 1
        return self.steps[max(0, min(len(self.steps) - 1, place + by))]


class SeriesReader:
    """Reads one ``metrics.jsonl``, or the metrics of a run (``of_run``); to be called off the event loop."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = MetricFiles(path)

    @classmethod
    def of_run(cls, run_dir: str | os.PathLike[str]) -> SeriesReader:
        """Of every trainer that the run had: see ``liverl.observe.metrics.files``."""
        reader = cls(run_dir)
        reader._files = MetricFiles(run_dir, run_dir=True)
        return reader

    @property
    def offset(self) -> int:
        """Bytes read of the files as they are now."""
        return self._files.offset

    def poll(self, cap: int = CHUNK) -> Batch:
        """The records completed by the next ``cap`` bytes.

        Raises:
            OSError: the file exists and cannot be read.
        """
        return self._files.poll(cap)


class SeriesSet:
    """Every series of a run. Pure: ``add`` what a reader found."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.bad_lines = 0
        self.first: int | None = None  # step
        self.last: int | None = None
        self.version = 0

    def add(self, batch: Batch) -> None:
        if batch.fresh:
            self.series = {}
            self.bad_lines, self.first, self.last = 0, None, None
            self.version += 1
        if batch.cut is not None:
            self._cut(batch.cut)
        self.bad_lines += batch.bad_lines
        for step, values in batch.records:
            self.version += 1
            self.first = step if self.first is None else min(step, self.first)
            self.last = step if self.last is None else max(step, self.last)
            for key, value in values.items():
                series = self.series.get(key)
                if series is None:
                    series = self.series[key] = Series()
                series.add(step, value)

    def _cut(self, step: int) -> None:
        """A later trainer does this step and those after it again."""
        for series in self.series.values():
            series.cut(step)
        self.series = {key: series for key, series in self.series.items() if series.steps}
        self.first = min((series.steps[0] for series in self.series.values()), default=None)
        self.last = max((series.steps[-1] for series in self.series.values()), default=None)
        self.version += 1

    def default_charts(self) -> tuple[str, ...]:
        """The keys of ``CHARTS`` that exist, a validation score behind the first; without any, the first eight keys."""
        found = [next((k for k in keys if k in self.series), None) for _, keys in CHARTS]
        chosen = [key for key in found if key is not None]
        scores = sorted(k for k in self.series if k.startswith("val-core/"))[:1]
        return tuple([*chosen[:1], *scores, *chosen[1:]] if chosen else sorted(self.series)[:8])


def chart_name(key: str) -> str:
    """What people call a key; empty where it has no other name."""
    for name, keys in CHARTS:
        if key in keys:
            return name
    return "validation" if key.startswith("val-core/") else ""
