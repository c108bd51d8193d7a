"""All trials of a run, in ``trials/step_NNNN/<trial>/`` and ``trials/<trial>/``, scanned incrementally.

Storage may take 75 ms per operation: directories are listed without a stat per entry, old steps are checked
in turn, inactive trials less often, finished ones never again, and each scan has a time budget.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from dataclasses import dataclass, field
from itertools import islice

from liverl.logs.follow import MAX_LINE
from liverl.model import TrialHead, TrialsStatus, UnreadableFile
from liverl.observe.trials.cut_off import age_of, begun_again, ended_with, start_of
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.tallies import StepTallies
from liverl.observe.trials.trial import FRESH, LONGEST_WAIT, TRAJECTORY, Add, Trial
from liverl.util.regular_file import open_regular

NEWEST = 200  # maximum trial heads kept and shown
UNREADABLE = 20  # maximum files named in ``unreadable``
_LIVE_STEPS = 2  # newest step directories, listed in every scan
_OLD_PER_SCAN = 4  # older ones checked for changes per scan
_PER_TRIAL = 16 << 20  # maximum bytes read of one trajectory per scan
_UNNAMED_PER_SCAN = 8 << 20
_BUFFER = 1 << 20
STEP_DIR = re.compile(r"step_(\d{1,9})")


@dataclass(slots=True)
class _Folder:
    """A directory whose subdirectories are trials."""

    path: str  # relative to trials/, "" = trials/ itself
    step: int | None
    mtime: int = -1
    listed: set[str] = field(default_factory=set)


class LineReader:
    """Reads trajectories line by line through one buffer: _PER_TRIAL bytes, or one line, at a time (see
    ``trial.Lines``)."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER)

    def __call__(self, path: str, offset: int, add: Add, inside: str | None = None) -> tuple[int, bool]:
        begin, more = offset, False
        try:
            fd = open_regular(path, inside=inside)
        except FileNotFoundError:
            return offset, False
        try:
            while True:
                size = os.preadv(fd, [self._buffer], offset)
                at = 0
                while (end := self._buffer.find(b"\n", at, size)) >= 0:
                    add(self._buffer, at, end)
                    at = end + 1
                offset += at
                more = size == len(self._buffer)
                if not more or offset - begin >= _PER_TRIAL:
                    break
                if at == 0:  # a single line fills the whole buffer
                    if len(self._buffer) >= MAX_LINE:
                        offset += size  # no record is that long; the rest counts as a bad line
                    else:
                        self._buffer = bytearray(2 * len(self._buffer))
        finally:
            os.close(fd)
            if len(self._buffer) > _BUFFER:
                self._buffer = bytearray(_BUFFER)
        return offset, more

    def count(self, fd: int, offset: int, most: int) -> tuple[int, int]:
        """Return (lines, bytes) of at most ``most`` bytes from ``offset`` on."""
        lines = read = 0
        while read < most:
            size = os.preadv(fd, [self._buffer], offset + read)
            lines += self._buffer.count(b"\n", 0, size)
            read += size
            if size < len(self._buffer):
                break
        return lines, read


