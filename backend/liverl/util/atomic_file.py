"""Atomic file writes: a reader sees either the old content or the new one."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from liverl.util.regular_file import LARGEST, kind_of

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomic(path: Path, data: bytes, mode: int = 0o644, *, sync: bool = True) -> None:
    """Replace the content of ``path`` by ``data`` through a temporary file and a rename.

    ``sync`` flushes the data to disk before the rename. ``mode`` holds the permission bits of the new file. A directory
    at ``path`` is renamed (see ``set_aside``). Threads may write the same file at the same time.

    Raises:
        OSError: the directory is not writable or the disk is full; the old file is kept, the
            temporary one removed. Its ``filename`` is ``path``.
    """
    temporary = path.with_name(f".{path.name}.{threading.get_native_id()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # of an earlier thread with this number
        fd = os.open(temporary, _NEW, mode)
        with open(fd, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(fd)
        try:
            os.replace(temporary, path)
        except IsADirectoryError:
            set_aside(path)
            os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        error.filename = os.fspath(path)  # an error of the write itself names no file
        raise


def set_aside(path: Path) -> tuple[str, Path] | None:
    """Rename what is at ``path`` if it is a link or no regular file (a FIFO, a directory), or is too large to be read,
    so that a new file can be begun there. Returns what it was and its new path; None if nothing was renamed.

    Raises:
        OSError: it cannot be renamed.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    what = "a link" if stat.S_ISLNK(status.st_mode) else kind_of(status.st_mode)
    if what is None and status.st_size > LARGEST:
        what = f"larger than {LARGEST} bytes"
    if what is None:
        return None
    number = 1
    while os.path.lexists(path.with_name(f"{path.name}.set-aside-{number}")):
        number += 1
    aside = path.with_name(f"{path.name}.set-aside-{number}")
    path.rename(aside)
    return what, aside
