"""The lines of a file from its end on, without reading more of it than is wanted."""

from __future__ import annotations

import os
from collections.abc import Iterator

_BLOCK = 256 << 10  # bytes read at a time, from the end


def lines_backwards(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The lines of a file, the last one first; one without its end is left out."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        at = os.fstat(fd).st_size
        rest: bytes | None = None  # the end of a line that begins before; None: no newline yet
        while at > 0:
            begin = max(0, at - _BLOCK)
            head, *lines = (os.pread(fd, at - begin, begin) + (rest or b"")).split(b"\n")
            at = begin
            if rest is None:
                if not lines:
                    continue  # all of it is torn
                lines.pop()  # behind the last newline: nothing, or a torn line
            yield from reversed(lines)
            rest = head
        if rest:
            yield rest
    finally:
        os.close(fd)
