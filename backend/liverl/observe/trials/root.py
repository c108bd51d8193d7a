"""One folder of trials, listed incrementally: its trials are in ``step_NNNN/<trial>/`` and ``<trial>/``.

Storage may take 75 ms per operation: directories are listed without a stat per entry, old steps are checked in turn.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from liverl.observe.trials.trial import FRESH, Trial
from liverl.util.clocks import age_of

LIVE_STEPS = 2  # newest step directories, listed in every scan
_OLD_PER_SCAN = 4  # older ones checked for changes per scan
STEP_DIR = re.compile(r"step_(\d{1,9})")


@dataclass(slots=True)
class Folder:
    """A directory whose subdirectories are trials."""

    path: str  # relative to the root, "" = the root itself
    step: int | None
    mtime: int = -1
    listed: set[str] = field(default_factory=set)


class TrialRoot:
    """Lists the trials below the directory ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._top = Folder("", None)
        self._folders: dict[str, Folder] = {}
        self.unreadable: dict[str, str] = {}  # folder that cannot be listed, relative to this one -> why
        self._old_turn = 0

    @property
    def listed(self) -> bool:
        """Whether every folder has been listed."""
        return all(folder.mtime >= 0 for folder in self._folders.values())

    def newest_folders(self) -> list[str]:
        """The directories where new trials appear: the root and its newest steps."""
        newest = sorted(self._folders.values(), key=lambda folder: folder.step or 0)[-LIVE_STEPS:]
        return [self.path, *(f"{self.path}/{folder.path}" for folder in newest)]

    def new_trials(self, now: float, until: float) -> Iterator[tuple[Trial, Folder]]:
        """The trials that appeared since the last call, each with the folder that lists it. ``now``: Unix time;
        ``until``: on the monotonic clock, when to stop; the rest comes with the next call. A folder that cannot be
        listed is named in ``unreadable``, and tried again.
        """
        for name in self._changed(self._top, now):
            match = STEP_DIR.fullmatch(name)
            if match is not None:
                self._folders.setdefault(name, Folder(name, int(match.group(1))))
            else:
                yield from self._meet(self._top, name)
        newest = sorted(self._folders.values(), key=lambda folder: folder.step or 0, reverse=True)
        old = newest[LIVE_STEPS:]
        turn = [old[(self._old_turn + i) % len(old)] for i in range(min(_OLD_PER_SCAN, len(old)))]
        self._old_turn = (self._old_turn + len(turn)) % len(old) if old else 0
        for position, folder in enumerate(newest):
            if time.monotonic() > until:
                return
            if position < LIVE_STEPS or folder.mtime < 0 or folder in turn:
                for name in self._changed(folder, now):
                    yield from self._meet(folder, name)

    def _changed(self, folder: Folder, now: float) -> list[str]:
        """Return the subdirectories of a folder that changed since it was last listed."""
        path = f"{self.path}/{folder.path}"
        try:
            mtime = os.stat(path).st_mtime_ns
            if mtime == folder.mtime and age_of(mtime / 1e9, now) > FRESH:
                return []
            names = _directories(path)
        except (FileNotFoundError, NotADirectoryError):
            self.unreadable.pop(folder.path, None)
            folder.mtime = max(folder.mtime, 0)
            return []
        except OSError as error:  # of another user, or the storage failed: it hides no other folder
            self.unreadable[folder.path] = error.strerror or str(error)
            folder.mtime = max(folder.mtime, 0)
            return []
        self.unreadable.pop(folder.path, None)
        folder.mtime = mtime
        return names

    def _meet(self, folder: Folder, name: str) -> Iterator[tuple[Trial, Folder]]:
        if name not in folder.listed:
            folder.listed.add(name)
            path = f"{folder.path}/{name}" if folder.path else name
            yield Trial(self.path, path, folder.step), folder


def folders_in(path: str | os.PathLike[str]) -> list[str]:
    """The names of the directories of trials or steps in a directory, sorted; none if it is not there.

    Raises:
        OSError: it cannot be listed.
    """
    try:
        return sorted(_directories(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _directories(path: str | os.PathLike[str]) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.name for entry in entries if entry.name[0] not in "_." and entry.is_dir()]
