"""All trials of a run, in ``trials`` and in the folders that are linked beside it, scanned incrementally.

Storage may take 75 ms per operation: inactive trials are checked less often, finished ones never again, and each scan
has a time budget.
"""

from __future__ import annotations

import heapq
import os
import time
from itertools import chain, islice, starmap
from pathlib import Path

from liverl.logs.follow import MAX_LINE
from liverl.model import TrialHead, TrialsStatus, UnreadableFile
from liverl.observe.trials.cut_off import age_of, begun_again, cut_off_head, in_step, start_of
from liverl.observe.trials.dumps import Dumps
from liverl.observe.trials.root import Folder, TrialRoot
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.step_times import StepTimes
from liverl.observe.trials.tallies import StepTallies
from liverl.observe.trials.tools_offered import ToolsOffered
from liverl.observe.trials.trial import LONGEST_WAIT, TRAJECTORY, Add, Trial
from liverl.rundir.layout import RunDir
from liverl.util.clocks import SET_S
from liverl.util.regular_file import open_regular

NEWEST = 200  # maximum trial heads kept and shown
UNREADABLE = 20  # maximum files named in ``unreadable``
_PER_TRIAL = 16 << 20  # maximum bytes read of one trajectory per scan
_UNNAMED_PER_SCAN = 8 << 20
_BUFFER = 1 << 19
TRIALS = "trials"
_UNSETTLED = 4096  # maximum finished trials whose step is not known yet


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


def first_line(path: str, offset: int, add: Add, inside: str | None = None) -> tuple[int, bool]:
    """Reads at most the first line of a trajectory: enough to know when a trial began."""
    try:
        fd = open_regular(path, inside=inside)
    except FileNotFoundError:
        return offset, False
    try:
        data = os.pread(fd, _BUFFER, 0)
    finally:
        os.close(fd)
    end = data.find(b"\n")
    if offset == 0 and end >= 0:
        add(data, 0, end)
    return max(offset, end + 1), False


