"""The steps of a run: its metrics as they are written, one record a step."""

from __future__ import annotations

import math
import os

from liverl.logs.follow import LineFollower
from liverl.model import StepMetrics
from liverl.observe.metrics.files import CHUNK, MetricFiles
from liverl.observe.metrics.step_lines import (
    parse_metrics_record,
    parse_step_line,
    training_step,
    validation_only,
)

__all__ = [
    "ConsoleReader",
    "MetricsReader",
    "parse_metrics_record",
    "parse_step_line",
    "training_step",
]

_MOST = 4 << 20  # bytes of one poll, about


class MetricsReader:
    """New steps of one ``metrics.jsonl``, or of a run (``of_run``), whatever its trainer is. Values that are not
    finite numbers are dropped, and records that hold a validation alone.

    ``bad_lines`` counts what was no record. When ``resets`` grows, a file was replaced or truncated and all is
    read from its start again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = MetricFiles(path)
        self.bad_lines = 0
        self.resets = 0

    @classmethod
    def of_run(cls, run_dir: str | os.PathLike[str]) -> MetricsReader:
        """Of every trainer that the run had: see ``liverl.observe.metrics.files``."""
        reader = cls(run_dir)
        reader._files = MetricFiles(run_dir, run_dir=True)
        return reader

    def poll(self) -> list[StepMetrics]:
        """Steps completed since the last call, at most 4 MiB of them; a step that is done again comes again.
        Raises OSError but "not there"."""
        found: list[StepMetrics] = []
        for _ in range(_MOST // CHUNK):
            batch = self._files.poll()
            self.bad_lines += batch.bad_lines
            if batch.fresh:
                self.resets += 1
                found.clear()
            if batch.cut is not None:
                found = [metrics for metrics in found if metrics.step < batch.cut]
            for step, values in batch.records:
                if not validation_only(values):
                    finite = {key: value for key, value in values.items() if math.isfinite(value)}
                    found.append(StepMetrics(step=step, values=finite))
            if not batch.more:
                break
        return found


class ConsoleReader:
    """Step lines of a trainer's log, for a trainer that writes no metrics file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lines = LineFollower(path)

    @property
    def resets(self) -> int:
        return self._lines.resets

    def poll(self) -> list[StepMetrics]:
        """Steps completed since the last call. Raises OSError but "not there"."""
        found: list[StepMetrics] = []
        for line in self._lines.poll():
            if b"step:" in line:
                metrics = parse_step_line(line.decode("utf-8", "replace"))
                if metrics is not None:
                    found.append(metrics)
        return found
