"""A private run directory of links to the files of a run that is watched, so that all that reads a run directory
(steps, trials, logs, the screens) reads them as well. The watched files themselves are only read."""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Collection
from pathlib import Path

import msgspec

from liverl.model import Event, Level
from liverl.observe.metrics.event_files import begun, is_event_file
from liverl.observe.trials.step_times import FinishedStep
from liverl.rundir.layout import RunDir
from liverl.rundir.log_names import LogName
from liverl.util.append import append_whole
from liverl.util.atomic_file import write_atomic
from liverl.util.modes import make_directory

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 40  # characters of a service's name


def service_name(text: str) -> str:
    """A name for a service that is also a file's name. Pure."""
    return _UNSAFE.sub("-", text).strip("-")[:_LONGEST] or "log"


class Mirror:
    """``folder``: an empty private directory, which the caller removes; ``name``: of the run.

    Raises:
        OSError: the directory cannot be written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.run = RunDir(folder / "watch" / service_name(name))
        self._logs: dict[str, list[str]] = {}  # service -> targets, one per generation
        self._trials: dict[str, Path] = {}  # target -> link
        self._metrics: list[str] = []
        self._seq = 0
        self.events: list[Event] = []
        self._lock = threading.Lock()
        make_directory(self.run.logs(1))

    def link_log(self, service: str, log: Path) -> str:
        """Link a log; returns its path relative to the run directory. Another log of the same service is its next
        generation. Any thread may call it."""
        target = os.path.realpath(log)
        with self._lock:
            targets = self._logs.setdefault(service, [])
            if target not in targets:
                targets.append(target)
                self._link(self.run.logs(1) / str(LogName(service, len(targets))), target)
            number = targets.index(target) + 1
        return f"attempt_001/logs/{LogName(service, number)}"

    def begin(self, at: float, logs: Collection[Path]) -> None:
        """A launch has begun (Unix seconds; 0 if that is not known), with these ``logs``: what was linked of metrics
        and trainers' logs of launches before it is no longer read as the run's, and trials from before it are none of
        the run's."""
        kept = {os.path.realpath(log) for log in logs}
        record = {
            "k": "intent",
            "svc": "trainer",
            "gen": 1,
            "at": at,
        }  # as a run of ours writes of its trainer
        with self._lock:
            write_atomic(self.run.journal, msgspec.json.encode(record) + b"\n")
            for link in self._metrics_links():
                link.unlink()
            self._metrics.clear()
            for number, target in enumerate(self._logs.get("trainer", ()), 1):
                if target not in kept and _modified(target) < at:
                    (self.run.logs(1) / f"trainer.{number}.log").unlink(missing_ok=True)

    def _metrics_links(self) -> list[Path]:
        folder = self.run.attempt(1)
        found = (*folder.glob("metrics.verl*.jsonl"), *folder.glob("metrics.events.*.tfevents"))
        return [path for path in found if path.is_symlink()]

    def link_metrics(self, path: Path) -> None:
        """Link a file with a record per step, or an event file of tensorboard, which is read if the logs have no steps;
        a later one supersedes earlier ones from its first step on."""
        target = os.path.realpath(path)
        if is_event_file(path.name):
            link = self.run.attempt(1) / f"metrics.events.{begun(path.name)}.tfevents"
            if not link.is_symlink():
                self._link(link, target)
        elif target not in self._metrics:
            self._metrics.append(target)
            number = len(self._metrics)
            name = "metrics.verl.jsonl" if number == 1 else f"metrics.verl.{number}.jsonl"
            self._link(self.run.attempt(1) / name, target)

    def link_trials(self, folder: Path, named: bool = False) -> None:
        """Link a folder of trials. ``named``: the user named it, so that all of its trials are shown; of another one
        those that a launch before this one has made are left out."""
        target = os.path.realpath(folder)
        if target in self._trials:
            return
        free = named and self.run.trials not in self._trials.values()
        link = self.run.trials if free else self.run.path / f"trials.{len(self._trials) + 2}"
        self._trials[target] = link
        self._link(link, target)

    def say(
        self,
        at: float,
        kind: str,
        text: str,
        level: Level = "info",
        service: str | None = None,
        **data: object,
    ) -> None:
        """Add an event. ``at``: Unix seconds."""
        self._seq += 1
        event = Event(self._seq, at, kind, text, level, service, dict(data))
        self.events.append(event)
        append_whole(self.run.events, msgspec.json.encode(event) + b"\n")

    def past_step(self, step: FinishedStep) -> None:
        """Note a step that was there before the watch began, for trials that name none. It is no event."""
        data = {"step": step.step, "after": step.after, "by": step.by}
        event = Event(0, step.by, "step", f"step {step.step}, before the watch began", data=data)
        append_whole(self.run.events, msgspec.json.encode(event) + b"\n")

    @property
    def seq(self) -> int:
        """Number of the newest event; 0 before the first."""
        return self._seq

    @property
    def trials(self) -> int:
        """How many folders of trials are linked."""
        return len(self._trials)

    @staticmethod
    def _link(link: Path, target: str) -> None:
        link.symlink_to(target)


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return -math.inf  # it is gone, and of no launch that goes on
