"""One log file: its lines by byte offset, in memory that does not grow with it.

A line begins at offset 0, behind every newline, and at the start of a block (``BLOCK`` bytes of the file) when
the whole block before it has no newline: so no line is longer than two blocks, and where lines begin can be told
from any place of the file by reading two blocks.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Literal

from liverl.logs.times import TimeIndex

BLOCK = 256 << 10
KEPT_BLOCKS = 6  # whose line starts are remembered
ANCHOR = 32  # bytes before the known end: where they have changed, the file was written anew
LONG = 4096  # bytes; lines that are shorter are had with one read

Change = Literal["same", "grown", "cut", "replaced"]


class Segment:
    """One file, as of the last ``look``. A path that leads to another file later is not followed (``replaced``):
    what was open stays readable."""

    def __init__(self, path: Path, service: str = "", generation: int = 0, *, live: bool = True) -> None:
        """``live``: it may still grow, and is kept open. Nothing is read before the first ``look``."""
        self.path = path
        self.service = service
        self.generation = generation
        self.live = live
        self.size = 0
        self.epoch = 0  # how often what it held was cut off
        self.there = False
        self.moved = False  # the path leads to another file now
        self.times = TimeIndex(path)
        self.counted: array[int] = array(
            "Q", [0]
        )  # lines that begin in the first n blocks, for the counted ones
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._anchor = b""
        self._looked = False
        self._starts: OrderedDict[int, tuple[int, array[int]]] = OrderedDict()  # block -> known up to, starts

    # -- the file

    def look(self, now: float) -> Change:
        """See how far the file is; ``now`` is Unix time. A missing file is empty. Raises OSError otherwise."""
        try:
            stat = os.fstat(self._fd) if self.moved and self._fd is not None else os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            if self._fd is None:
                self.there, self._looked = False, True
                return "same"
            stat = os.fstat(self._fd)  # removed, or renamed and not there yet again
        if self._identity is not None and self._identity != (stat.st_dev, stat.st_ino):
            return "replaced"
        if self.live and self._fd is None:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
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
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read(self, offset: int, count: int) -> bytes:
        """Bytes of the file; fewer at its end, none where it has gone. Raises OSError otherwise."""
        if self._fd is not None:
            return os.pread(self._fd, count, offset)
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, count, offset)
        finally:
            os.close(fd)

    # -- where lines begin

    @property
    def blocks(self) -> int:
        return -(-self.size // BLOCK)

    def starts(self, block: int) -> array[int]:
        """The offsets at which lines begin in a block, in order."""
        first = block * BLOCK
        last = min(self.size, first + BLOCK)
        if first >= last:
            return array("Q")
        upto, found = self._starts.pop(block, (first, None))
        if found is None:
            found = array("Q", [first] if self._begins_line(block) else [])
        if upto < last:
            begin = max(first, upto - 1)  # a newline at the known end had nothing behind it yet
            found.extend(_behind_newlines(self.read(begin, last - 1 - begin), begin))
        self._starts[block] = last, found
        if len(self._starts) > KEPT_BLOCKS:
            self._starts.popitem(last=False)
        return found

    def _begins_line(self, block: int) -> bool:
        first = block * BLOCK
        return block == 0 or self.read(first - 1, 1) == b"\n" or self._unbroken(block - 1)

    def _unbroken(self, block: int) -> bool:
        """Whether a block that is there as a whole has no newline."""
        end = (block + 1) * BLOCK
        if self.size < end or b"\n" in self.read(end - LONG, LONG):
            return False
        return b"\n" not in self.read(block * BLOCK, BLOCK)

    def line(self, start: int) -> tuple[bytes, bool]:
        """The line that begins at ``start`` (without its newline), and whether it has ended."""
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

    def text_of(self, block: int) -> tuple[array[int], bytes, bool]:
        """The lines that begin in a block: where, their bytes, which may end beyond it, and whether the last one
        has ended."""
        starts = self.starts(block)
        if not starts:
            return starts, b"", True
        head = self.read(starts[0], starts[-1] - starts[0])
        last, ended = self.line(starts[-1])
        return starts, head + last, ended

    def above(self, offset: int, count: int = 8 << 10) -> bytes:
        """Whole lines that end at ``offset``, ``count`` bytes at most."""
        begin = max(0, offset - count)
        data = self.read(begin, offset - begin)
        return data[data.find(b"\n") + 1 :] if begin else data

    # -- how many lines

    def count(self, blocks: int = 16) -> bool:
        """Count the lines of the next blocks; whether there are more to count."""
        whole = self.size // BLOCK
        done = len(self.counted) - 1
        for block in range(done, min(whole, done + blocks)):
            first = block * BLOCK
            data = self.read(first - 1, BLOCK) if block else b"\n" + self.read(0, BLOCK - 1)
            forced = data[:1] != b"\n" and self._unbroken(block - 1)
            self.counted.append(self.counted[-1] + data.count(b"\n") + forced)
        return len(self.counted) - 1 < whole

    def number(self, offset: int) -> int | None:
        """How many lines begin before ``offset``; None while that is not counted."""
        block = min(offset, self.size) // BLOCK
        if block >= len(self.counted):
            return None
        return self.counted[block] + bisect_left(self.starts(block), offset)

    def newlines(self, begin: int, end: int) -> int:
        """How many lines end in these bytes."""
        return sum(
            self.read(offset, min(BLOCK, end - offset)).count(b"\n") for offset in range(begin, end, BLOCK)
        )


def _behind_newlines(data: bytes, base: int) -> Iterable[int]:
    """The offset behind each newline of ``data``, which begins at ``base``."""
    pieces = data.split(b"\n")
    pieces.pop()
    found = accumulate((len(piece) + 1 for piece in pieces), initial=base)
    next(found)
    return found
