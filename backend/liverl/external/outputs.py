"""Finds what a launch script writes outside of the run directory, its logs and its trials, and links it there.

Everything else reads only the run directory: a log is a link among those of the services
(``attempt_001/logs/train-log.1.log``), a further folder of trials one beside ``trials`` (``trials.2``). What is older
than the script's start is not linked.

Everything here may block: call it in a thread.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import stat
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from liverl.logs.follow import LineFollower
from liverl.logs.prefixes import colourless
from liverl.observe.boot.facts import tensorboard_in
from liverl.observe.metrics.event_files import begun, event_files
from liverl.plan.spec import ScriptOutputs
from liverl.proxy.keys import FOLDER as KEYS
from liverl.rundir.layout import ENGINE_LOG, SCRIPT_LOG, TRAIN_LOG, RunDir
from liverl.rundir.log_names import LogName, read_log_name
from liverl.util.checked_path import resolved
from liverl.util.late_pattern import late_pattern

# What LiveRL's launch scripts print before they start anything. Searched for in the first bytes of the output.
_NAMED = late_pattern(r"(?:^|\s)(train log|vLLM log|trials):\s+(\S.*?)\s*$", re.IGNORECASE)
_SEARCHED = 1 << 20
_UNSAFE = late_pattern(r"[^A-Za-z0-9._-]+")
_STAMP = late_pattern(r"-?(\d{8}-\d{6})$")  # at the end of the names that LiveRL makes, in UTC
_TOGETHER = 600.0  # seconds within which the hosts of one run start
_FOLDERS = ("logs", "harbor_trials")  # in which LiveRL's scripts write
_MOST_LOGS = 64  # maximum files that globs of the user's match
_EVENTS = "tensorboard"
_EARLY = 60  # seconds by which the clock of the trainer's host may be behind
_SKEW = 0.1  # seconds by which times of files may be behind the clock


class RunningScript(Struct, frozen=True):
    """A process of the launch script. ``log``: its output, ``attempt_NNN/logs/trainer.G.log``; ``started_at``: Unix
    time."""

    log: Path
    started_at: float


class OutputLinks:
    """Links the outputs of one launch script into ``run_dir``."""

    def __init__(self, run_dir: Path, outputs: ScriptOutputs) -> None:
        self._run = RunDir(run_dir)
        self._outputs = outputs
        self._script: RunningScript | None = None
        self._printed = LineFollower(run_dir)
        self._named: dict[str, list[str]] = {}  # train log, vllm log, trials -> paths in the output

    def look(self, script: RunningScript) -> list[str]:
        """Look once; return what was found since the last time, in words.

        Raises:
            OSError: the run directory cannot be written, or the storage failed.
        """
        return [*self.link_logs(script), *self._link_trials(script), *self._link_events(script)]

    def link_logs(self, script: RunningScript) -> list[str]:
        """Look for logs only. Another instance may do so at the same time."""
        self._read_output(script)
        news = [self._link_log(name, path, script) for name, path in self._logs(script)]
        return [text for text in news if text]

    def _read_output(self, script: RunningScript) -> None:
        if script != self._script:
            self._script, self._named = script, {}
            self._printed = LineFollower(script.log)
        if self._printed.follower.offset >= _SEARCHED:
            return
        for line in self._printed.poll(_SEARCHED):
            text = colourless(line.decode("utf-8", "replace"))
            if folder := tensorboard_in(text):
                self._named.setdefault(_EVENTS, []).append(folder)
            match = _NAMED.search(text)
            if match is not None:
                self._named.setdefault(match[1].lower(), []).append(match[2])

    # --- logs ---

    def _logs(self, script: RunningScript) -> Iterator[tuple[str, Path]]:
        """(name, path) of the logs that this process of the script has written."""
        if self._outputs.logs:
            found = sorted(
                {path for pattern in self._outputs.logs for path in glob.iglob(pattern, recursive=True)}
            )
            fresh = [path for path in found if _written(path, script.started_at)]
            yield from ((_name_of(path), Path(path)) for path in fresh[:_MOST_LOGS])
            return
        for name, key, usual in (
            (TRAIN_LOG, "train log", self._outputs.train_logs),
            (ENGINE_LOG, "vllm log", self._outputs.vllm_logs),
        ):
            paths = list(self._named_paths(key)) or list(usual)
            log = next((path for path in paths if _written(path, script.started_at)), None)
            if log is not None:
                yield name, Path(log)

    def _named_paths(self, key: str) -> Iterator[str]:
        """The paths of this kind in the output that are believed. Relative ones start where the script may have
        gone."""
        for name in reversed(self._named.get(key, [])):
            paths = (os.path.join(home, name) for home in _homes(self._outputs))
            yield from (path for path in paths if believed(path, self._run.path, self._outputs))

    def _link_log(self, name: str, path: Path, script: RunningScript) -> str | None:
        written = read_log_name(script.log.name)
        link = script.log.with_name(str(LogName(name, written.generation if written is not None else 1)))
        if path.resolve() == script.log.resolve() or not _link(link, path):
            return None
        return f"reading the log {path} as {name}"

    # --- steps in tensorboard's event files ---

    def _link_events(self, script: RunningScript) -> Iterator[str]:
        """Those that were begun by this process of the script: others in the folder are of other runs. Links of one
        second are one file's."""
        for folder in self._named_paths(_EVENTS):
            try:
                files = event_files(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for path in files:
                at = begun(path.name)
                link = script.log.parents[1] / f"metrics.events.{at}.tfevents"
                if at >= int(script.started_at) - _EARLY and _link(link, path):
                    yield f"reading steps from {path}, if the log has none"

    # --- trials ---

    def _link_trials(self, script: RunningScript) -> Iterator[str]:
        links = self._run.more_trials()
        known = {os.path.realpath(path) for path in self._run.trial_roots()}
        number = max(links, default=1) + 1
        for folder in self._trial_folders(script):
            try:
                real = resolved(folder)  # not through another user's link: ours to it would be followed
            except (OSError, ValueError):
                continue
            if real in known or not _changed_since(folder, script.started_at, stat.S_ISDIR):
                continue
            known.add(real)
            if _link(self._run.path / f"trials.{number}", Path(real)):
                number += 1
                yield f"reading the trials in {real}"

    def _trial_folders(self, script: RunningScript) -> Iterator[str]:
        found = (path for pattern in self._outputs.trial_globs for path in sorted(glob.iglob(pattern)))
        own = [*self._named_paths("trials"), *self._outputs.trials, *found]
        yield from own
        if self._outputs.nodes > 1:
            for folder in own:
                yield from siblings(folder, script.started_at)


def _homes(outputs: ScriptOutputs) -> list[Path]:
    return [Path(log).parents[1] for log in outputs.train_logs]


def believed(path: str, run_dir: Path, outputs: ScriptOutputs) -> bool:
    """Whether a path may be used that the script's output has named. Data, replies of the model and what an agent
    prints come into the same output: it may name what the user has not, such as a private file, or a folder in which
    any user can make trials.

    Only what lies below the script's directory, the run root or the folder of trials that the plan names, links
    resolved; and never ``/``, a home, the folder of homes or one for temporary files, nor anything because it lies
    below one of these; nor a run's keys.
    """
    try:
        real = os.path.realpath(path)
    except ValueError:  # a null byte
        return False
    homes = _homes(outputs)
    # The folders in which LiveRL's scripts write are often links to a larger disk.
    own = [*homes, *(home / name for home in homes for name in _FOLDERS)]
    roots = [*own, run_dir.parent.parent, *(Path(trials) for trials in outputs.trials[:1])]
    wide = _too_wide()
    below = [
        os.path.relpath(real, root)
        for root in map(os.path.realpath, roots)
        if root not in wide and real.startswith(root.rstrip("/") + "/")
    ]
    return real not in wide and bool(below) and all(KEYS not in path.split("/") for path in below)


def _too_wide() -> set[str]:
    homes = [os.path.expanduser("~"), _home_of_user()]
    folders = [
        "/",
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        tempfile.gettempdir(),
        *homes,
        *map(os.path.dirname, homes),
    ]
    return {os.path.realpath(folder) for folder in folders}


def _home_of_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def planned(path: str, outputs: ScriptOutputs) -> bool:
    """Whether the plan itself names this log or folder of trials, and not only a line of the script's output."""
    real = os.path.realpath(path)
    trials = [*outputs.trials, *(found for each in outputs.trial_globs for found in glob.iglob(each))]
    logs = [*outputs.train_logs, *outputs.vllm_logs]
    logs += [found for each in outputs.logs for found in glob.iglob(each, recursive=True)]
    if real in map(os.path.realpath, (*trials, *logs)):
        return True
    # Those of a run's other hosts have the same name but for the time.
    stem = _stem(real)[0]
    return outputs.nodes > 1 and any(_stem(os.path.realpath(each))[0] == stem for each in trials)


def siblings(folder: str, started_at: float) -> Iterator[str]:
    """The folders of trials of a run's other hosts: beside that of one host, with the same name but for the time, at
    which each host has started. ``started_at``: Unix time of the run's start, for a name without a time."""
    parent, name = os.path.split(folder)
    stem, began = _stem(name)
    began = began if began is not None else started_at
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return
    for other in names:
        other_stem, at = _stem(other)
        if other_stem == stem and at is not None and abs(at - began) <= _TOGETHER:
            yield os.path.join(parent, other)


def _stem(name: str) -> tuple[str, float | None]:
    """A name without the time at its end, and that time in Unix seconds."""
    match = _STAMP.search(name)
    if match is None:
        return name, None
    try:
        at = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return name, None
    return name[: match.start()], at.timestamp()


def _name_of(path: str) -> str:
    return SCRIPT_LOG + _UNSAFE.sub("_", Path(path).stem)


def _written(path: str, since: float) -> bool:
    """Whether a file was written after ``since``, Unix time."""
    return _changed_since(path, since, stat.S_ISREG)


def _changed_since(path: str, since: float, kind: object) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return kind(status.st_mode) and status.st_mtime >= since - _SKEW  # type: ignore[operator]


def _link(link: Path, target: Path) -> bool:
    """Make ``link`` lead to ``target``; return whether it is new."""
    try:
        link.symlink_to(target)
    except FileExistsError:
        return False
    return True
