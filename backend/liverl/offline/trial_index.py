"""The index of all trials of a run: built from their files, kept in one file, brought up to date folder by folder.

Of our runs the file is ``trials.index`` in the run's directory, of others (``watch``, a run that must not be written)
it is in the user's cache. A folder of trials that is newer than the index, or had trials that had not ended, is read
again; what has ended is read once. The same holds of verl's dumps, each of which is a folder of the trials that have no
directory. What a source no longer has is forgotten. A file that cannot be used is as none.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from liverl.model import TrialHead
from liverl.observe.trials.cut_off import age_of, cut_off_head
from liverl.observe.trials.dumps import DUMPS, dump_of, dumped_steps
from liverl.observe.trials.index import Stored, TrialIndex, as_kept, restored
from liverl.observe.trials.root import STEP_DIR, folders_in
from liverl.observe.trials.scanner import TRIALS, LineReader
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.step_times import StepTimes
from liverl.observe.trials.steps import placed, whole_head
from liverl.observe.trials.tallies import WentBack
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
GAPS = 20  # of what could not be read is named
KEPT = 16  # indexes of foreign runs in the user's cache; the oldest ones are removed
WRITE_S = 30.0  # seconds between two writings while trials are read
Progress = Callable[[int, int], None]  # (folders that were read, of how many)


@dataclass(frozen=True)
class Source:
    """Where trials of one step are. ``key``: relative to the run's directory; ``folder``: in ``root``, "" for the root
    itself; without ``root`` it is verl's dump of the step."""

    step: int | None
    key: str
    path: Path
    root: Path | None = None
    folder: str = ""

    @property
    def dump(self) -> bool:
        """Whether it is a dump."""
        return self.root is None


