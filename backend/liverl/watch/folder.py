"""What a folder of somebody else's run holds: logs with their kinds, metrics, folders of trials. Reads only.

Storage may be slow, and a folder of trials large: of trials only the folder is noted, checkpoints are passed over, and
a file's kind is read again only while it may become another one: a trainer's log can begin with anything.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from liverl.model import UnreadableFile
from liverl.observe.metrics.event_files import is_event_file
from liverl.observe.metrics.files import has_steps
from liverl.observe.trials.root import STEP_DIR
from liverl.offline.doctor.inputs import UNREADABLE, look
from liverl.offline.doctor.trial_folders import is_trial

Role = Literal["trainer", "replica", "proxy", "ray", "other"]

# The kinds of ``offline/doctor/kinds.py`` by what stands in their words.
_ROLES: tuple[tuple[str, Role], ...] = (
    ("trainer log", "trainer"),
    ("LiteLLM log", "proxy"),
    ("vLLM log", "replica"),
    ("SGLang log", "replica"),
    ("SGLang router log", "proxy"),
    ("Ray", "ray"),
)
ENTRIES = 20_000  # looked at in one survey
DEPTH = 8  # folders below each other
SETTLED = 64 << 10  # bytes up to which a file's kind is read again as soon as it has grown
AGAIN_S = 10.0  # seconds between two looks at the kind of a larger log that is no trainer's so far
_LOG_NAME = re.compile(r"\.(?:log|out|err|stdout|stderr|txt)(?:\.\d+)?$|^slurm-")
_SKIPPED = frozenset((".git", ".venv", "node_modules", "__pycache__", "site-packages", "secrets", "sandbox"))
_PREFIX = ("checkpoint", "global_step_", "models--")


class LogFound(msgspec.Struct, frozen=True):
    """``what``: the kind in words; ``modified``: Unix seconds."""

    path: Path
    role: Role
    what: str
    size: int
    modified: float


class Survey(msgspec.Struct, frozen=True):
    """``metrics``: files with a JSON record per step, and event files of tensorboard; ``trials``: folders whose
    subfolders, or those of ``step_NNNN`` in them, are trials; ``left_out``: what was not looked at, and why;
    ``unreadable``: folders and what is named as a log or as metrics that could not be read."""

    logs: tuple[LogFound, ...] = ()
    metrics: tuple[Path, ...] = ()
    trials: tuple[Path, ...] = ()
    left_out: tuple[str, ...] = ()
    unreadable: tuple[UnreadableFile, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.logs or self.metrics or self.trials)


class _Kind(NamedTuple):
    """What a file was at the last look. ``log``: it is read as a log; ``at``: when, on the monotonic clock."""

    inode: int
    size: int
    what: str
    log: bool
    metrics: bool
    at: float

    def stale(self, status: os.stat_result, now: float) -> bool:
        """Whether it may be of another kind by now."""
        if self.inode != status.st_ino or self.size == status.st_size:
            return self.inode != status.st_ino
        if self.size < SETTLED:
            return True
        return self.log and role_of(self.what) not in ("trainer", "ray") and now - self.at >= AGAIN_S


def role_of(what: str) -> Role:
    """What writes a log of this kind. Pure."""
    return next((role for words, role in _ROLES if words in what), "other")


class Surveyor:
    """Surveys folders repeatedly. What this process itself prints into a file there is no log of the run."""

    def __init__(self) -> None:
        self._own = set(_outputs())
        self._kinds: dict[Path, _Kind] = {}
        self._left = 0
        self._unreadable: dict[Path, str] = {}

    def survey(self, folders: tuple[Path, ...], trials: Path | None = None) -> Survey:
        """What the folders hold now. ``trials``: a folder of trials that the user named."""
        self._left = ENTRIES
        self._unreadable = {}
        too_deep: list[Path] = []
        logs: dict[str, LogFound] = {}
        metrics: list[Path] = []
        roots: dict[str, Path] = {} if trials is None else {os.path.realpath(trials): trials}
        waiting = deque((folder, 0) for folder in folders)
        while waiting and self._left > 0:
            folder, depth = waiting.popleft()
            entries = self._entries(folder)
            names = {entry.name for entry in entries}
            root = trials_root(folder, names)
            if root is not None:
                roots.setdefault(os.path.realpath(root), root)
                # Its siblings are trials, too.
                waiting = deque(one for one in waiting if root not in one[0].parents)
                continue
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    skipped = entry.name in _SKIPPED or entry.name.startswith(_PREFIX)
                    if skipped or os.path.realpath(path) in roots:
                        continue
                    if depth < DEPTH:
                        waiting.append((path, depth + 1))
                    else:
                        too_deep.append(path)
                    continue
                kind = self._file(path)
                if kind is None:
                    continue
                log, is_metrics = kind
                if is_metrics:
                    metrics.append(path)
                elif log is not None:
                    logs.setdefault(os.path.realpath(path), log)
        left_out = []
        if waiting:
            left_out.append(
                f"what lies behind the first {ENTRIES:,} files and folders, such as {waiting[0][0]}"
            )
        if too_deep:
            left_out.append(f"what lies more than {DEPTH} folders deep, such as {too_deep[0]}")
        return Survey(
            tuple(logs.values()),
            tuple(metrics),
            tuple(roots.values()),
            tuple(left_out),
            tuple(UnreadableFile(str(path), why) for path, why in self._unreadable.items()),
        )

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []  # removed meanwhile
        except OSError as error:
            self._unreadable[folder] = error.strerror or str(error)
            return []
        self._left -= len(entries)
        return entries

    def _file(self, path: Path) -> tuple[LogFound | None, bool] | None:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None  # removed meanwhile, or a link that leads nowhere
        except OSError as error:
            self._note(path, error.strerror or str(error))
            return None
        if (status.st_dev, status.st_ino) in self._own:
            return None
        known, now = self._kinds.get(path), time.monotonic()
        if known is None or known.stale(status, now):
            one = look(path, named=False)
            if one.size is None:  # so that it is looked at again: it may become readable
                self._kinds.pop(path, None)
                self._note(path, one.what.removeprefix(f"{UNREADABLE}: "))
                return None
            is_metrics = (path.suffix == ".jsonl" and has_steps(path)) or is_event_file(path.name)
            known = _Kind(status.st_ino, status.st_size, one.what, one.read, is_metrics, now)
            self._kinds[path] = known
        if known.metrics:
            return None, True
        if not known.log:
            return None
        if known.what == "text" and not _LOG_NAME.search(path.name):
            return None  # such as a Dockerfile
        return LogFound(path, role_of(known.what), known.what, status.st_size, status.st_mtime), False

    def _note(self, path: Path, why: str) -> None:
        """Note that a file cannot be read, unless nobody would look for a log or for metrics in it."""
        if _LOG_NAME.search(path.name) or path.suffix == ".jsonl":
            self._unreadable[path] = why


def _outputs() -> Iterator[tuple[int, int]]:
    """Device and inode of the files that this process prints to."""
    for number in (1, 2):
        try:
            status = os.fstat(number)
        except OSError:
            continue  # closed
        if stat.S_ISREG(status.st_mode):
            yield status.st_dev, status.st_ino


def trials_root(folder: Path, names: set[str]) -> Path | None:
    """The folder of trials that a folder with these entries lies in; None if it is no trial. Pure."""
    if not is_trial(names):
        return None
    trial = folder.parent if folder.name == "agent" else folder
    return trial.parent.parent if STEP_DIR.fullmatch(trial.parent.name) else trial.parent