class TrialScanner:
    """Scans one run directory. Not thread-safe: one scan at a time, from any thread.

    A trial that names no step counts for the step in whose time it began, from the first start of the trainer on.

    What verl's own agent loops ran has no directory: such trials come from verl's dumps.

    ``bad_lines``: records and documents that could not be decoded; ``unattributed``: requests that named no
    trial; ``unread``: known trials not read yet; ``errors``: number of storage errors, with the last one in
    ``error``. A file that must not be read (a FIFO, a link out of ``trials/``) and a trial that cannot be read
    are named in ``unreadable``; they stop nothing else.
    """

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._run_dir = Path(run_dir)
        self._roots = {TRIALS: TrialRoot(os.path.join(run_dir, TRIALS))}
        self.bad_lines = self.unattributed = self.unread = self.errors = 0
        self.error: str | None = None
        self.status = TrialsStatus()
        self._open: dict[str, tuple[Trial, Folder]] = {}
        self._heads: dict[str, TrialHead] = {}  # heads of unfinished trials that were read
        self._unsettled: dict[str, TrialHead] = {}  # of finished trials whose step is not known yet
        self._closed: list[tuple[float, str, TrialHead]] = []  # heap of the newest finished trials
        self._tallies = StepTallies()  # of finished trials
        self._starts = TrainerStarts(run_dir)
        self._times = StepTimes(run_dir)
        self._tools = ToolsOffered(run_dir)
        self._dumps = Dumps(run_dir)
        self._unreadable: dict[str, dict[str, str]] = {}  # trial -> name of a file in it -> why
        self._unnamed_at = 0
        self._lines = LineReader()
        self._scanned_at = 0.0  # Unix seconds
        self._storage: UnreadableFile | None = None  # what ended the last scan early

    def newest_folders(self) -> list[str]:
        """Return the directories where new trials appear: every folder of trials and its newest steps. Not during a
        scan."""
        return [folder for root in self._roots.values() for folder in root.newest_folders()]

    @property
    def complete(self) -> bool:
        """Whether every folder was listed, and every trial in it read once."""
        return not self.unread and all(root.listed for root in self._roots.values())

    def scan(self, budget: float = 2.0, now: float | None = None, *, last: bool = False) -> TrialsStatus:
        """Read what is new, for about ``budget`` seconds; the rest comes first in the next scan.

        ``now`` is Unix time; ``last``: also of trials whose next check is not due yet, since no scan follows. Returns
        the same object while nothing changes. Removed files are no error; storage errors are counted and retried.
        """
        now = time.time() if now is None else now
        until = time.monotonic() + budget
        changed = False
        # Nothing follows, or the system's clock was set back, by days perhaps.
        if last or now < self._scanned_at - SET_S:
            for trial, _ in self._open.values():
                trial.due = 0.0
        self._scanned_at = now
        try:
            changed = self._starts.poll()
            changed |= self._times.poll()
            self._list(now, until)
            self._count_unnamed()
            changed |= self._dumps.poll(until)
            self._storage = None
        except OSError as error:
            self._failed(error)
            path = os.fspath(error.filename or TRIALS).removeprefix(f"{self._run_dir}/")
            self._storage = UnreadableFile(path, error.strerror or str(error))
        due = [entry for entry in self._open.values() if entry[0].due <= now]
        due.sort(key=lambda entry: entry[0].due)
        for trial, folder in due:
            if time.monotonic() > until:
                break
            changed |= self._check(trial, folder, now)
        self.unread = len(self._open) - len(self._heads)
        if self.complete:
            changed |= self._dumps.settle()
        if changed:
            self._settle()
            self.status = self._summary()
        return self.status

    def _check(self, trial: Trial, folder: Folder, now: float) -> bool:
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
        if not trial.news and not trial.closed and trial.path in self._heads:
            return False
        trial.news = False
        if trial.row:
            self._dumps.know(trial.row)
        head = trial.head()
        self._tools.hear(head)
        changed = self._heads.get(trial.path) != head
        if not trial.closed:
            self._heads[trial.path] = head
            return changed
        del self._open[trial.path]
        self._heads.pop(trial.path, None)
        self._unsettled[trial.path] = head
        return True

    def _settle(self) -> None:
        """Count the finished trials whose step is known, for good."""
        spare = len(self._unsettled) - _UNSETTLED
        for path, head in list(self._unsettled.items()):
            placed, final = in_step(head, self._starts, self._times)
            if final or spare > 0:
                del self._unsettled[path]
                self._close(placed)
                spare -= 1

    def _close(self, head: TrialHead) -> None:
        self._tallies.add(head, start_of(head, self._starts))
        entry = (age_of(head), head.path, head)
        if len(self._closed) < NEWEST:
            heapq.heappush(self._closed, entry)
        else:
            heapq.heappushpop(self._closed, entry)

    def _summary(self) -> TrialsStatus:
        tallies = StepTallies()
        tallies.take(self._tallies)
        others = []
        for head in chain(self._heads.values(), self._unsettled.values()):
            placed = head if head.step is not None else in_step(head, self._starts, self._times)[0]
            start = start_of(placed, self._starts)
            ended = placed if start >= self._starts.newest else cut_off_head(placed)
            tallies.add(ended, start)
            others.append(ended)
        for dump, counts in self._dumps.counts():
            tallies.put(dump.step, self._starts.number(dump.at), counts)
        unknown = self._tools.counts_unknown()
        every, back = tallies.all(), tallies.went_back()
        newest = [*(entry[2] for entry in self._closed), *others, *self._dumps.newest(NEWEST)]
        newest.sort(key=lambda head: (age_of(head), head.path), reverse=True)
        return TrialsStatus(
            total=every.total,
            running=every.total - every.finished - every.cut_off,
            finished=every.finished,
            zero_tool_calls=every.without(unknown),
            newest=tuple(
                self._tools.judged(begun_again(head, self._starts, back) if back else head)
                for head in newest[:NEWEST]
            ),
            steps=tallies.steps(back, unknown),
            older_steps=tallies.older(back),
            cut_off=every.cut_off,
            dumped=every.dumped,
            calling=every.calling,
            calling_now=every.calling_now,
            unrecorded=every.unrecorded,
            earlier=tallies.not_counted(back, unknown),
        )

    @property
    def unreadable(self) -> tuple[UnreadableFile, ...]:
        """The files that were not read, by trial, and why; at most ``UNREADABLE``."""
        files = (
            UnreadableFile(os.path.normpath(os.path.join(trial, name)), why)
            for trial, names in sorted(self._unreadable.items())
            for name, why in names.items()
        )
        folders = (
            UnreadableFile(os.path.normpath(os.path.join(name, folder)), why)
            for name, root in self._roots.items()
            for folder, why in root.unreadable.items()
        )
        dumps = starmap(UnreadableFile, self._dumps.problems())
        failed = () if self._storage is None else (self._storage,)
        return tuple(islice(chain(failed, folders, files, dumps), UNREADABLE))

    def _note(self, path: str, unreadable: dict[str, str]) -> None:
        """Remember which files of a trial were not read, and why."""
        if unreadable:
            self._unreadable[path] = unreadable
        else:
            self._unreadable.pop(path, None)

    def _list(self, now: float, until: float) -> None:
        for path in RunDir(self._run_dir).trial_roots():
            root = self._roots.get(path.name) or self._roots.setdefault(path.name, TrialRoot(str(path)))
            for trial, folder in root.new_trials(now, until):
                if path.name == TRIALS or not self._older(trial):
                    self._open[trial.path] = (trial, folder)

    def _older(self, trial: Trial) -> bool:
        """Whether a trial in a folder that runs may share was over before this run began."""
        try:
            return os.stat(trial.directory).st_mtime < self._starts.first
        except OSError:
            return False  # what is wrong is reported when it is read

    def _count_unnamed(self) -> None:
        try:
            fd = open_regular(self._run_dir / TRIALS / "_unattributed" / TRAJECTORY)
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
