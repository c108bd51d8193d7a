"""Opens files that are only there to be locked: several processes agree on them, so none may be replaced."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from liverl.util.checked_path import StrPath, open_at, open_checked, open_folder
from liverl.util.regular_file import require_own

_FLAGS = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY


def open_lock(path: StrPath, mode: int = 0o644, *, only_locked: bool = False) -> int:
    """The descriptor of a lock's file, which is created if it is missing. The caller locks it with ``flock``; closing
    it unlocks it. ``mode``: permission bits of a new file.

    What stands there instead, a FIFO or a directory, is opened as well: with another file in its place two processes
    would have a lock. ``only_locked``: nothing is written to it, so that it may be a link that may be followed.

    Raises:
        LinkRefusedError: it is a link, or a link on the way must not be followed.
        ForeignFileError: another user has put it there.
        OSError: it cannot be opened or created.
    """
    name = os.fspath(path)
    if only_locked:
        try:
            return open_checked(name, _FLAGS)
        except IsADirectoryError:
            return open_folder(name)
        except FileNotFoundError:
            pass
    folder = open_folder(os.path.dirname(name) or ".")
    try:
        part = os.path.basename(name)
        try:
            fd = open_at(folder, part, _FLAGS | os.O_CREAT, name, mode)
        except IsADirectoryError:
            fd = open_at(folder, part, os.O_RDONLY | os.O_DIRECTORY, name)
        try:
            require_own(os.fstat(fd), os.fstat(folder), name)
        except OSError:
            os.close(fd)
            raise
        return fd
    finally:
        os.close(folder)


@contextmanager
def held_lock(path: StrPath, busy: str, *, only_locked: bool = False) -> Iterator[str]:
    """Holds a lock unless somebody else does; why it is not held, in words, else "". ``busy``: the words where somebody
    else holds it; ``only_locked``: as in ``open_lock``."""
    try:
        fd = open_lock(path, only_locked=only_locked)
    except OSError as error:
        yield f"its lock cannot be opened: {error.strerror or error}"
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield busy
        else:
            yield ""
    finally:
        os.close(fd)
