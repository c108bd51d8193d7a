"""Appends lines to files that several readers follow: a line is in the file whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from liverl.util.checked_path import StrPath
from liverl.util.regular_file import open_append

_BLOCK = 1 << 16
LONGEST_TORN = 64 << 20  # bytes of a cut line that are searched for its beginning


def append_whole(
    path: Path, data: bytes, mode: int = 0o644, *, inside: StrPath | None = None, whole: int | None = None
) -> int:
    """Append ``data``, one or more lines that each end with a newline; return the file's size before them.

    What a crash or a full disk has left of an earlier line is removed first: it was never reported as written, and
    would become one line with the next. ``mode``: permission bits of a new file. ``inside``: a directory above
    ``path``, in the path's own spelling, below which no link is followed. ``whole``: a size at which the caller has
    seen this file end with a line of its own, where nothing cut is looked for.

    Raises:
        OSError: the disk is full, or the file cannot be opened or written; what was written of ``data`` is removed.
            Its ``filename`` is ``path``.
    """
    fd = open_append(path, mode, read=True, inside=inside)
    try:
        return append_to(fd, path, data, whole)
    finally:
        os.close(fd)


def append_to(fd: int, path: Path, data: bytes, whole: int | None = None) -> int:
    """Like ``append_whole``. ``fd``: of ``path``, open for reading and appending."""
    try:
        data, before = _behind_whole_lines(fd, data, whole)
        try:
            write_all(fd, data)
        except OSError:
            with contextlib.suppress(OSError):  # then the next line removes it
                os.ftruncate(fd, before)
            raise
        return before
    except OSError as error:
        error.filename = os.fspath(path)  # an error of the write itself names no file
        raise


def write_all(fd: int, data: bytes) -> None:
    """Write all of ``data`` to a file or a pipe.

    Raises:
        OSError: it cannot be written; a part of it may be.
    """
    written = 0
    while written < len(data):
        size = os.write(fd, data[written:])
        if size == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += size


def _behind_whole_lines(fd: int, data: bytes, whole: int | None) -> tuple[bytes, int]:
    """(what to write, the file's size before it), after a cut last line was removed. One that is longer than any of
    ours was written by somebody else: it stays, and is ended."""
    size = end = os.fstat(fd).st_size
    if size == whole:
        return data, size
    while end > 0 and size - end < LONGEST_TORN:
        begin = max(0, end - (_BLOCK if end < size else 1))
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    else:
        if end > 0:
            return b"\n" + data, size
    if end < size:
        os.ftruncate(fd, end)
    return data, end