class RunIndex:
    """All trials of one run. ``index`` may be read by another thread while ``refresh`` adds to it. ``full``: the run
    has more trials than are indexed; ``unread``: what could not be read at the last look -> why."""

    def __init__(self, run: RunDir, *, live: bool, own: bool) -> None:
        """``live``: trials may still run; ``own``: the run is ours, and may be written."""
        self._run, self.live = run, live
        self.path = run.path / NAME if own else _in_cache(run)
        self.index = TrialIndex()
        self.full = False
        self.unread: dict[str, str] = {}
        self._now = 0.0  # Unix seconds of the last look
        self._lines = LineReader()
        self._starts, self._times = TrainerStarts(run.path), StepTimes(run.path)
        self._loaded = False
        self._written_at = time.monotonic()
        # Folder that was read here -> trials in it that may still change.
        self._unsettled: dict[str, set[str]] = {}

    @property
    def gaps(self) -> tuple[str, ...]:
        """As ``first_gaps``, so many as a person reads."""
        return self.first_gaps(GAPS)

    def first_gaps(self, most: int) -> tuple[str, ...]:
        """Why not all trials of the run are in the index, at most ``most`` sentences and the number of further ones;
        none if all are."""
        texts = [f"only the newest {MOST:,} trials are indexed"] if self.full else []
        named = list(islice(self.unread.items(), max(0, most - len(texts))))
        texts += [f"{path} could not be read: {why}" for path, why in named]
        more = len(self.unread) - len(named)
        return (*texts, f"and {more:,} more could not be read") if more else tuple(texts)

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
        self.unread, self._now = {}, time.time()
        sources, hidden = self._sources()
        changed = self._forget_gone({source.key for source in sources}, hidden)
        room, full = MOST, False
        for number, source in enumerate(sources):
            if room <= 0:
                full = full or self._has_trials(source)
                changed |= self._forget([source.key])
                continue
            if source.dump:
                siblings = [one for one in sources if one.step == source.step and not one.dump]
                news = self._read_dump(source, siblings, room)
            else:
                news = self._read_folder(source, tools, room)
            full |= self._trim(source.key, room)
            room -= self.index.count(source.key)
            if news:
                changed = True
                if not source.dump:
                    self._look_again(source.step)
                progress(number + 1, len(sources))
                self._write(WRITE_S)
        changed |= full is not self.full
        self.full = full
        if changed:
            self._mark_earlier()
            self._compact()
            self._write(0.0)
        return changed

    def _sources(self) -> tuple[list[Source], set[str]]:
        """All places with trials, the newest step first, and in a step the folders first; and the names of the
        directories that could not be listed."""
        found: list[Source] = []
        hidden: set[str] = set()
        for root in self._run.trial_roots():
            try:
                names = folders_in(root)
            except OSError as error:
                self._not_read(root.name, error)
                hidden.add(root.name)
                continue
            steps = [(int(match[1]), name) for name in names if (match := STEP_DIR.fullmatch(name))]
            found += [Source(step, f"{root.name}/{name}", root / name, root, name) for step, name in steps]
            found.append(Source(None, root.name, root, root))
        try:
            dumps = [(step, f"{DUMPS}/{step}.jsonl") for step in dumped_steps(self._run.path)]
        except OSError as error:
            self._not_read(DUMPS, error)
            hidden.add(DUMPS)
            dumps = []
        found += [Source(step, key, self._run.path / key) for step, key in dumps]
        found.sort(
            key=lambda source: (-1 if source.step is None else source.step, not source.dump), reverse=True
        )
        return found, hidden

    def _read_folder(self, source: Source, tools: ToolsOffered, room: int) -> bool:
        """Read what is new in a folder of trials; return whether anything was. ``room``: trials that are read of it."""
        key, root, folder = source.key, source.root, source.folder
        assert root is not None
        try:
            mtime = os.stat(source.path).st_mtime_ns
            before = self.index.folders.get(key)
            if before == (mtime, True):
                return False
            names = folders_in(source.path)
        except (FileNotFoundError, NotADirectoryError):
            return self._forget([key])
        except OSError as error:
            self._not_read(key, error)
            return False
        now = self._now
        known = key in self._unsettled
        unsettled = self._unsettled.setdefault(key, set())
        names = [name for name in names if folder or not STEP_DIR.fullmatch(name)]
        whole = len(names) <= room
        ended = age(mtime / 1e9, now) > FRESH
        there = {as_kept(f"{key}/{name}") for name in names[:room]}
        gone = [row for row in self.index.rows_of(key) if self.index.path(row) not in there] if before else []
        self.index.remove_rows(gone)
        heads: list[TrialHead] = []
        for name in names[:room]:
            path = f"{key}/{name}"
            row = self.index.row_of(path)
            if row is not None and path not in unsettled and (known or self.index.ended(row)):
                continue
            trial = Trial(str(root), f"{folder}/{name}" if folder else name, source.step)
            try:
                head = whole_head(trial, self._lines, now)
            except OSError as error:  # one trial of another user must not hide the others
                self._not_read(path, error)
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
        self.index.folders[key] = (mtime if whole else -1, ended)
        return bool(heads or gone) or before is None

    def _read_dump(self, source: Source, siblings: Collection[Source], room: int) -> bool:
        """Read verl's dump of a step anew if it has changed; return whether anything was. ``siblings``: the folders of
        the step."""
        key = source.key
        try:
            mtime = os.stat(source.path).st_mtime_ns
            before = self.index.folders.get(key)
            if before == (mtime, True) or source.step is None:
                return False
            dump = dump_of(self._run.path, source.step)
            dump.read(math.inf)
        except (FileNotFoundError, NotADirectoryError):
            return self._forget([key])
        except OSError as error:
            self._not_read(key, error)
            return False
        heads = dump.heads(self._with_folders(siblings))
        rows = {self.index.put(head) for head in heads[:room]}
        gone = [row for row in self.index.rows_of(key) if row not in rows]
        self.index.remove_rows(gone)
        whole = len(heads) <= room
        self.index.folders[key] = (mtime if whole else -1, age(mtime / 1e9, self._now) > FRESH)
        return bool(rows or gone) or before is None

    def _with_folders(self, folders: Collection[Source]) -> set[int]:
        """Hashes of verl's keys of the trials that have a directory: their rows are no further trials."""
        found: set[int] = set()
        for source in folders:
            try:
                names = folders_in(source.path)
            except OSError as error:
                self._not_read(source.key, error)
                continue
            for name in names:
                trial = Trial(str(source.root), f"{source.folder}/{name}", source.step)
                try:
                    there = trial.check(lambda *_: (0, False), self._now)
                except OSError as error:
                    self._not_read(f"{source.key}/{name}", error)
                    continue
                if there and trial.row:
                    found.add(hash(trial.row))
        return found

    def _not_read(self, path: str, error: OSError) -> None:
        self.unread[path] = error.strerror or str(error)

    def _forget_gone(self, keys: Collection[str], hidden: Collection[str]) -> bool:
        """Forget the trials of sources that are gone; return whether there were any. ``hidden``: directories of which
        it is not known what they have."""
        gone = [key for key in self.index.folders if key not in keys and key.partition("/")[0] not in hidden]
        for key in gone:
            match = STEP_DIR.fullmatch(key.rpartition("/")[2])
            self._look_again(int(match[1]) if match else None)
        return self._forget(gone)

    def _forget(self, keys: Collection[str]) -> bool:
        """Forget sources and their trials; return whether there were any."""
        self.index.remove_rows(self.index.rows_of(*keys))
        gone = [key for key in keys if self.index.folders.pop(key, None) is not None]
        return bool(gone)

    def _look_again(self, step: int | None) -> None:
        """Have the dump of a step read again: other trials of it have directories now."""
        key = f"{DUMPS}/{step}.jsonl"
        if key in self.index.folders:
            self.index.folders[key] = (-1, False)

    def _trim(self, key: str, room: int) -> bool:
        """Forget the trials of a source for which there is no room; return whether it has such."""
        if self.index.count(key) > room:
            self.index.remove_rows(self.index.rows_of(key)[room:])
            self.index.folders[key] = (-1, False)
        return key not in self.unread and self.index.folders.get(key, (0, True))[0] < 0

    def _has_trials(self, source: Source) -> bool:
        """Whether a source has any trial, as far as that is seen without reading it."""
        try:
            if source.dump:
                return os.stat(source.path).st_size > 0
            return any(source.folder or not STEP_DIR.fullmatch(name) for name in folders_in(source.path))
        except OSError:
            return False

    def _mark_earlier(self) -> None:
        """Mark the trials whose step was begun again after them, and those whose trainer has ended before they had a
        result, if the trainer was started more than once."""
        newest = self._starts.newest
        if newest < 2:
            return
        index = self.index
        starts, steps = array("L", map(self._starts.number, index.column("at"))), index.column("step")
        rows = index.rows
        back = WentBack((starts[row], int(steps[row])) for row in rows if steps[row] == steps[row])
        index.mark_earlier(
            row for row in rows if steps[row] == steps[row] and back.before(int(steps[row]), starts[row])
        )
        for row in index.running(row for row in rows if starts[row] < newest):
            index.put(cut_off_head(index.head(row)))

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
