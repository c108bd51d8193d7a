"""How much a file or a directory holds on the disk, and whose it is: what ``remove_tree`` would remove. No link is
followed, and no other file system is entered.

The one measure for the size of a run, of a checkpoint and of what a removal frees is what the file system has
allocated, as ``du`` counts it: 20,000 files of 1 KiB hold 80 MB in blocks of 4 KiB."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from liverl.util.checked_path import StrPath, open_at, open_folder

_FOLDER = os.O_RDONLY | os.O_DIRECTORY


@dataclass(frozen=True)
class TreeSize:
    """``files``: all that is no directory; ``bytes``: allocated for files and directories, which the disk gets back, so
    a file that has a further name elsewhere is not counted; ``foreign``: (path, uid) of the first entry that is not
    the caller's, None if there is none; ``problem``: why not everything could be looked at, empty if it was."""

    files: int = 0
    bytes: int = 0
    foreign: tuple[str, int] | None = None
    problem: str = ""


@dataclass
class _Level:
    """A directory that is being counted. ``left``: its entries that remain."""

    name: str
    place: tuple[int, int]
    left: list[str]


def measure(path: StrPath, *, inside: StrPath | None = None) -> TreeSize:
    """Count what is at ``path``, at any depth. ``inside``: as for ``remove_tree``.

    Raises:
        FileNotFoundError: nothing is there.
        OSError: it cannot be looked at; for a link on the way: ``LinkRefusedError``.
    """
    name = os.path.abspath(path)
    above = open_folder(os.path.dirname(name), inside=inside and os.path.abspath(inside))
    try:
        return _Count(name, os.geteuid()).all_of(above, os.path.basename(name))
    finally:
        os.close(above)


class _Count:
    def __init__(self, path: str, uid: int) -> None:
        self._path, self._uid = path, uid
        self._files = self._bytes = 0
        self._foreign: tuple[str, int] | None = None
        self._problem = ""
        self._names_left: dict[tuple[int, int], int] = {}  # of files with several names: names not yet seen
        self._levels: list[_Level] = []

    def all_of(self, above: int, name: str) -> TreeSize:
        device = os.stat(name, dir_fd=above, follow_symlinks=False).st_dev
        at = os.dup(above)
        try:
            inner = self._entered(name, at, device)
            while inner is not None or self._levels:
                if inner is not None:
                    os.close(at)
                    at = inner
                    self._levels.append(_Level(name, _place(at), os.listdir(at)))
                level = self._levels[-1]
                if level.left:
                    name = level.left.pop()
                    inner = self._entered(name, at, device)
                    continue
                inner = None
                upper = open_at(at, "..", _FOLDER, self._path)
                os.close(at)
                at = upper
                self._levels.pop()
                if self._levels and _place(at) != self._levels[-1].place:
                    raise OSError(
                        errno.EAGAIN, "a directory was moved while it was being counted", self._path
                    )
        finally:
            os.close(at)
        return TreeSize(self._files, self._bytes, self._foreign, self._problem)

    def _entered(self, name: str, at: int, device: int) -> int | None:
        """Count an entry of the current directory; the descriptor of one that is a directory."""
        try:
            status = os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if status.st_uid != self._uid and self._foreign is None:
            self._foreign = self._shown(name), status.st_uid
        if not stat.S_ISDIR(status.st_mode):
            self._files += 1
            self._bytes += allocated(status) if self._is_last_name(status) else 0
            return None
        if status.st_dev != device:
            self._problem = self._problem or f"{self._shown(name)}: another file system is mounted there"
            return None
        self._bytes += allocated(status)
        try:
            return open_at(at, name, _FOLDER, name)
        except OSError as error:
            self._problem = self._problem or f"{self._shown(name)}: {error.strerror}"
            return None

    def _is_last_name(self, status: os.stat_result) -> bool:
        """Whether all names of a file have now been seen, so that its blocks are counted once."""
        if status.st_nlink == 1:
            return True
        file = status.st_dev, status.st_ino
        left = self._names_left.get(file, status.st_nlink) - 1
        self._names_left[file] = left
        return left == 0

    def _shown(self, name: str) -> str:
        if not self._levels:
            return self._path
        return os.path.join(self._path, *(level.name for level in self._levels[1:]), name)


def allocated(status: os.stat_result) -> int:
    """Bytes that the file system has allocated for a file or a directory. ``st_blocks`` is in units of 512 bytes,
    whatever the file system's block size (stat(2))."""
    return status.st_blocks * 512


def _place(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
