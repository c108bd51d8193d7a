"""Opens the files of this process. It cannot import ``liverl.util``, of which this is a small copy: nothing is followed
that an agent may have put into the directory of a trial, and nothing waits for a FIFO."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

LARGEST = 64 << 20  # bytes of a file that is read
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def read(path: Path | str, most: int = LARGEST) -> bytes:
    """The content of a file of the run.

    Raises:
        OSError: it is no regular file, has more than ``most`` bytes, or cannot be read.
    """
    return _content(os.open(path, _FILE & ~os.O_NOFOLLOW), most)


def read_below(root: Path, path: Path, most: int) -> bytes:
    """The content of a file below ``root``, where agents write: no link is followed.

    Raises:
        OSError: see ``read``; or a part of its path below ``root`` is a link.
    """
    with _folder(root, path.parent) as folder:
        return _content(os.open(path.name, _FILE, dir_fd=folder), most)


def append_below(root: Path, path: Path, line: bytes, *, make: bool = False) -> None:
    """Append a line to a file below ``root``. ``make``: its missing directories, too. What a crash has cut is ended
    first, as another process may be the one that writes it.

    Raises:
        FileNotFoundError: its directory is missing.
        OSError: it is no regular file, a part of its path below ``root`` is a link, or the line has no room. Nothing of
            the line is left, unless an agent holds the file's lock.
    """
    with _folder(root, path.parent, make=make) as folder:
        fd = os.open(path.name, _FILE | os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644, dir_fd=folder)
    try:
        _require_regular(fd, path.name)
        locked = False
        with contextlib.suppress(OSError):  # waiting for it would delay the records of all other trials
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        append_line(fd, line, whole=locked)
    finally:
        os.close(fd)


def append_line(fd: int, line: bytes, *, whole: bool) -> None:
    """Append a line. ``whole``: nobody else writes the file now, so that a part of the line may be removed again.

    Raises:
        OSError: it has no room.
    """
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line
    try:
        if os.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        if whole:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
        raise


def replace(path: Path, data: bytes) -> None:
    """Replace a file of the run, through another one and a rename.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, _FILE | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
        file.write(data)
    draft.replace(path)


@contextlib.contextmanager
def _folder(root: Path, path: Path, *, make: bool = False) -> Iterator[int]:
    if make:
        root.mkdir(parents=True, exist_ok=True)
    at = os.open(root, _FOLDER)
    try:
        for part in path.relative_to(root).parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
            new = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = new
        yield at
    finally:
        os.close(at)


def _content(fd: int, most: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        _require_regular(fd, "it")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes")
    return data


def _require_regular(fd: int, name: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, f"{name} is not a regular file")
