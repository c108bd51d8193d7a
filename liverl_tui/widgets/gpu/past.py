"""The past of one GPU on a time axis that runs from left to right. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from liverl.model import GpuStatus
from liverl.observe.history import GpuUse, Sample
from liverl_tui.text.words import age

Measure = Literal["utilization", "memory", "power", "clock"]
MEASURES: tuple[Measure, ...] = ("utilization", "memory", "power", "clock")
PERIOD_S = 10.0  # seconds per column without a zoom: the interval at which the run's history is written
ZOOMS = (1, 6, 30)  # periods per column
KEPT = 9000  # periods that are kept: a day and an hour
_LEVELS = "▁▂▃▄▅▆▇█"
_APART = 10  # columns between two times of the axis, at least
_TICKS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)  # seconds between two times


class Past:
    """Means of the four measures per period."""

    def __init__(self) -> None:
        self._sums: dict[int, dict[Measure, tuple[float, int]]] = {}

    def take(self, at: float, use: GpuUse) -> None:
        """Add what was measured at ``at`` (Unix seconds), in any order."""
        sums = self._sums.setdefault(int(at // PERIOD_S), {})
        for measure, value in zip(MEASURES, use, strict=True):
            if value is not None:
                total, count = sums.get(measure, (0.0, 0))
                sums[measure] = (total + value, count + 1)
        if len(self._sums) > KEPT + 500:
            newest = max(self._sums)
            self._sums = {period: s for period, s in self._sums.items() if period > newest - KEPT}

    def take_status(self, at: float, gpu: GpuStatus) -> None:
        """Add what a snapshot says."""
        self.take(at, GpuUse(gpu.utilization, gpu.memory_used, gpu.power_w, gpu.sm_clock_mhz))

    def take_history(self, uuid: str, samples: Iterable[Sample]) -> None:
        """Add the samples of the run's history that know this GPU."""
        for sample in samples:
            use = sample.gpus.get(uuid)
            if use is not None:
                self.take(sample.at, use)

    def columns(self, measure: Measure, now: float, width: int, zoom: int) -> list[float | None]:
        """The means of ``width`` columns of ``zoom`` periods each; the last one holds ``now``. None: no sample."""
        newest = int(now // PERIOD_S) // zoom
        columns: list[float | None] = []
        for column in range(newest - width + 1, newest + 1):
            sums = [self._sum(measure, period) for period in range(column * zoom, (column + 1) * zoom)]
            count = sum(samples for _, samples in sums)
            columns.append(sum(total for total, _ in sums) / count if count else None)
        return columns

    def _sum(self, measure: Measure, period: int) -> tuple[float, int]:
        """Sum and number of the samples in a period. Samples come about once per period: the next one stands for a
        single period that none has hit."""
        none = (0.0, 0)
        here = self._sums.get(period, {}).get(measure, none)
        if here[1] or not self._sums.get(period - 1, {}).get(measure, none)[1]:
            return here
        return self._sums.get(period + 1, {}).get(measure, none)


def bars(columns: Sequence[float | None], top: float, rows: int) -> list[str]:
    """A chart of ``rows`` lines, the upper one first. A value of ``top`` fills its column up to a gap to what is above
    the chart, zero is a line at the bottom, and no value leaves the column blank."""
    most = 8 * rows - 1
    steps = [
        None if value is None or top <= 0 else max(1, min(most, round(value / top * most)))
        for value in columns
    ]
    lines = []
    for row in range(rows - 1, -1, -1):
        below = 8 * row
        cells = (" " if s is None or s <= below else _LEVELS[min(8, s - below) - 1] for s in steps)
        lines.append("".join(cells))
    return lines


def axis(width: int, zoom: int, end: str) -> str:
    """The time axis under ``width`` columns: ``-15m       -10m        -5m       now``; ``end``: of its last column."""
    column = zoom * PERIOD_S
    tick = next((t for t in _TICKS if t >= max(_APART, width // 6) * column), _TICKS[-1])
    line = [" "] * width
    for number in range(int(width * column // tick) + 1):
        place = width - int(number * tick // column)
        text = f"-{age(number * tick)}".replace("h00m", "h") if number else end
        if place >= len(text):
            line[place - len(text) : place] = text
    return "".join(line)
