"""How the files of a run directory grow: their sizes over time, and each version of the small ones that are replaced.

Secrets, checkpoints, the agents' sandboxes and whatever is no text of the run are left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from liverl.util.regular_file import read_regular

SKIPPED = frozenset(("secrets", "checkpoints", "sandbox"))
_SUFFIXES = (".json", ".jsonl", ".log", ".txt", ".yaml", ".md")
_LEFT_OUT = frozenset(("snapshot.json", "members.json", "backend.json", "keeper.json", "config_files.json"))
_DOCUMENTS = (".json", ".yaml", ".txt")
LARGEST_FILE = 64 << 20  # bytes; of a longer file the beginning is kept
LARGEST_VERSION = 256 << 10  # bytes of a document of which each version is kept
MOST_FILES = 100_000


class Growth(msgspec.Struct, frozen=True, omit_defaults=True):
    """From the Unix time ``at`` on a file has ``size`` bytes, or the content ``text``. ``path``: relative to the run
    directory."""

    at: float
    path: str
    size: int | None = None
    text: str | None = None


def replaced(path: str) -> bool:
    """Whether a file is written anew with each change; others only grow."""
    return path.endswith(_DOCUMENTS) and not path.startswith("trials/")


def files(run_dir: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files that a recording keeps, by their path relative to the run directory."""
    folders, count = [""], 0
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(run_dir / folder), key=lambda entry: entry.name)
        except OSError:
            continue  # removed meanwhile
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                if entry.name not in SKIPPED:
                    folders.append(path)
            elif (
                stat.S_ISREG(status.st_mode)
                and entry.name.endswith(_SUFFIXES)
                and path not in _LEFT_OUT
                and count < MOST_FILES
            ):
                count += 1
                yield path, status


class GrowthWatch:
    """Notes what has changed in one run directory since the last look."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._known: dict[str, tuple[int, int, int]] = {}
        self._looked_at = 0.0

    def look(self, now: float) -> list[Growth]:
        """The files that are new or have changed. ``now``: Unix time."""
        news = []
        for path, status in files(self._run_dir):
            key = (status.st_ino, status.st_mtime_ns, status.st_size)
            if self._known.get(path) == key:
                continue
            self._known[path] = key
            at = round(min(max(status.st_mtime, self._looked_at), now), 3)
            growth = self._version(path, at) if replaced(path) else Growth(at, path, status.st_size)
            if growth is not None:
                news.append(growth)
        self._looked_at = now
        return sorted(news, key=lambda growth: growth.at)

    def _version(self, path: str, at: float) -> Growth | None:
        try:
            data = read_regular(self._run_dir / path, inside=self._run_dir)
        except OSError:
            return None  # replaced by something else, or removed
        return Growth(at, path, text=data[:LARGEST_VERSION].decode("utf-8", "replace"))
