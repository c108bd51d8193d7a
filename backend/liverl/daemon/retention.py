"""Removes files of earlier steps' trials, so that the disk does not fill (``retention`` of the configuration).

First go the turns of trials that ended well. The rows of all trials, and the turns of those that failed or have a flag,
go only while the disk is nearly full. Rewards, results and all files that the sessions or the proxy have not written
stay. No link is followed: an agent, or the user, may have put one anywhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from liverl.observe.trials.documents import PROXY_TRAJECTORY
from liverl.observe.trials.root import STEP_DIR
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.trial import TRAJECTORY
from liverl.util.checked_path import open_at, open_folder
from liverl.util.plural import plural, quantity
from liverl.util.regular_file import RefusedFileError
from liverl.util.tree_size import allocated

BUDGET_S = 2.0  # seconds of one look; the rest follows with the next one
CUT_OFF_S = 3600.0  # seconds without a change after which a trial without a result is no longer running


class Removed(msgspec.Struct):
    """What was removed of the trials of one step. ``trials``: that lost files; ``kept``: failed or flagged ones that
    keep their turns; ``last``: also rows and failed trials, as the disk is nearly full."""

    step: int
    last: bool
    trials: int = 0
    kept: int = 0
    bytes: int = 0

    @property
    def words(self) -> str:
        """The event's text."""
        what = "turns and rows" if self.last else "turns"
        whose = f"{quantity(self.kept, 'failed or flagged trial')} {plural(self.kept, 'keeps', 'keep')}"
        kept = f"; {whose} theirs" if self.kept else ""
        why = "the disk is nearly full" if self.last else "retention.keep_steps"
        of = f"{quantity(self.trials, 'trial')} of step {self.step} ({self.bytes / 1e9:.2f} GB)"
        return f"removed the {what} of {of}: {why}{kept}"


class Retention:
    """The files of one run's trials. One ``look`` at a time, in any thread."""

    def __init__(self, trials: Path, keep_steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        """``trials``: the folder with the steps' folders; ``keep_steps``: newest steps whose trials keep everything."""
        self._trials, self._keep, self._clock = trials, keep_steps, clock
        self._done: set[tuple[int, bool]] = set()  # step, and whether its last files went, too
        # Of those: what was removed so far, and the trials that were looked at.
        self._begun: dict[tuple[int, bool], tuple[Removed, set[str]]] = {}
        self.problem = ""  # why nothing can be removed, in words

    def look(self, step: int | None, low: bool) -> list[Removed]:
        """Remove what may go; return the steps that were completed. ``step``: the newest finished one; ``low``: whether
        the disk is nearly full. Blocking.

        Raises:
            OSError: the storage failed.
        """
        until = self._clock() + BUDGET_S
        completed: list[Removed] = []
        old = self._steps(step)
        for last in (False, True) if low else (False,):
            for number, name in old:
                if (number, last) in self._done:
                    continue
                removed = self._step(number, name, last, until)
                if removed is None:
                    return completed
                if removed.trials:
                    completed.append(removed)
                if removed.trials and last:
                    break  # that may have been enough: the next look knows
        return completed

    def _steps(self, step: int | None) -> list[tuple[int, str]]:
        """(number, folder) of the steps that are old enough, the oldest first."""
        if step is None:
            return []
        try:
            fd = self._open()
        except FileNotFoundError:
            return []
        except OSError:
            self.problem = f"{self._trials} is no directory, or a link: nothing in it is removed"
            return []
        try:
            found = ((STEP_DIR.fullmatch(name), name) for name in os.listdir(fd))
            numbers = sorted((int(match.group(1)), name) for match, name in found if match is not None)
        finally:
            os.close(fd)
        return [(number, name) for number, name in numbers if number <= step - self._keep]

    def _open(self) -> int:
        return open_folder(self._trials, inside=self._trials.parent)

    @contextlib.contextmanager
    def _step_folder(self, name: str) -> Iterator[int | None]:
        try:
            trials = self._open()
        except OSError:
            yield None
            return
        try:
            with _folder(name, trials) as step:
                yield step
        finally:
            os.close(trials)

    def _step(self, number: int, name: str, last: bool, until: float) -> Removed | None:
        """Remove files of one step's trials; None if the time was over before all were looked at."""
        removed, seen = self._begun.setdefault((number, last), (Removed(number, last), set()))
        running = False
        with self._step_folder(name) as step:
            for trial in sorted(os.listdir(step)) if step is not None else ():
                if trial in seen:
                    continue
                if self._clock() > until:
                    return None
                ended = step is not None and self._trial(self._trials / name / trial, trial, step, removed)
                running = running or not ended
                if ended:
                    seen.add(trial)
        if not running:  # else it is looked at again
            self._done.add((number, last))
        del self._begun[number, last]
        return removed

    def _trial(self, path: Path, name: str, step: int, removed: Removed) -> bool:
        """Remove files of one trial; return whether it has ended, or is none."""
        with _folder(name, step) as fd:
            if fd is None:
                return True
            sizes = {
                each: size for each in (TRAJECTORY, PROXY_TRAJECTORY) if (size := _size(each, fd)) is not None
            }
            if not sizes or (TRAJECTORY not in sizes and not removed.last):
                return True
            try:
                trial = read_trajectory(path)
            except RefusedFileError:
                return True
            quiet = time.time() - max(_changed(each, fd) for each in (*sizes, "."))
            if trial.running and quiet < CUT_OFF_S:
                return False
            flawed = trial.running or bool(trial.flags or trial.exception or trial.bad_records or trial.torn)
            if flawed and not removed.last:
                removed.kept += 1
                return True
            names = (TRAJECTORY, PROXY_TRAJECTORY) if removed.last else (TRAJECTORY,)
            for each in names:
                if each in sizes:
                    os.unlink(each, dir_fd=fd)
                    removed.bytes += sizes[each]
            removed.trials += 1
            return True


@contextlib.contextmanager
def _folder(name: str, parent: int) -> Iterator[int | None]:
    """The descriptor of a directory in ``parent``; None if it is none, or a link."""
    try:
        fd = open_at(parent, name, os.O_RDONLY | os.O_DIRECTORY, name)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _changed(name: str, folder: int) -> float:
    """Unix time at which a file was last changed."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0


def _size(name: str, folder: int) -> int | None:
    """The bytes that the disk gets back for a regular file; None if it is none."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return allocated(status) if stat.S_ISREG(status.st_mode) else None
