"""The metrics of a run as one series per key over its steps, for charts; read while the file grows.

Non-finite values are kept as NaN or infinity: a loss that became NaN must be visible.
"""

from __future__ import annotations

import math
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from pathlib import Path

from liverl.observe.metrics.files import CHUNK, Batch, MetricFiles
from liverl.observe.metrics.names import CHARTS, OVERVIEW, VALIDATION, title_of

__all__ = ["CHARTS", "CHUNK", "Batch", "Series", "SeriesReader", "SeriesSet", "chart_name"]


_READS = 1 << 20  # blocks of one run: a file that grows faster than it is read must not be read for ever


class Series:
    """One key over the steps. ``steps`` ascend; a step written twice has its last value.

    ``version`` grows with every value, ``rewrites`` with every value that was not appended at the end.
    ``gaps`` counts non-finite values.
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
        """Add a value, or replace that of the same step."""
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
        """Remove the points at ``step`` and after it."""
        place = bisect_left(self.steps, step)
        if place < len(self.steps):
            self.version += 1
            self.rewrites += 1
            self.gaps -= sum(not math.isfinite(value) for value in self.values[place:])
            del self.steps[place:]
            del self.values[place:]

    def at(self, step: int) -> tuple[int, float] | None:
        """Return (step, value) of the newest point at or before ``step``; None if there is none."""
        place = bisect_left(self.steps, step + 1) - 1
        return None if place < 0 else (self.steps[place], self.values[place])

    def nearest(self, step: int, by: int) -> int | None:
        """Return the step of the point ``by`` points after (negative: before) the one nearest to ``step``;
        None if there is none."""
        if not self.steps:
            return None
        place = bisect_left(self.steps, step)
        if place == len(self.steps) or (place and step - self.steps[place - 1] < self.steps[place] - step):
            place -= 1
        return self.steps[max(0, min(len(self.steps) - 1, place + by))]


class SeriesReader:
    """Reads one ``metrics.jsonl``, or the metrics of a run (``of_run``). Blocking: call it off the event
    loop."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = MetricFiles(path)

    @classmethod
    def of_run(cls, run_dir: str | os.PathLike[str]) -> SeriesReader:
        """Return a reader of all metrics files of a run: see ``liverl.observe.metrics.files``."""
        reader = cls(run_dir)
        reader._files = MetricFiles(run_dir, run_dir=True)
        return reader

    @property
    def offset(self) -> int:
        """Bytes read of the current files."""
        return self._files.offset

    @property
    def unreadable(self) -> Mapping[Path, str]:
        """The files that were left out, and why."""
        return self._files.unreadable

    def poll(self, cap: int = CHUNK) -> Batch:
        """Return the records completed by the next ``cap`` bytes.

        Raises:
            OSError: the storage failed.
        """
        return self._files.poll(cap)


class SeriesSet:
    """All series of a run. Pure: pass what a reader returns to ``add``."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.bad_lines = 0
        self.first: int | None = None  # step
        self.last: int | None = None
        self.version = 0

    def key_of(self, word: str) -> str | None:
        """The key of the metric that ``word`` names: itself, or the one of the chart with that title, in any case of
        letters; None if it names none."""
        if word in self.series:
            return word
        low = word.lower()
        chart = next((name for name, _ in CHARTS if low in (name.lower(), title_of(name).lower())), None)
        return fullest(chart, self.series) if chart is not None else None

    def add(self, batch: Batch) -> None:
        """Add new records, and drop what they supersede."""
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
        """Drop this step and later ones: a later trainer repeats them."""
        for series in self.series.values():
            series.cut(step)
        self.series = {key: series for key, series in self.series.items() if series.steps}
        self.first = min((series.steps[0] for series in self.series.values()), default=None)
        self.last = max((series.steps[-1] for series in self.series.values()), default=None)
        self.version += 1

    def default_charts(self) -> tuple[str, ...]:
        """Return the keys of ``CHARTS`` that exist, a validation score after the first; without any, the first eight
        keys."""
        keys_present = [fullest(name, self.series) for name, _ in CHARTS]
        chosen = [key for key in keys_present if key is not None]
        scores = validation_key(self.series)
        return tuple(
            [*chosen[:1], *([scores] if scores else []), *chosen[1:]] if chosen else sorted(self.series)[:8]
        )

    def overview_charts(self) -> tuple[str, ...]:
        """Return the keys of ``OVERVIEW`` that exist."""
        return tuple(key for name in OVERVIEW if (key := fullest(name, self.series)) is not None)


def fullest(chart: str, series: Mapping[str, Series]) -> str | None:
    """The key of the chart ``chart`` with the most steps, of several the first: attempts of one run may differ in what
    they write. None if there is none of the chart."""
    found = [key for key in dict(CHARTS)[chart] if key in series]
    return max(found, key=lambda key: len(series[key].steps), default=None)


def series_of(run_dir: str | os.PathLike[str]) -> tuple[SeriesSet, Mapping[Path, str]]:
    """All series of a run, as far as they are written, and the files that were left out with the reason. Blocking.

    Raises:
        OSError: the storage failed.
    """
    reader, found = SeriesReader.of_run(run_dir), SeriesSet()
    for _ in range(_READS):
        batch = reader.poll()
        found.add(batch)
        if not batch.more:
            break
    return found, reader.unreadable


def validation_key(series: Iterable[str]) -> str:
    """The key of the validation score that the interface shows: the first ``val-core/`` by name; empty without any."""
    return min((key for key in series if key.startswith(VALIDATION)), default="")


def chart_name(key: str) -> str:
    """Return the title of a key; empty if it has none."""
    for name, keys in CHARTS:
        if key in keys:
            return title_of(name)
    return "validation" if key.startswith(VALIDATION) else ""
