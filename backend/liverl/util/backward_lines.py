"""Read a file's lines from its end, block by block, without reading all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from liverl.util.regular_file import open_regular

_BLOCK = 256 << 10  # bytes read at a time, from the end


def lines_backwards(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the lines of a file without their newline, last one first. An unfinished last line is skipped.

    A missing file has no lines.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        fd = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        at = os.fstat(fd).st_size
        rest: bytes | None = None  # end of a line that starts earlier; None: no newline found yet
        while at > 0:
            begin = max(0, at - _BLOCK)
            head, *lines = (os.pread(fd, at - begin, begin) + (rest or b"")).split(b"\n")
            at = begin
            if rest is None:
                if not lines:
                    continue  # the block holds only an unfinished line
                lines.pop()  # after the last newline: empty, or an unfinished line
            yield from reversed(lines)
            rest = head
        if rest:
            yield rest
    finally:
        os.close(fd)
