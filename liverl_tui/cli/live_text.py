"""Text that is redrawn in place: only the lines that changed are sent, so that the terminal does not flicker."""

from __future__ import annotations

import os
import re
import shutil
import signal
from types import FrameType, TracebackType
from typing import TextIO

from liverl_tui.text.words import cut

CLEAR = "\x1b[H\x1b[2J"
CLEAR_LINE = "\x1b[K"  # clears from the cursor to the end of the line
_COLOURED = re.compile(r"\x1b\[[0-9;]*m")


def fitting(lines: list[str], width: int, height: int) -> list[str]:
    """The first ``height`` lines, each cut to ``width`` columns. If there are more, the last line counts the rest
    (``... 3 more lines``). A line with colour codes is not cut: the caller has made it fit."""
    shown = [line if _COLOURED.search(line) else cut(line, width) for line in lines]
    if len(shown) <= height:
        return shown
    rest = len(shown) - height + 1
    return [*shown[: height - 1], cut(f"... {rest} more lines", width)][:height]


def changes(before: list[str], after: list[str], width: int) -> str:
    """The escape sequences that turn a screen which shows ``before`` into one which shows ``after``; both begin in
    the top left corner."""
    parts = []
    for row, line in enumerate(after):
        if row >= len(before) or before[row] != line:
            # After a full line the cursor is still on its last column, and CLEAR_LINE would erase that one.
            full = len(_COLOURED.sub("", line)) >= width
            parts.append(f"\x1b[{row + 1};1H{line}{'' if full else CLEAR_LINE}")
    if len(before) > len(after):
        parts.append(f"\x1b[{len(after) + 1};1H\x1b[J")
    return "".join(parts)


class Redrawn:
    """Lines at the top of a terminal, redrawn in place. A context manager.

    Inside the ``with`` block ``fd`` becomes readable when the window changes its size (SIGWINCH); call ``settled``
    and ``draw`` then. At the end of the block the cursor is moved below the last line.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._wanted: list[str] = []
        self._shown: list[str] = []
        self._size: tuple[int, int] | None = None
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def width(self) -> int:
        """Columns of the terminal now; 80 if unknown."""
        return shutil.get_terminal_size((80, 24)).columns

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # the pipe is full, so ``fd`` is readable already

    def __enter__(self) -> Redrawn:
        self._before = signal.signal(signal.SIGWINCH, self._resized)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGWINCH, self._before)
        os.close(self.fd)
        os.close(self._write)
        if self._shown and not isinstance(error, OSError):
            self._out.write(f"\x1b[{len(self._shown)};1H\n")
            self._out.flush()

    def settled(self) -> None:
        """Acknowledge a change of size: ``fd`` is not readable any more."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return

    def draw(self, lines: list[str]) -> None:
        """Show ``lines`` in place of those of the last call; after a change of size the screen is cleared first."""
        width, height = shutil.get_terminal_size((80, 24))
        output = ""
        if (width, height) != self._size:
            self._size, self._shown, output = (width, height), [], CLEAR
        shown = fitting(lines, width, height)
        output += changes(self._shown, shown, width)
        self._shown = shown
        if output:
            self._out.write(output)
            self._out.flush()
