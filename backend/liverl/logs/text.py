"""Converts log bytes to lines for display: progress bars collapsed, long lines cut, colours and cursor moves removed,
other control characters made visible. Pure."""

from __future__ import annotations

import re

from liverl.util.late_pattern import late_pattern
from liverl.util.visible import visible

LINE_BYTES = 8192  # bytes; longer lines are cut with a mark: some components print whole batches in one line

# Colours, and what progress bars do: move the cursor, clear the line. Removing these hides no text; other sequences
# (title, clipboard, links) carry text, so they are made visible.
_SEQUENCE = late_pattern(r"\x1b\[[0-?]*[ -/]*[@-~]")
_COLOUR = late_pattern(r"(\x1b\[[0-9;:]*m)")
_TORN = late_pattern(r"\x1b(?:\[[0-?]*[ -/]*)?\Z")  # a sequence that is not complete yet
_OVERWRITTEN = late_pattern(r"^[^\n]*\r(?=[^\r\n])", re.MULTILINE)


class LineAssembler:
    """Splits a stream of bytes into lines, in memory bounded by ``LINE_BYTES``.

    A carriage return overwrites the line (progress bars): only the last state is kept.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._cut = 0  # bytes of this line that were dropped
        self._returned = False  # after a carriage return: further text overwrites the line
        self.progress = False  # the current line was overwritten at least once

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that ``data`` completes."""
        *pieces, rest = data.split(b"\n")
        lines = []
        for piece in pieces:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def finish(self) -> list[str]:
        """Return what is left at the end of the stream: a last line without newline, or nothing."""
        return [self._take()] if self._buffer or self._cut else []

    def peek(self) -> str:
        """Return the current, unfinished line."""
        return _cut(bytes(self._buffer), self._cut)

    def _add(self, piece: bytes) -> None:
        body = piece.rstrip(b"\r")
        if body:
            if self._returned or b"\r" in body:
                self._buffer.clear()
                self._cut = 0
                self.progress = True
            body = last_state(body)
            room = LINE_BYTES - len(self._buffer)
            self._buffer += body[: max(0, room)]
            self._cut += max(0, len(body) - room)
            self._returned = False
        if len(body) < len(piece) and piece.endswith(b"\r"):
            self._returned = True

    def _take(self) -> str:
        text = self.peek()
        self._buffer.clear()
        self._cut = 0
        self._returned = self.progress = False
        return text


def last_state(line: bytes) -> bytes:
    """Return ``line`` with carriage returns applied: the last text written wins."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def shown(line: bytes) -> str:
    """Return one whole line as ``LineAssembler`` would; escape sequences are kept."""
    line = last_state(line)
    return _cut(line[:LINE_BYTES], max(0, len(line) - LINE_BYTES))


def _cut(kept: bytes, left_out: int) -> str:
    text = kept.decode("utf-8", "replace")
    return f"{text.rstrip(chr(0xFFFD))} … [{left_out} bytes cut]" if left_out else text


def bare(data: bytes) -> str:
    """Return whole lines as they are searched: without colours, cursor moves and overwritten text, newlines kept."""
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    return _SEQUENCE.sub("", text) if "\x1b" in text else text


def plain(line: str) -> str:
    """Return ``line`` without colours and cursor moves, with other control characters visible (``visible``). Tabs are
    kept."""
    if line.isprintable():
        return line
    if "\x1b" in line:
        line = _TORN.sub("", _SEQUENCE.sub("", line))
    return visible(line, lines=True)


def colour_parts(line: str) -> list[str]:
    """Return plain text and colour sequences alternately, starting and ending with text."""
    if "\x1b" not in line:
        return [plain(line)]
    parts: list[str] = _COLOUR.split(line)
    parts[::2] = [plain(part) for part in parts[::2]]
    return parts
