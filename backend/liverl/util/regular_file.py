"""Opens and reads files that another program may have replaced: by a FIFO, a device, a link, or a huge file; and
opens files for appending.

Everything that this program reads from a run's directory, from trials and logs, and from the user's configuration
goes through here, so that no such file can block its reader or fill its memory.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import BinaryIO

from liverl.util.checked_path import LinkRefusedError as LinkRefusedError
from liverl.util.checked_path import RefusedFileError as RefusedFileError
from liverl.util.checked_path import StrPath, open_at, open_checked, open_folder, unmapped_uid
from liverl.util.descriptors import readable

LARGEST = 256 << 20  # bytes: nothing that is read as a whole is this large
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class NotRegularFileError(RefusedFileError):
    """The path names a FIFO, a directory, a socket or a device."""


class ForeignFileError(RefusedFileError):
    """A file of another user stands where one of ours is to be written."""


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


def open_regular(path: StrPath, *, inside: StrPath | None = None) -> int:
    """Open a regular file for reading and return its descriptor. Never waits for a writer.

    Links of the user, of root and of the file's owner are followed. ``inside``: a directory above it, in the path's own
    spelling, below which none is: a trial, where a sandbox writes.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        NotRegularFileError: it is a FIFO, a directory, a socket or a device.
        LinkRefusedError: see ``checked_path``.
        OSError: it cannot be opened.
    """
    name = os.fspath(path)
    try:
        fd = open_checked(name, _FLAGS, inside=inside)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise NotRegularFileError(errno.ENXIO, "not a regular file but a socket", name) from None
        raise
    try:
        require_regular(os.fstat(fd).st_mode, name)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_append(
    path: StrPath,
    mode: int = 0o644,
    *,
    read: bool = False,
    inside: StrPath | None = None,
    empty: bool = False,
) -> int:
    """Open a regular file for appending, create it if it is missing, and return its descriptor. A link as the last
    part of the path is refused.

    ``mode``: permission bits of a new file. ``read``: for reading, too. ``inside``: as for ``open_regular``. ``empty``:
    remove what the file has.

    Raises:
        NotRegularFileError: it is a FIFO, a directory, a socket or a device.
        LinkRefusedError: it is a link, or a link on the way must not be followed.
        ForeignFileError: another user has put it there.
        OSError: it cannot be opened or created.
    """
    access = os.O_RDWR if read else os.O_WRONLY
    flags = access | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY
    name = os.fspath(path)
    folder = open_folder(os.path.dirname(name) or ".", inside=inside)
    try:
        fd = open_at(folder, os.path.basename(name), flags, name, mode)
        try:
            require_regular(os.fstat(fd).st_mode, name)
            require_own(os.fstat(fd), os.fstat(folder), name)
            if empty:
                os.ftruncate(fd, 0)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO that nobody reads, or a socket
            raise NotRegularFileError(errno.ENXIO, "not a regular file", name) from None
        raise
    finally:
        os.close(folder)
    return fd


def reopen_append(path: StrPath, ours: Callable[[os.stat_result], bool]) -> int | None:
    """Open for reading and appending a file that ``open_append`` has opened before; None if that does not work, or
    another one is at ``path`` now. ``ours``: whether a status is that of the file as it was left, by its inode: then no
    part of the path need be looked at."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except OSError:
        return None
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and ours(status):
        return fd
    os.close(fd)
    return None


def require_own(file: os.stat_result, folder: os.stat_result, path: str) -> None:
    """Check the facts of a file that is to be written, and of the folder that it is in.

    Raises:
        ForeignFileError: the file belongs to a user who may only write the folder, or may be another file's second
            name.
    """
    if file.st_uid not in {os.geteuid(), 0, folder.st_uid, unmapped_uid()}:
        words = (
            f"it belongs to uid {file.st_uid}, not to you (uid {os.geteuid()}), root or the folder's owner"
        )
        raise ForeignFileError(errno.EPERM, words, path)
    if stat.S_ISREG(file.st_mode) and file.st_nlink > 1 and folder.st_mode & stat.S_IWOTH:
        words = "a hard link, in a folder that every user can write: it may be another file's second name"
        raise ForeignFileError(errno.EPERM, words, path)


def open_binary(path: StrPath, *, inside: StrPath | None = None) -> BinaryIO:
    """Open a regular file as a binary stream. Raises what ``open_regular`` raises."""
    return os.fdopen(open_regular(path, inside=inside), "rb")


def read_up_to(fd: int, most: int) -> bytes:
    """The next bytes of a file that was just opened, ``most`` at the most. A file as long as its status says is read
    without asking for its end: on slow storage each read counts. Raises OSError."""
    parts, size = [], os.fstat(fd).st_size
    read = 0
    while read < most and (part := os.read(fd, min(most - read, 1 << 20))):
        parts.append(part)
        read += len(part)
        if read == size:
            break
    return b"".join(parts)


def read_regular(path: StrPath, most: int = LARGEST, *, inside: StrPath | None = None) -> bytes:
    """Return the content of a regular file.

    Raises:
        TooLargeError: it has more than ``most`` bytes.
        OSError: what ``open_regular`` raises, or it cannot be read.
    """
    with open_binary(path, inside=inside) as file:
        data = read_up_to(file.fileno(), most + 1)
    if len(data) > most:
        raise TooLargeError(errno.EFBIG, f"larger than {most} bytes", os.fspath(path))
    return data


def read_end(path: StrPath, begin: int, most: int) -> bytes:
    """What a regular file has from byte ``begin`` on, of that the last ``most`` bytes. Raises what ``open_regular``
    raises."""
    with open_binary(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begin, size - most))
        return file.read(most)


def overwrite(path: StrPath, data: bytes, mode: int = 0o644, *, inside: StrPath | None = None) -> None:
    """Replace the content of a file in its place, for files that are too small or too short-lived for a rename: a
    reader may see a part. Arguments as for ``open_append``.

    Raises:
        OSError: what ``open_append`` raises, or it cannot be written.
    """
    with os.fdopen(open_append(path, mode, inside=inside, empty=True), "wb") as file:
        file.write(data)


def read_pipe(path: StrPath, most: int, seconds: float) -> bytes:
    """Return all that is written to a FIFO (such as bash's ``<(command)``) until its writers close it.

    Raises:
        TimeoutError: nobody opened it for writing, or its writers did not close it, within ``seconds``.
        TooLargeError: more than ``most`` bytes were written.
        OSError: it cannot be opened or read.
    """
    give_up = time.monotonic() + seconds
    fd = open_checked(path, _FLAGS)
    data, opened = b"", False
    try:
        while (left := give_up - time.monotonic()) > 0:
            ready = readable([fd], min(left, 0.05))
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


def read_text(
    path: StrPath, most: int = LARGEST, *, errors: str = "strict", inside: StrPath | None = None
) -> str:
    """Return the content of a regular file as UTF-8 text.

    Raises:
        UnicodeDecodeError: it is not UTF-8, and ``errors`` is ``strict``.
        OSError: what ``read_regular`` raises.
    """
    return read_regular(path, most, inside=inside).decode("utf-8", errors)
