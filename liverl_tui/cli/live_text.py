"""Text that is drawn again in its place: only lines that have changed are sent, so that nothing flickers."""

from __future__ import annotations

import os
import re
import shutil
import signal
from types import FrameType, TracebackType
from typing import TextIO

from liverl_tui.text.words import cut

CLEAR = "\x1b[H\x1b[2J"
CLEAR_LINE = "\x1b[K"  # from the cursor on
_COLOURED = re.compile(r"\x1b\[[0-9;]*m")


def fitting(lines: list[str], width: int, height: int) -> list[str]:
    """As many lines as there is room for; what is missing is counted in the last one. Lines with colours in them
    are taken to fit."""
    shown = [line if _COLOURED.search(line) else cut(line, width) for line in lines]
    if len(shown) <= height:
        return shown
    rest = len(shown) - height + 1
    return [*shown[: height - 1], cut(f"... {rest} more lines", width)][:height]


def changes(before: list[str], after: list[str], width: int) -> str:
    """What turns a screen that shows ``before`` into one that shows ``after``, from its top left corner on."""
    sent = []
    for row, line in enumerate(after):
        if row >= len(before) or before[row] != line:
            # After a full line the cursor still stands on its last character, which would be cleared too.
            full = len(_COLOURED.sub("", line)) >= width
            sent.append(f"\x1b[{row + 1};1H{line}{'' if full else CLEAR_LINE}")
    if len(before) > len(after):
        sent.append(f"\x1b[{len(after) + 1};1H\x1b[J")
    return "".join(sent)


class Redrawn:
    """The upper part of a terminal. Inside a ``with`` block ``fd`` is readable after the window has changed its
    size; at its end the cursor is below what was drawn."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._wanted: list[str] = []
        self._shown: list[str] = []
        self._size: tuple[int, int] | None = None
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((80, 24)).columns

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # it is readable already

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
        """The new size has been seen."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return

    def draw(self, lines: list[str]) -> None:
        width, height = shutil.get_terminal_size((80, 24))
        sent = ""
        if (width, height) != self._size:
            self._size, self._shown, sent = (width, height), [], CLEAR
        shown = fitting(lines, width, height)
        sent += changes(self._shown, shown, width)
        self._shown = shown
        if sent:
            self._out.write(sent)
            self._out.flush()
