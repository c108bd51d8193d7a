"""Atomic file writes: a reader sees either the old content or the new one."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO

from liverl.util.checked_path import StrPath, open_at, open_checked, open_folder
from liverl.util.regular_file import LARGEST, kind_of

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def write_atomic(
    path: Path, data: bytes, mode: int = 0o644, *, sync: bool = True, inside: StrPath | None = None
) -> None:
    """Replace the content of ``path`` by ``data`` through a temporary file and a rename.

    ``sync`` flushes the data to disk before the rename. ``mode`` holds the permission bits of the new file. A directory
    at ``path`` is renamed (see ``set_aside``); a link there is replaced, not followed. ``inside``: a directory above
    ``path``, in the path's own spelling, below which no link is followed. Threads may write the same file at the same
    time.

    Raises:
        LinkRefusedError: a link on the way must not be followed, see ``checked_path``.
        OSError: the directory is not writable or the disk is full; the old file is kept, the
            temporary one removed. Its ``filename`` is ``path``.
    """
    temporary = f".{path.name}.{threading.get_native_id()}.tmp"
    try:
        folder = open_folder(path.parent, inside=inside)
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    try:
        _unlink(temporary, folder)  # of an earlier thread with this number
        try:
            write_new(folder, temporary, data, path, mode, sync=sync)
            try:
                os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except IsADirectoryError:
                _set_aside(folder, path)
                os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            _unlink(temporary, folder)
            raise
    except OSError as error:
        error.filename = os.fspath(path)  # an error of the write itself names no file
        raise
    finally:
        os.close(folder)


def write_new(
    folder: int, name: str, data: bytes, path: StrPath, mode: int = 0o644, *, sync: bool = True
) -> None:
    """Write a file that does not exist yet into the directory ``folder``, a descriptor. ``path``: of it, for errors.

    Raises:
        FileExistsError: there is one, or a link.
        OSError: it cannot be written; a part of it may be left.
    """
    fd = open_at(folder, name, _NEW, path, mode)
    with open(fd, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(fd)


def create(path: StrPath, mode: int = 0o644, *, inside: StrPath | None = None) -> BinaryIO:
    """A new file, open for writing. What is written is on no disk yet when it is closed. ``inside``: as for
    ``write_atomic``.

    Raises:
        FileExistsError: there is one, or a link.
        OSError: it cannot be made.
    """
    return os.fdopen(open_checked(path, _NEW, mode, inside=inside), "wb")


def _unlink(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def set_aside(path: Path) -> tuple[str, Path] | None:
    """Rename what is at ``path`` if it is a link or no regular file (a FIFO, a directory), or is too large to be read,
    so that a new file can be begun there. Returns what it was and its new path; None if nothing was renamed.

    Raises:
        OSError: it cannot be renamed.
    """
    try:
        folder = open_folder(path.parent)
    except FileNotFoundError:
        return None
    try:
        return _set_aside(folder, path)
    finally:
        os.close(folder)


def _set_aside(folder: int, path: Path) -> tuple[str, Path] | None:
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    what = "a link" if stat.S_ISLNK(status.st_mode) else kind_of(status.st_mode)
    if what is None and status.st_size > LARGEST:
        what = f"larger than {LARGEST} bytes"
    if what is None:
        return None
    taken = set(os.listdir(folder))
    names = (f"{path.name}.set-aside-{number}" for number in itertools.count(1))
    name = next(name for name in names if name not in taken)
    os.rename(path.name, name, src_dir_fd=folder, dst_dir_fd=folder)
    return what, path.with_name(name)
