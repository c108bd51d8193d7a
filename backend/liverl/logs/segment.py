"""One log file as lines by byte offset, in memory independent of its size.

A line starts at offset 0, after every newline, and at the start of a block (``BLOCK`` bytes of the file) if
the whole previous block has no newline. So no line is longer than two blocks, and line starts at any place of
the file are known after reading two blocks.
"""

from __future__ import annotations

import operator
import os
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Literal

from liverl.logs.times import TimeIndex
from liverl.util.regular_file import open_regular

BLOCK = 256 << 10
KEPT_BLOCKS = 6  # number of blocks whose line starts are cached
ANCHOR = 32  # bytes before the known end: if they changed, the file was rewritten
LONG = 4096  # bytes; shorter lines take one read

Change = Literal["same", "grown", "cut", "replaced"]


class Segment:
    """One file, as of the last ``look``. It stays open: if the path is replaced, the old content remains
    readable (see ``replaced``)."""

    def __init__(self, path: Path, service: str = "", generation: int = 0, *, live: bool = True) -> None:
        """``live``: the file may still grow, and is kept open. Nothing is read before the first ``look``."""
        self.path = path
        self.service = service
        self.generation = generation
        self.live = live
        self.size = 0
        self.epoch = 0  # number of truncations
        self.there = False
        self.moved = False  # the path now names another file
        self.times = TimeIndex(path)
        self.counted: array[int] = array(
            "Q", [0]
        )  # lines that start in the first n blocks, for the counted blocks
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._anchor = b""
        self._looked = False
        self._starts: OrderedDict[int, tuple[int, array[int]]] = OrderedDict()  # block -> known up to, starts

    # -- the file

    def look(self, now: float) -> Change:
        """Update the size of the file. ``now`` is Unix time. A missing file is empty.

        Raises:
            OSError: the file exists and cannot be opened.
        """
        try:
            stat = os.fstat(self._fd) if self.moved and self._fd is not None else os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            if self._fd is None:
                self.there, self._looked = False, True
                return "same"
            stat = os.fstat(self._fd)  # removed, or renamed and not yet created again
        if self._identity is not None and self._identity != (stat.st_dev, stat.st_ino):
            return "replaced"
        if self.live and self._fd is None:
            self._fd = open_regular(self.path)
            stat = os.fstat(self._fd)
        self._identity, self.there = (stat.st_dev, stat.st_ino), True
        self.times.modified = stat.st_mtime
        if stat.st_size == self.size:
            self._looked = True
            return "same"
        before = self.size
        cut = (
            stat.st_size < before or self.read(before - len(self._anchor), len(self._anchor)) != self._anchor
        )
        if cut:
            self.epoch += 1
            self.times.reset()
            self.counted = array("Q", [0])
            self._starts.clear()
        self.size = stat.st_size
        self._anchor = self.read(max(0, self.size - ANCHOR), ANCHOR)
        if self._looked:
            self.times.note(self.size, now)
        self._looked = True
        return "cut" if cut else "grown"

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read(self, offset: int, count: int) -> bytes:
        """Return ``count`` bytes at ``offset``; fewer at the end, none if the file is gone.

        Raises:
            OSError: the file exists and cannot be read.
        """
        if self._fd is not None:
            return os.pread(self._fd, count, offset)
        try:
            fd = open_regular(self.path)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, count, offset)
        finally:
            os.close(fd)

    # -- line starts

    @property
    def blocks(self) -> int:
        """Number of blocks, the last one possibly partial."""
        return -(-self.size // BLOCK)

    def starts(self, block: int) -> array[int]:
        """Return the offsets of the lines that start in a block, ascending."""
        first = block * BLOCK
        last = min(self.size, first + BLOCK)
        if first >= last:
            return array("Q")
        upto, line_starts = self._starts.pop(block, (first, None))
        if line_starts is None:
            line_starts = array("Q", [first] if self._begins_line(block) else [])
        if upto < last:
            begin = max(first, upto - 1)  # a newline at the previous end had no line after it yet
            line_starts.extend(_behind_newlines(self.read(begin, last - 1 - begin), begin))
        self._starts[block] = last, line_starts
        if len(self._starts) > KEPT_BLOCKS:
            self._starts.popitem(last=False)
        return line_starts

    def _begins_line(self, block: int) -> bool:
        first = block * BLOCK
        return block == 0 or self.read(first - 1, 1) == b"\n" or self._unbroken(block - 1)

    def _unbroken(self, block: int) -> bool:
        """Whether a complete block has no newline."""
        end = (block + 1) * BLOCK
        if self.size < end or b"\n" in self.read(end - LONG, LONG):
            return False
        return b"\n" not in self.read(block * BLOCK, BLOCK)

    def line(self, start: int) -> tuple[bytes, bool]:
        """Return the line that starts at ``start`` (without newline), and whether it is complete."""
        data = self.read(start, min(LONG, self.size - start))
        end = data.find(b"\n")
        if end >= 0:
            return data[:end], True
        if start + len(data) >= self.size:
            return data, False
        block = start // BLOCK
        limit = (block + (1 if start == block * BLOCK and self._unbroken(block) else 2)) * BLOCK
        data = self.read(start, min(limit, self.size) - start)
        end = data.find(b"\n")
        return (data[:end], True) if end >= 0 else (data, limit <= self.size)

    def text_of(self, block: int, start: int = 0) -> tuple[array[int], bytes, bool]:
        """Return the lines that start in a block, at ``start`` or after it: offsets, bytes (possibly beyond the
        block), whether the last is complete."""
        starts = self.starts(block)
        if start > block * BLOCK:
            starts = starts[bisect_left(starts, start) :]
        if not starts:
            return starts, b"", True
        head = self.read(starts[0], starts[-1] - starts[0])
        last, ended = self.line(starts[-1])
        return starts, head + last, ended

    def above(self, offset: int, count: int = 8 << 10) -> bytes:
        """Return whole lines that end at ``offset``, at most ``count`` bytes."""
        begin = max(0, offset - count)
        data = self.read(begin, offset - begin)
        return data[data.find(b"\n") + 1 :] if begin else data

    # -- line count

    def count(self, blocks: int = 16) -> bool:
        """Count the lines of the next ``blocks`` blocks; return whether uncounted ones remain."""
        whole = self.size // BLOCK
        done = len(self.counted) - 1
        for block in range(done, min(whole, done + blocks)):
            first = block * BLOCK
            data = self.read(first - 1, BLOCK) if block else b"\n" + self.read(0, BLOCK - 1)
            forced = data[:1] != b"\n" and self._unbroken(block - 1)
            self.counted.append(self.counted[-1] + data.count(b"\n") + forced)
        return len(self.counted) - 1 < whole

    def number(self, offset: int) -> int | None:
        """Return the number of lines that start before ``offset``; None until counted."""
        block = min(offset, self.size) // BLOCK
        if block >= len(self.counted):
            return None
        return self.counted[block] + bisect_left(self.starts(block), offset)

    def offset_of(self, number: int) -> int | None:
        """Return the offset of line ``number``, from 1; None if the file has fewer. Counts the lines up to it."""
        while self.counted[-1] < number and self.count():
            pass
        block = max(0, bisect_left(self.counted, number) - 1)
        starts, index = self.starts(block), number - 1 - self.counted[block]
        return starts[index] if 0 <= index < len(starts) else None

    def newlines(self, begin: int, end: int) -> int:
        """Return the number of newlines between two offsets."""
        return sum(
            self.read(offset, min(BLOCK, end - offset)).count(b"\n") for offset in range(begin, end, BLOCK)
        )


def _behind_newlines(data: bytes, base: int) -> Iterable[int]:
    """Return the offset after each newline of ``data``, which starts at offset ``base``."""
    pieces = data.split(b"\n")
    pieces.pop()
    # In C from end to end: a log that grows by a megabyte a second has thousands of lines a second.
    return map(operator.add, accumulate(map(len, pieces)), range(base + 1, base + 1 + len(pieces)))
