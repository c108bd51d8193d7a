"""What the files of a run say of its training and of why a service failed, read without a backend."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.logs.files import also_written
from liverl.model import Cause, Rewards, ServiceStatus, StepMetrics, UnreadableFile
from liverl.observe.metrics.pace import StepPace
from liverl.observe.metrics.recent import RecentSteps, StepCollector
from liverl.observe.metrics.rewards import RewardHistory
from liverl.observe.metrics.steps import MetricsReader
from liverl.observe.trials.scanner import TrialScanner
from liverl.rundir.layout import RunDir

if TYPE_CHECKING:
    from liverl.causes.inputs.ended import Ended
    from liverl.causes.match import Matcher

_POLLS = 64  # maximum reads of the metrics file per poll; one read takes at most 4 MiB


class FileReadings:
    """Reads one run directory incrementally. ``trials``: the scanner of its trials; ``news``: the steps that the last
    call of ``metrics`` has read, the oldest first, and ``written``: the Unix times after which and by which each was
    written; ``unreadable``: files of metrics that the last call left out. Not thread-safe."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.run_dir = Path(run_dir)
        self.ray = True  # something of the run may be a process of Ray
        self.gpus = True  # something of it may compute on some
        self.trials = TrialScanner(self.run_dir)
        self._steps = MetricsReader.of_run(self.run_dir)
        self._pace = StepPace()
        self._rewards = RewardHistory()
        self._recent = StepCollector()
        self._metrics: StepMetrics | None = None
        self.news: list[StepMetrics] = []
        self.written: dict[int, tuple[float, float]] = {}
        self.unreadable: tuple[UnreadableFile, ...] = ()
        self._matcher: Matcher | None = None  # read when it is needed
        self._causes: dict[tuple[str, int], Cause | None] = {}

    @property
    def step_seconds(self) -> float | None:
        """Median duration of the newest steps; None until one is known."""
        return self._pace.seconds

    @property
    def rewards(self) -> Rewards:
        """The mean rewards of the steps read so far."""
        return self._rewards.summary()

    @property
    def recent(self) -> RecentSteps:
        """The newest steps read so far."""
        return self._recent.recent()

    def _catalogue(self) -> Matcher:
        if self._matcher is None:
            from liverl.offline.run_rules import catalogue_of

            self._matcher = catalogue_of(RunDir(self.run_dir)).matcher
        return self._matcher

    def metrics(self) -> StepMetrics | None:
        """Read what is new, and return the newest step's metrics; None without any."""
        self.news, self.written = [], {}
        failed: dict[str, str] = {}
        for _ in range(_POLLS):
            resets = self._steps.resets
            try:
                news = self._steps.poll()
            except OSError as error:
                failed[os.fspath(error.filename or self.run_dir)] = error.strerror or str(error)
                break
            if self._steps.resets != resets:
                self._pace.clear()
                self._rewards.clear()
                self._recent.clear()
                self.news.clear()
            if not self._steps.records:
                break
            self._rewards.add(self._steps.records)
            if not news:
                continue
            self._metrics = news[-1]
            self.news += news
            self.written |= self._steps.written
            self._pace.add(news, time.monotonic(), fresh=False)
            self._recent.add(news)
        failed |= {str(path): why for path, why in self._steps.unreadable.items()}
        self.unreadable = tuple(UnreadableFile(path, why) for path, why in failed.items())
        return self._metrics

    def cause(self, service: ServiceStatus, others: Iterable[ServiceStatus] = ()) -> Cause | None:
        """Why a service failed; None for one that did not, or if neither its logs nor its exit tell. ``others``: of the
        run, which are looked at where its own logs do not explain it. The logs of each process are searched once."""
        ended = self._ended(service)
        if ended is None:
            return None
        key = (service.name, service.generation)
        if key not in self._causes:
            # The catalogue is needed by runs in which something has failed only.
            from liverl.causes.inputs.ended import why_ended
            from liverl.causes.inputs.shown import cause

            near = [one for other in others if other.name != service.name and (one := self._ended(other))]
            try:
                why = why_ended(ended, near, matcher=self._catalogue())
            except (OSError, ValueError):
                why = None
            self._causes[key] = (
                cause(why, self.run_dir, service.since, ray=self.ray, gpus=self.gpus)
                if why is not None
                else None
            )
        return self._causes[key]

    def _ended(self, service: ServiceStatus) -> Ended | None:
        if service.state not in ("failed", "gave_up") or service.log is None:
            return None
        from liverl.causes.inputs.ended import Ended

        log = self.run_dir / service.log
        return Ended(service.name, log, also=tuple(also_written(log)), exit=service.exit)
