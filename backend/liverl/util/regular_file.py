"""Opens and reads files that another program may have replaced: by a FIFO, a device, a link, or a huge file.

Everything that this program reads from a run's directory, from trials and logs, and from the user's configuration
goes through here, so that no such file can block its reader or fill its memory.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import BinaryIO

LARGEST = 256 << 20  # bytes: nothing that is read as a whole is this large
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)

StrPath = str | os.PathLike[str]


class RefusedFileError(OSError):
    """A file that must not be read: trying again gives the same answer. ``filename`` is its path."""


class NotRegularFileError(RefusedFileError):
    """The path names a FIFO, a directory, a socket or a device."""


class OutsideError(RefusedFileError):
    """The path leads out of the directory that it must stay in, through a symbolic link."""


class TooLargeError(RefusedFileError):
    """The file has more bytes than its reader accepts."""


def kind_of(mode: int) -> str | None:
    """Return what a file is in words (``a FIFO``) from its ``st_mode``; None if it is a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((words for matches, words in _KINDS if matches(mode)), "a special file")


def require_regular(mode: int, path: StrPath) -> None:
    """Check an ``st_mode`` of ``path``.

    Raises:
        NotRegularFileError: it is that of a FIFO, a directory, a socket or a device.
    """
    kind = kind_of(mode)
    if kind is not None:
        raise NotRegularFileError(errno.EINVAL, f"not a regular file but {kind}", os.fspath(path))


def open_regular(path: StrPath, *, inside: str | None = None) -> int:
    """Open a regular file for reading and return its descriptor. Never waits for a writer.

    ``inside``: a resolved directory that the file must lie in; links that lead out of it are refused.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        NotRegularFileError: it is a FIFO, a directory, a socket or a device.
        OutsideError: it lies outside of ``inside``.
        OSError: it cannot be opened.
    """
    name = os.fspath(path)
    try:
        fd = os.open(name, _FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise NotRegularFileError(errno.ENXIO, "not a regular file but a socket", name) from None
        raise
    try:
        require_regular(os.fstat(fd).st_mode, name)
        if inside is not None:
            target = os.readlink(f"/proc/self/fd/{fd}")
            if not target.startswith(inside.rstrip("/") + "/"):
                raise OutsideError(errno.EXDEV, f"a link to {target}, which is outside of {inside}", name)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_append(path: StrPath, mode: int = 0o644, *, read: bool = False) -> int:
    """Open a regular file for appending, create it if it is missing, and return its descriptor.

    ``mode``: permission bits of a new file. ``read``: for reading, too. A link as the last component is refused.

    Raises:
        NotRegularFileError: it is a FIFO, a directory, a socket or a device.
        OSError: it cannot be opened or created.
    """
    access = os.O_RDWR if read else os.O_WRONLY
    flags = access | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
    name = os.fspath(path)
    try:
        fd = os.open(name, flags, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO that nobody reads, or a socket
            raise NotRegularFileError(errno.ENXIO, "not a regular file", name) from None
        raise
    try:
        require_regular(os.fstat(fd).st_mode, name)
    except NotRegularFileError:
        os.close(fd)
        raise
    return fd


def open_binary(path: StrPath, *, inside: str | None = None) -> BinaryIO:
    """Open a regular file as a binary stream. Raises what ``open_regular`` raises."""
    return os.fdopen(open_regular(path, inside=inside), "rb")


def read_regular(path: StrPath, most: int = LARGEST, *, inside: str | None = None) -> bytes:
    """Return the content of a regular file.

    Raises:
        TooLargeError: it has more than ``most`` bytes.
        OSError: what ``open_regular`` raises, or it cannot be read.
    """
    with open_binary(path, inside=inside) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise TooLargeError(errno.EFBIG, f"larger than {most} bytes", os.fspath(path))
    return data


def read_pipe(path: StrPath, most: int, seconds: float) -> bytes:
    """Return all that is written to a FIFO (such as bash's ``<(command)``) until its writers close it.

    Raises:
        TimeoutError: nobody opened it for writing, or its writers did not close it, within ``seconds``.
        TooLargeError: more than ``most`` bytes were written.
        OSError: it cannot be opened or read.
    """
    give_up = time.monotonic() + seconds
    fd = os.open(path, _FLAGS)
    data, opened = b"", False
    try:
        while (left := give_up - time.monotonic()) > 0:
            ready, _, _ = select.select([fd], [], [], min(left, 0.05))
            try:
                chunk = os.read(fd, 1 << 16)
            except BlockingIOError:  # a writer has it open and has written nothing new
                opened = True
                continue
            if chunk:
                data, opened = data + chunk, True
            elif opened:
                return data
            elif ready:
                time.sleep(0.02)  # no writer yet
            if len(data) > most:
                raise TooLargeError(errno.EFBIG, f"larger than {most} bytes", os.fspath(path))
    finally:
        os.close(fd)
    what = "its writer did not close it" if opened else "nobody wrote to this FIFO"
    raise TimeoutError(errno.ETIMEDOUT, f"{what} within {seconds:g} s", os.fspath(path))


def read_text(path: StrPath, most: int = LARGEST, *, errors: str = "strict") -> str:
    """Return the content of a regular file as UTF-8 text.

    Raises:
        UnicodeDecodeError: it is not UTF-8, and ``errors`` is ``strict``.
        OSError: what ``read_regular`` raises.
    """
    return read_regular(path, most).decode("utf-8", errors)
