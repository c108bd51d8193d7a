"""The index of all trials of a run: built from their files, kept in one file, brought up to date folder by folder.

Of our runs the file is ``trials.index`` in the run's directory, of others (``watch``, a run that must not be written)
it is in the user's cache. A folder of trials that is newer than the index, or had trials that had not ended, is read
again; what has ended is read once. A file that cannot be used is as none.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from liverl.model import TrialHead
from liverl.observe.trials.cut_off import age_of, cut_off_head, with_starts
from liverl.observe.trials.dumps import DUMPS, dump_of, dumped_steps
from liverl.observe.trials.index import Stored, TrialIndex, restored
from liverl.observe.trials.root import STEP_DIR, folders_in
from liverl.observe.trials.scanner import TRIALS, LineReader
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.step_times import StepTimes
from liverl.observe.trials.steps import placed, whole_head
from liverl.observe.trials.tools_offered import ToolsOffered
from liverl.observe.trials.trial import FRESH, Trial
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic
from liverl.util.clocks import age_of as age
from liverl.util.decode import decode_msgpack
from liverl.util.modes import make_directory
from liverl.util.paths import default_cache_dir
from liverl.util.regular_file import read_regular

NAME = "trials.index"
LARGEST = 512 << 20  # bytes of a file; more trials are indexed in memory only
MOST = 1_000_000  # trials in an index; the newest steps come first
KEPT = 16  # indexes of foreign runs in the user's cache; the oldest ones are removed
WRITE_S = 30.0  # seconds between two writings while trials are read
Progress = Callable[[int, int], None]  # (folders that were read, of how many)


class RunIndex:
    """All trials of one run. ``index`` may be read by another thread while ``refresh`` adds to it. ``full``: the run
    has more trials than are indexed."""

    def __init__(self, run: RunDir, *, live: bool, own: bool) -> None:
        """``live``: trials may still run; ``own``: the run is ours, and may be written."""
        self._run, self.live = run, live
        self.path = run.path / NAME if own else _in_cache(run)
        self.index = TrialIndex()
        self.full = False
        self.unread = 0  # trials and folders that could not be read at the last look
        self._lines = LineReader()
        self._starts, self._times = TrainerStarts(run.path), StepTimes(run.path)
        self._loaded = False
        self._written_at = time.monotonic()
        # Folder that was read here -> trials in it that may still change.
        self._unsettled: dict[str, set[str]] = {}

    def refresh(self, progress: Progress = lambda done, total: None) -> bool:
        """Read what is new on disk, the newest steps first; return whether anything was.

        Raises:
            OSError: the storage failed. What was read before stays.
        """
        if not self._loaded:
            self._load()
        tools = ToolsOffered(self._run.path)
        self._starts.poll()
        self._times.poll()
        folders, changed = list(self._folders()), False
        self.unread = 0
        changed |= self._forget_gone({_key(root, folder) for root, folder, _ in folders})
        for number, (root, folder, step) in enumerate(folders):
            self.full = len(self.index) >= MOST
            if self.full:
                break
            if self._read(root, folder, step, tools):
                changed = True
                progress(number + 1, len(folders))
                self._write(WRITE_S)
        changed |= self._read_dumps(folders)
        if changed:
            self._mark_earlier()
            self._compact()
            self._write(0.0)
        return changed

    def _folders(self) -> Iterator[tuple[Path, str, int | None]]:
        """(root, folder in it, step) of all folders with trials, the newest step first."""
        found: list[tuple[int, Path, str, int | None]] = []
        for root in self._run.trial_roots():
            steps = [(int(m[1]), name) for name in folders_in(root) if (m := STEP_DIR.fullmatch(name))]
            found += [(step, root, name, step) for step, name in steps]
            found.append((-1, root, "", None))
        found.sort(key=lambda one: -one[0])
        return ((root, name, step) for _, root, name, step in found)

    def _read(self, root: Path, folder: str, step: int | None, tools: ToolsOffered) -> bool:
        key, place = _key(root, folder), root / folder
        try:
            mtime = os.stat(place).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return False
        before = self.index.folders.get(key)
        now = time.time()
        if before is not None and before == (mtime, True):
            return False
        known = key in self._unsettled
        unsettled = self._unsettled.setdefault(key, set())
        heads: list[TrialHead] = []
        ended = age(mtime / 1e9, now) > FRESH
        try:
            names = folders_in(place)
        except PermissionError:
            self.unread += 1
            return False
        gone = {self.index.path(row) for row in self.index.rows_of(key)} if before is not None else set()
        gone -= {f"{key}/{name}" for name in names}
        for path in gone:
            self.index.remove(path)
        for name in names:
            if not folder and STEP_DIR.fullmatch(name):
                continue
            path = f"{key}/{name}"
            row = self.index.row_of(path)
            if row is not None and path not in unsettled and (known or self.index.ended(row)):
                continue
            trial = Trial(str(root), f"{folder}/{name}" if folder else name, step)
            try:
                head = whole_head(trial, self._lines, now)
            except OSError:  # one trial of another user must not hide the others; the scanner names it
                self.unread += 1
                ended = False
                continue
            if head is None or (root.name != TRIALS and age_of(head) < self._starts.first):
                continue
            head = placed(head, self._starts, self._times, tools)
            heads.append(head if self.live else cut_off_head(head))
            if not trial.closed:
                ended = False
                unsettled.add(path)
            else:
                unsettled.discard(path)
        for head in heads:
            self.index.put(head)
        self.index.folders[key] = (mtime, ended)
        return bool(heads or gone) or before is None

    def _forget_gone(self, keys: set[str]) -> bool:
        """Forget the trials of folders that are gone; return whether there were any."""
        gone = [key for key in self.index.folders if key not in keys and not key.startswith(f"{DUMPS}/")]
        for key in gone:
            for row in self.index.rows_of(key):
                self.index.remove(self.index.path(row))
            del self.index.folders[key]
        return bool(gone)

    def _read_dumps(self, folders: Sequence[tuple[Path, str, int | None]]) -> bool:
        """Read the trials that are known from verl's dumps only."""
        changed = False
        for step in dumped_steps(self._run.path):
            key, path = f"{DUMPS}/{step}.jsonl", self._run.path / DUMPS / f"{step}.jsonl"
            try:
                mtime = os.stat(path).st_mtime_ns
            except FileNotFoundError:
                continue
            if self.index.folders.get(key) == (mtime, True):
                continue
            dump = dump_of(self._run.path, step)
            dump.read(math.inf)
            for head in dump.heads(_rows_with_folders(step, folders)):
                self.index.put(head)
                changed = True
            self.index.folders[key] = (mtime, True)
        return changed

    def _mark_earlier(self) -> None:
        """Mark the trials whose step was begun again after them, if the trainer was started more than once."""
        if self._starts.newest < 2:
            return
        every = [self.index.head(row) for row in self.index.rows]
        for head, marked in zip(every, with_starts(every, self._starts), strict=True):
            if marked != head:
                self.index.put(marked)

    def _compact(self) -> None:
        if 2 * len(self.index) < self.index.size:
            self.index = restored(self.index.stored())

    # -- the file

    def _load(self) -> None:
        self._loaded = True
        try:
            self.index = restored(decode_msgpack(read_regular(self.path, LARGEST), Stored))
        except (OSError, ValueError, msgspec.DecodeError):
            self.index = TrialIndex()  # none, or not of this version: it is built anew

    def _write(self, least_s: float) -> None:
        """Write the file, if the last writing is ``least_s`` ago. Where it cannot be written the index is in memory
        only: every list works, and the next program reads the trials again."""
        now = time.monotonic()
        if now - self._written_at < least_s:
            return
        data = msgspec.msgpack.encode(self.index.stored())
        self._written_at = now
        if len(data) > LARGEST:
            return
        try:
            make_directory(self.path.parent)
            write_atomic(self.path, data, sync=False)
            if self.path.parent != self._run.path:
                _forget_old(self.path.parent)
        except OSError:
            return


