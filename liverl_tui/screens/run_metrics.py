"""The series of the run that the interface shows: read once, for the dashboard and the metrics screen."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from textual.app import App

from liverl.observe.metrics.series import SeriesReader
from liverl_tui.widgets.metrics.charts import Charts


class Metrics:
    """The series of a run, and which charts the user has chosen. Kept per app, so that closing the metrics screen
    loses neither.

    ``problem``: why the last read failed; empty if it did not. ``done``: the files were read to their end once.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.charts = Charts()
        self.problem = ""
        self.done = False
        self._reader = SeriesReader.of_run(run_dir)
        self._busy = False

    async def read(self) -> None:
        """Add what was written since the last call to ``charts``; return at once while another call is reading. A
        thread reads the files, a chunk at a time. An ``OSError`` is kept in ``problem``."""
        if self._busy:
            return
        self._busy = True
        try:
            more = True
            while more:
                batch = await asyncio.to_thread(self._reader.poll)
                self.charts.series.add(batch)
                more = batch.more
            refused = (f"cannot read {path.name}: {why}" for path, why in self._reader.unreadable.items())
            self.problem, self.done = next(refused, ""), True
        except OSError as error:
            name = os.path.basename(error.filename or self.run_dir)
            self.problem = f"cannot read {name}: {error.strerror or error}"
        finally:
            self._busy = False


_metrics_by_app: WeakKeyDictionary[App[Any], Metrics] = WeakKeyDictionary()


def metrics_of(app: App[Any], run_dir: Path) -> Metrics:
    """Return the metrics that ``app`` has kept; new ones on the first call, and for another run."""
    metrics = _metrics_by_app.get(app)
    if metrics is None or metrics.run_dir != run_dir:
        metrics = _metrics_by_app[app] = Metrics(run_dir)
    return metrics
