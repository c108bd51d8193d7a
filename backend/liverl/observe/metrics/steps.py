"""The training steps of a run, read from its metrics as they are written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from liverl.logs.follow import LineFollower
from liverl.model import StepMetrics
from liverl.observe.metrics.files import CHUNK, MetricFiles
from liverl.observe.metrics.step_lines import (
    only_validates,
    parse_metrics_record,
    parse_step_line,
    step_metrics,
    training_step,
)

__all__ = [
    "ConsoleReader",
    "MetricsReader",
    "parse_metrics_record",
    "parse_step_line",
    "training_step",
]

_MOST = 4 << 20  # approximate bytes per poll


class MetricsReader:
    """Reads new steps of one ``metrics.jsonl``, or of a run (``of_run``) with any trainer.

    Records with validation scores only, as of a validation before the first step, are no steps: they are in
    ``records``, with the steps of the last poll, in the order in which they were written. ``bad_lines`` counts invalid
    lines. When ``resets`` grows, a file was replaced or truncated and everything is read again. ``written``: the Unix
    times after which and by which the records of the last poll were written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = MetricFiles(path)
        self.bad_lines = 0
        self.resets = 0
        self.records: list[StepMetrics] = []
        self.written: dict[int, tuple[float, float]] = {}

    @classmethod
    def of_run(cls, run_dir: str | os.PathLike[str]) -> MetricsReader:
        """Return a reader of all metrics files of a run: see ``liverl.observe.metrics.files``."""
        reader = cls(run_dir)
        reader._files = MetricFiles(run_dir, run_dir=True)
        return reader

    @property
    def unreadable(self) -> Mapping[Path, str]:
        """The files that were left out, and why."""
        return self._files.unreadable

    def poll(self) -> list[StepMetrics]:
        """Return the steps completed since the last call, at most about 4 MiB; repeated steps are returned
        again.

        Raises:
            OSError: the storage failed.
        """
        new: list[StepMetrics] = []
        self.written = {}
        for _ in range(_MOST // CHUNK):
            batch = self._files.poll()
            self.bad_lines += batch.bad_lines
            if batch.fresh:
                self.resets += 1
                new.clear()
            if batch.cut is not None:
                new = [metrics for metrics in new if metrics.step < batch.cut]
            for step, values in batch.records:
                new.append(step_metrics(step, values))
                self.written[step] = batch.written
            if not batch.more:
                break
        self.records = new
        return [metrics for metrics in new if not only_validates(metrics)]


class ConsoleReader:
    """Reads step lines from the log of a trainer that writes no metrics file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._lines = LineFollower(path)

    @property
    def resets(self) -> int:
        """How often the log was replaced or truncated."""
        return self._lines.resets

    def poll(self) -> list[StepMetrics]:
        """Return the steps completed since the last call.

        Raises:
            OSError: the log exists and cannot be read.
        """
        new_steps: list[StepMetrics] = []
        for line in self._lines.poll():
            if b"step:" in line:
                metrics = parse_step_line(line.decode("utf-8", "replace"))
                if metrics is not None:
                    new_steps.append(metrics)
        return new_steps