def _rows_with_folders(step: int, folders: Sequence[tuple[Path, str, int | None]]) -> set[int]:
    """Hashes of verl's keys of those trials of a step that have a directory: their rows are no further trials."""
    found: set[int] = set()
    for root, folder in ((root, folder) for root, folder, number in folders if number == step):
        for name in folders_in(root / folder):
            trial = Trial(str(root), f"{folder}/{name}", step)
            if trial.check(lambda *_: (0, False), time.time()) and trial.row:
                found.add(hash(trial.row))
    return found


def _key(root: Path, folder: str) -> str:
    """The key of a folder of trials in ``TrialIndex.folders``."""
    return f"{root.name}/{folder}".rstrip("/")


def _in_cache(run: RunDir) -> Path:
    """The file in the user's cache, by where the trials really are: the directory of a watched run is made anew."""
    roots = "\0".join(os.path.realpath(root) for root in run.trial_roots())
    return default_cache_dir() / "trials" / f"{hashlib.sha256(roots.encode()).hexdigest()[:32]}.index"


def _forget_old(folder: Path) -> None:
    """Keep the newest ``KEPT`` files of the user's cache."""
    with os.scandir(folder) as entries:
        files = sorted(
            (entry.stat().st_mtime, entry.path) for entry in entries if entry.name.endswith(".index")
        )
    for _, path in files[:-KEPT]:
        Path(path).unlink(missing_ok=True)
