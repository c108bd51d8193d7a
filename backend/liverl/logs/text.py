"""Log bytes -> lines for people: progress bars collapsed, long lines cut, escape sequences tamed. Pure."""

from __future__ import annotations

import re

LINE_BYTES = 8192  # a longer line is cut with a mark: some components print whole batches in one

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
# control characters, and those that turn the direction of what follows or break the line
_CONTROL = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x80-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_TORN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*)?\Z")
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?=[^\r\n])", re.MULTILINE)


class LineAssembler:
    """Cuts a stream of bytes into lines, in memory bounded by ``LINE_BYTES``.

    A carriage return overwrites what its line held (a progress bar); only the last state of it stays.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._cut = 0  # bytes of this line that were left out
        self._returned = False  # a carriage return came; what follows on this line overwrites it
        self.progress = False  # the line under way has been redrawn

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes."""
        *pieces, rest = data.split(b"\n")
        lines = []
        for piece in pieces:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def finish(self) -> list[str]:
        """What is left at the end of the stream: a last line without its newline, or nothing."""
        return [self._take()] if self._buffer or self._cut else []

    def peek(self) -> str:
        """The line under way, as it stands."""
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
    """``line`` with carriage returns applied: the last text written wins."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def shown(line: bytes) -> str:
    """One whole line as ``LineAssembler`` gives it; escape sequences are still in it."""
    line = last_state(line)
    return _cut(line[:LINE_BYTES], max(0, len(line) - LINE_BYTES))


def _cut(kept: bytes, left_out: int) -> str:
    text = kept.decode("utf-8", "replace")
    return f"{text.rstrip(chr(0xFFFD))} … [{left_out} bytes cut]" if left_out else text


def bare(data: bytes) -> str:
    """Whole lines as they are searched: without escape sequences and overwritten text, newlines kept."""
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def plain(line: str) -> str:
    """Without any escape sequence or control character."""
    return _CONTROL.sub("", _TORN.sub("", _ESCAPE.sub("", line))).replace("\x1b", "")


def coloured(line: str) -> str:
    """With its colours, which end with the line, and without what could move the cursor or retitle the
    terminal."""
    parts = colour_parts(line)
    return "".join(parts) + "\x1b[0m" if len(parts) > 1 else parts[0]


def colour_parts(line: str) -> list[str]:
    """Plain text and colour sequences in turn, text first and last."""
    parts: list[str] = _COLOUR.split(line)
    parts[::2] = [plain(part) for part in parts[::2]]
    return parts
