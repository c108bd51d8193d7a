"""Reads bytes appended to a file since the last poll; detects replacement and truncation."""

from __future__ import annotations

import os
from pathlib import Path

from liverl.util.regular_file import open_regular

ANCHOR = 32  # bytes compared before the offset: ext4 reuses inode numbers at once
MAX_LINE = 64 << 20  # bytes; longer lines are dropped and counted


class Follower:
    """Follows one path. ``offset``: start of the next read; ``resets``: number of restarts from 0."""

    def __init__(self, path: str | os.PathLike[str], offset: int = 0) -> None:
        self.path = Path(path)
        self.offset = offset
        self.resets = 0
        self.modified = 0.0  # when the file was last changed, as of the last read (Unix seconds)
        self._identity: tuple[int, int, int] | None = None  # device, inode, size
        self._anchor = b""

    def behind(self) -> int:
        """About how many bytes there are to read, by one ``stat``: 0 only if the file is as it was when it was read
        last, or does not exist."""
        try:
            stat = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        if (stat.st_dev, stat.st_ino, stat.st_size) == self._identity and self.offset >= stat.st_size:
            return 0
        return stat.st_size - self.offset if stat.st_size > self.offset else max(1, stat.st_size)

    def poll(
        self, cap: int = 1 << 20, *, newest: bool = False, status: os.stat_result | None = None
    ) -> bytes:
        """Return up to ``cap`` appended bytes; ``b""`` if there are none or the file does not exist (yet).

        With ``newest``, only the last ``cap`` bytes of a larger backlog are returned. An unchanged file costs
        one ``stat``, none with its ``status``, where the caller has just asked for it.

        Raises:
            OSError: the file exists and cannot be read.
        """
        try:
            stat = os.stat(self.path) if status is None else status
        except (FileNotFoundError, NotADirectoryError):
            return b""
        if (stat.st_dev, stat.st_ino, stat.st_size) == self._identity and self.offset >= stat.st_size:
            return b""
        try:
            fd = open_regular(self.path)
        except FileNotFoundError:
            return b""
        try:
            stat = os.fstat(fd)
            if self._replaced(fd, stat):
                self.offset, self._anchor = 0, b""
                self.resets += 1
            self._identity = (stat.st_dev, stat.st_ino, stat.st_size)
            self.modified = stat.st_mtime
            if newest and stat.st_size - self.offset > cap:
                self.offset, self._anchor = stat.st_size - cap, b""
            data = os.pread(fd, cap, self.offset)
        finally:
            os.close(fd)
        self.offset += len(data)
        self._anchor = (self._anchor + data)[-ANCHOR:]
        return data

    def skip_to(self, offset: int) -> None:
        """Read on from byte ``offset``, if that lies further on: the middle of a large file is passed over."""
        if offset > self.offset:
            self.offset, self._anchor = offset, b""

    def _replaced(self, fd: int, stat: os.stat_result) -> bool:
        if stat.st_size < self.offset:
            return True
        if self._identity is not None and self._identity[:2] != (stat.st_dev, stat.st_ino):
            return True
        size = len(self._anchor)
        return bool(size) and os.pread(fd, size, self.offset - size) != self._anchor


class LineFollower:
    """Complete lines (without newline) of a growing file; an unfinished last line is returned once it is
    complete."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.follower = Follower(path)
        self.dropped = 0  # lines longer than MAX_LINE
        self._rest = b""
        self._skipping = False

    @property
    def resets(self) -> int:
        """How often the file was replaced or truncated."""
        return self.follower.resets

    def poll(self, cap: int = 4 << 20) -> list[bytes]:
        """Return the lines completed by the next ``cap`` bytes at most.

        Raises:
            OSError: the file exists and cannot be read.
        """
        before = self.follower.resets
        data = self.follower.poll(cap)
        if self.follower.resets != before:
            self._rest, self._skipping = b"", False
        if not data:
            return []
        *lines, rest = (self._rest + data).split(b"\n")
        if lines and self._skipping:
            del lines[0]
            self._skipping = False
        if len(rest) > MAX_LINE:
            self.dropped += 0 if self._skipping else 1
            rest, self._skipping = b"", True
        self._rest = b"" if self._skipping else rest
        return lines