class TrialScanner:
    """Scans one run directory. Not thread-safe: one scan at a time, from any thread.

    ``bad_lines``: records and documents that could not be decoded; ``unattributed``: requests that named no
    trial; ``unread``: known trials not read yet; ``errors``: number of storage errors, with the last one in
    ``error``. A file that must not be read (a FIFO, a link out of ``trials/``) and a trial that cannot be read
    are named in ``unreadable``; they stop nothing else.
    """

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.root = os.path.join(run_dir, "trials")
        self.bad_lines = self.unattributed = self.unread = self.errors = 0
        self.error: str | None = None
        self.status = TrialsStatus()
        self._top = _Folder("", None)
        self._folders: dict[str, _Folder] = {}
        self._old_turn = 0
        self._open: dict[str, tuple[Trial, _Folder]] = {}
        self._heads: dict[str, TrialHead] = {}  # heads of unfinished trials that were read
        self._closed: list[tuple[float, str, TrialHead]] = []  # heap of the newest finished trials
        self._tallies = StepTallies()  # of finished trials
        self._starts = TrainerStarts(run_dir)
        self._unreadable: dict[str, dict[str, str]] = {}  # trial -> name of a file in it -> why
        self._unnamed_at = 0
        self._lines = LineReader()

    def newest_folders(self) -> list[str]:
        """Return the directories where new trials appear: ``trials/`` and its newest steps. Not during a
        scan."""
        newest = sorted(self._folders.values(), key=lambda folder: folder.step or 0)[-_LIVE_STEPS:]
        return [self.root, *(f"{self.root}/{folder.path}" for folder in newest)]

    def scan(self, budget: float = 2.0, now: float | None = None) -> TrialsStatus:
        """Read what is new, for about ``budget`` seconds; the rest comes first in the next scan.

        ``now`` is Unix time. Returns the same object while nothing changes. Removed files are no error;
        storage errors are counted and retried.
        """
        now = time.time() if now is None else now
        until = time.monotonic() + budget
        changed = False
        try:
            changed = self._starts.poll()
            self._list(now, until)
            self._count_unnamed()
        except OSError as error:
            self._failed(error)
        waiting = sorted((trial.due, order) for order, (trial, _) in enumerate(self._open.values()))
        trials = list(self._open.values())
        for due, order in waiting:
            if due > now or time.monotonic() > until:
                break
            changed |= self._check(*trials[order], now)
        self.unread = len(self._open) - len(self._heads)
        if changed:
            self.status = self._summary()
        return self.status

    def _check(self, trial: Trial, folder: _Folder, now: float) -> bool:
        bad = trial.bad
        try:
            exists = trial.check(self._lines, now)
        except OSError as error:
            self._failed(error)
            trial.due = now + 1.0
            self._note(trial.path, {"": error.strerror or str(error)})
            return False
        except Exception as error:  # noqa: BLE001 - one trial, whatever is in it, must not hide all others
            trial.due = now + LONGEST_WAIT
            self._note(trial.path, {"": f"{type(error).__name__}: {error}"})
            return False
        self._note(trial.path, dict(trial.unreadable) if exists else {})
        self.bad_lines += trial.bad - bad
        if not exists:
            folder.listed.discard(trial.name)
            del self._open[trial.path]
            return self._heads.pop(trial.path, None) is not None
        head = trial.head()
        changed = self._heads.get(trial.path) != head
        if not trial.closed:
            self._heads[trial.path] = head
            return changed
        del self._open[trial.path]
        self._heads.pop(trial.path, None)
        self._tallies.add(head, start_of(head, self._starts))
        entry = (age_of(head), trial.path, head)
        if len(self._closed) < NEWEST:
            heapq.heappush(self._closed, entry)
        else:
            heapq.heappushpop(self._closed, entry)
        return True

    def _summary(self) -> TrialsStatus:
        tallies = StepTallies()
        tallies.take(self._tallies)
        unfinished = [ended_with(head, self._starts) for head in self._heads.values()]
        for head in unfinished:
            tallies.add(head, start_of(head, self._starts))
        every, back = tallies.all(), tallies.went_back()
        newest = [*(entry[2] for entry in self._closed), *unfinished]
        newest.sort(key=lambda head: (age_of(head), head.path), reverse=True)
        return TrialsStatus(
            total=every.total,
            running=every.total - every.finished - every.cut_off,
            finished=every.finished,
            zero_tool_calls=every.zero,
            newest=tuple(begun_again(head, self._starts, back) for head in newest[:NEWEST]),
            steps=tallies.steps(back),
            cut_off=every.cut_off,
        )

    @property
    def unreadable(self) -> tuple[UnreadableFile, ...]:
        """The files that were not read, by trial, and why; at most ``UNREADABLE``."""
        files = (
            UnreadableFile(os.path.normpath(os.path.join("trials", trial, name)), why)
            for trial, names in sorted(self._unreadable.items())
            for name, why in names.items()
        )
        return tuple(islice(files, UNREADABLE))

    def _note(self, path: str, unreadable: dict[str, str]) -> None:
        """Remember which files of a trial were not read, and why."""
        if unreadable:
            self._unreadable[path] = unreadable
        else:
            self._unreadable.pop(path, None)

    def _list(self, now: float, until: float) -> None:
        for name in self._changed(self._top, now):
            match = STEP_DIR.fullmatch(name)
            if match is not None:
                self._folders.setdefault(name, _Folder(name, int(match.group(1))))
            else:
                self._meet(self._top, name)
        newest = sorted(self._folders.values(), key=lambda folder: folder.step or 0, reverse=True)
        old = newest[_LIVE_STEPS:]
        turn = [old[(self._old_turn + i) % len(old)] for i in range(min(_OLD_PER_SCAN, len(old)))]
        self._old_turn = (self._old_turn + len(turn)) % len(old) if old else 0
        for position, folder in enumerate(newest):
            if time.monotonic() > until:
                return
            if position < _LIVE_STEPS or folder.mtime < 0 or folder in turn:
                for name in self._changed(folder, now):
                    self._meet(folder, name)

    def _changed(self, folder: _Folder, now: float) -> list[str]:
        """Return the subdirectories of a folder that changed since it was last listed."""
        path = f"{self.root}/{folder.path}"
        try:
            mtime = os.stat(path).st_mtime_ns
            if mtime == folder.mtime and now - mtime / 1e9 > FRESH:
                return []
            with os.scandir(path) as entries:
                names = [entry.name for entry in entries if entry.name[0] not in "_." and entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        folder.mtime = mtime
        return names

    def _meet(self, folder: _Folder, name: str) -> None:
        if name in folder.listed:
            return
        folder.listed.add(name)
        path = f"{folder.path}/{name}" if folder.path else name
        self._open[path] = (Trial(self.root, path, folder.step), folder)

    def _count_unnamed(self) -> None:
        try:
            fd = open_regular(f"{self.root}/_unattributed/{TRAJECTORY}")
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            if os.fstat(fd).st_size < self._unnamed_at:
                self._unnamed_at = self.unattributed = 0
            lines, size = self._lines.count(fd, self._unnamed_at, _UNNAMED_PER_SCAN)
            self.unattributed += lines
            self._unnamed_at += size
        finally:
            os.close(fd)

    def _failed(self, error: OSError) -> None:
        self.errors += 1
        self.error = str(error)
