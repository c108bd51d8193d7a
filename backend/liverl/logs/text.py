"""Converts log bytes to lines for display: progress bars collapsed, long lines cut, escape sequences removed.
Pure."""

from __future__ import annotations

import re

LINE_BYTES = 8192  # bytes; longer lines are cut with a mark: some components print whole batches in one line

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
# control characters, including those that change text direction or break the line
_CONTROL = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x80-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_TORN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*)?\Z")
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?=[^\r\n])", re.MULTILINE)


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
    """Return whole lines as they are searched: without escape sequences and overwritten text, newlines kept."""
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def plain(line: str) -> str:
    """Return ``line`` without escape sequences and control characters."""
    return _CONTROL.sub("", _TORN.sub("", _ESCAPE.sub("", line))).replace("\x1b", "")


def coloured(line: str) -> str:
    """Return ``line`` with its colours, reset at the end, but without sequences that move the cursor or set
    the title."""
    parts = colour_parts(line)
    return "".join(parts) + "\x1b[0m" if len(parts) > 1 else parts[0]


def colour_parts(line: str) -> list[str]:
    """Return plain text and colour sequences alternately, starting and ending with text."""
    parts: list[str] = _COLOUR.split(line)
    parts[::2] = [plain(part) for part in parts[::2]]
    return parts
