"""What the backend reads in a run's directory while it supervises: steps, trials, edits of the configuration, logs.

Everything here may block, for ever if the storage hangs: call it in a thread, with a time limit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.control.history import last_step_told
from liverl.logs.files import also_written
from liverl.logs.last_lines import TailIndex
from liverl.model import StepMetrics, TrialsStatus, UnreadableFile
from liverl.observe.boot.stages import Stage, StageTracker
from liverl.observe.config_edits import ConfigEdits
from liverl.observe.metrics.step_lines import only_validates
from liverl.observe.metrics.steps import MetricsReader
from liverl.observe.silence import LogWrites
from liverl.observe.trials.scanner import TrialScanner
from liverl.rundir.layout import RunDir
from liverl.util.regular_file import RefusedFileError

if TYPE_CHECKING:
    from liverl.external.outputs import OutputLinks, RunningScript


@dataclass
class FileNews:
    """What was read since it was last taken.

    ``records``: new or repeated steps, and validations that were written alone. ``resets``: number of times that
    metrics were read again from the start, in total. ``last_reported``: with the first steps, the newest step that an
    event of the run names. ``edits``: edits of the configuration, in words. ``written``: by step, the Unix times after
    which and by which it was written. ``outputs``: what was found of a launch script's outputs, in words.
    """

    records: list[StepMetrics] = field(default_factory=list)
    resets: int = 0
    last_reported: int | None = None
    edits: list[str] = field(default_factory=list)
    written: dict[int, tuple[float, float]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    @property
    def steps(self) -> list[StepMetrics]:
        """The records of steps."""
        return [metrics for metrics in self.records if not only_validates(metrics)]


class RunFiles:
    """Steps, trials and the configuration of one run. One ``scan`` at a time, in any thread; the rest only between
    scans.

    Each source fails alone: an error in one is named in ``unreadable`` and hides nothing of the others.
    """

    def __init__(self, run_dir: Path, outputs: OutputLinks | None = None) -> None:
        self.run_dir = run_dir
        self._outputs = outputs
        self.trials = TrialsStatus()
        self.trial_folders: list[str] = []
        self.unreadable: tuple[UnreadableFile, ...] = ()
        self._steps = MetricsReader.of_run(run_dir)
        self._scanner = TrialScanner(run_dir)
        self._config = ConfigEdits(run_dir)
        self._news = FileNews()
        self._any_steps = False

    @property
    def trials_root(self) -> str:
        """The path with which the folders of trials begin: ``trials`` and the links beside it."""
        return str(RunDir(self.run_dir).trials)

    def scan(self, script: RunningScript | None = None, *, last: bool = False) -> None:
        """Read what is new. A scan that nobody waited for loses nothing: its news stay until they are taken.

        ``script``: the launch script, whose outputs are looked for first; ``last``: see ``TrialScanner.scan``."""
        problems = [self._find_outputs(script), self._scan_steps(), self._scan_config()]
        self.trials = self._scanner.scan(last=last)
        self.trial_folders = self._scanner.newest_folders()
        metrics = (
            UnreadableFile(_relative(path, self.run_dir), why) for path, why in self._steps.unreadable.items()
        )
        named = [problem for problem in problems if problem is not None]
        self.unreadable = (*named, *metrics, *self._scanner.unreadable)

    def _find_outputs(self, script: RunningScript | None) -> UnreadableFile | None:
        if self._outputs is None or script is None:
            return None
        try:
            self._news.outputs += self._outputs.look(script)
        except OSError as error:
            return UnreadableFile(_relative(error.filename or script.log, self.run_dir), _why(error))
        return None

    def _scan_steps(self) -> UnreadableFile | None:
        try:
            steps = self._steps.poll()
            if steps and not self._any_steps:
                self._news.last_reported = last_step_told(self.run_dir)
        except OSError as error:
            return UnreadableFile(_relative(error.filename or "metrics.jsonl", self.run_dir), _why(error))
        self._any_steps = self._any_steps or bool(steps)
        if self._news.resets != self._steps.resets:
            self._news.records.clear()
        self._news.records += self._steps.records
        self._news.written |= self._steps.written
        self._news.resets = self._steps.resets
        return None

    def _scan_config(self) -> UnreadableFile | None:
        try:
            self._news.edits += self._config.poll()
        except OSError as error:
            return UnreadableFile(_relative(error.filename or "config.yaml", self.run_dir), _why(error))
        return None

    def take(self) -> FileNews:
        """Return what the scans since the last call have read."""
        news, self._news = self._news, FileNews(resets=self._news.resets)
        return news


@dataclass(frozen=True)
class ServiceLog:
    """A log to look at. ``stage_parser``: name of the parser of its boot stages; None: they are not wanted."""

    service: str
    path: Path
    stage_parser: str | None


class ServiceLogs:
    """Boot stages and time indexes of the services' logs. One ``look`` at a time, in any thread."""

    def __init__(self, run_dir: Path, *, of_others: bool = False) -> None:
        """``of_others``: what stands in the logs at the first look may have been written, or copied, at any time."""
        self._since_unknown = of_others
        self.stages: dict[Path, Stage] = {}  # by log
        self.unreadable: tuple[UnreadableFile, ...] = ()
        self.write_errors: tuple[str, ...] = ()  # of the last look, in words
        self.written: float | None = None  # Unix time at which the trainer's logs were last written to
        self._run_dir = run_dir
        self._trackers: dict[str, tuple[Path, StageTracker]] = {}
        self._indexes: dict[Path, TailIndex] = {}
        self._writes = LogWrites()

    def look(self, logs: Sequence[ServiceLog], now: float) -> None:
        """Read what was appended; ``now`` is Unix time. A log that cannot be read, and an index that cannot be written,
        is named; the others go on."""
        kept = {log.path for log in logs}
        stages = {path: stage for path, stage in self.stages.items() if path in kept}
        unreadable, write_errors = [], []
        own: list[Path] = []  # logs that the trainer writes
        for log in logs:
            try:
                also = also_written(log.path)
                if log.service == "trainer":
                    own += (log.path, *also)
                status = _status(log.path)
                followed = (self._follow(log, stages, status), status)
                for index, seen in (followed, *((self._index(path), None) for path in also)):
                    try:
                        index.tick(now, seen)
                    except RefusedFileError:
                        raise
                    except OSError as error:
                        write_errors.append(f"{index.path.name}: {error.strerror}")
            except OSError as error:
                unreadable.append(
                    UnreadableFile(_relative(error.filename or log.path, self._run_dir), _why(error))
                )
        self._since_unknown = False  # a log that is new now was begun since then
        self.stages, self.unreadable, self.write_errors = stages, tuple(unreadable), tuple(write_errors)
        self.written = self._writes.last(own)

    @property
    def engine_versions(self) -> tuple[str, ...]:
        """The versions of the engine that the services' newest logs name, each once."""
        facts = (tracker.facts for _, tracker in self._trackers.values())
        return tuple(sorted({one.version for one in facts if one.version is not None}))

    def _index(self, log: Path) -> TailIndex:
        if log not in self._indexes:
            self._indexes[log] = TailIndex(log, since_unknown=self._since_unknown and log.exists())
        return self._indexes[log]

    def _follow(self, log: ServiceLog, stages: dict[Path, Stage], status: os.stat_result | None) -> TailIndex:
        """Read the boot stage of a service, and return the time index of its log. ``status``: of the log, now."""
        index = self._index(log.path)
        if log.stage_parser is not None:
            tracked = self._trackers.get(log.service)
            if tracked is None or tracked[0] != log.path:
                tracked = self._trackers[log.service] = (log.path, StageTracker(log.path, log.stage_parser))
            if not tracked[1].done:
                stage = tracked[1].poll(status)
                if stage is not None:
                    stages[log.path] = stage
        return index


def _status(path: Path) -> os.stat_result | None:
    """None if there is no such file. Raises OSError."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _relative(path: str | os.PathLike[str], run_dir: Path) -> str:
    return os.fspath(path).removeprefix(f"{run_dir}/")


def _why(error: OSError) -> str:
    return error.strerror or str(error)
