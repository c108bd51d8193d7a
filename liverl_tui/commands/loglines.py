"""Log bytes -> lines for people: progress bars collapsed, long lines cut, escape sequences tamed. Pure."""

from __future__ import annotations

import re

LINE_BYTES = 8192  # a longer line is cut with a mark: some components print whole batches in one

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x80-\x9f]")
_TORN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*)?\Z")


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
        return self._text()

    def _add(self, piece: bytes) -> None:
        body = piece.rstrip(b"\r")
        if body:
            if self._returned or b"\r" in body:
                self._buffer.clear()
                self._cut = 0
                self.progress = True
            body = body.rpartition(b"\r")[2]
            room = LINE_BYTES - len(self._buffer)
            self._buffer += body[: max(0, room)]
            self._cut += max(0, len(body) - room)
            self._returned = False
        if len(body) < len(piece) and piece.endswith(b"\r"):
            self._returned = True

    def _text(self) -> str:
        text = self._buffer.decode("utf-8", "replace")
        if not self._cut:
            return text
        return f"{text.rstrip(chr(0xFFFD))} … [{self._cut} bytes cut]"

    def _take(self) -> str:
        text = self._text()
        self._buffer.clear()
        self._cut = 0
        self._returned = self.progress = False
        return text


def plain(line: str) -> str:
    """Without any escape sequence or control character."""
    return _CONTROL.sub("", _TORN.sub("", _ESCAPE.sub("", line))).replace("\x1b", "")


def coloured(line: str) -> str:
    """With its colours, which end with the line, and without what could move the cursor or retitle the
    terminal."""
    parts = _COLOUR.split(line)
    if len(parts) == 1:
        return plain(line)
    parts[::2] = [plain(part) for part in parts[::2]]
    return "".join(parts) + "\x1b[0m"


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGE = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")


def parse_age(text: str) -> float:
    """``5m``, ``1h30m``, ``2d``, ``90s`` or ``90`` in seconds.

    Raises:
        ValueError: it is none of these; the message says what is allowed.
    """
    bare = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", bare):
        return float(bare)
    if not _AGE.fullmatch(bare):
        raise ValueError(f"{text!r} is not a time span such as 30s, 5m, 1h30m or 2d")
    return sum(float(n) * _UNITS[u] for n, u in re.findall(r"(\d+(?:\.\d+)?)([smhd])", bare))
