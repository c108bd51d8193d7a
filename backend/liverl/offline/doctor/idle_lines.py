"""Tells of whole blocks of a log whether any of their lines shows work: a log that hangs may end with gigabytes of
polls and heartbeats. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from liverl.logs.no_work import BUSY, shows_no_work
from liverl.logs.prefixes import ANSI, colourless

LONGEST = 2000  # bytes of a line that are looked at
SHAPES = 1 << 12  # shapes of lines that are remembered
TIMES = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d|\b\d\d-\d\d (?=\d\d:)|\b\d{1,4}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?|\b[\d.]{1,9} ?(?:s/it|it/s)|"
    r"\[repeated \d+x across cluster\]"
)
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
# Only behind these words the values of digits, not only their places, tell whether a line shows work
_BY_VALUE = (b"throughput", b"#running-req")

_IsIdle = Callable[[bytes], bool]


def shown_text(raw: bytes) -> str | None:
    """A line as it is judged: the last text written, without colours; None for a blank line."""
    text = raw.rstrip(b"\r").rpartition(b"\r")[2]
    return colourless(text[:LONGEST].decode("utf-8", "replace")) if text.strip() else None


class IdleLines:
    """``beats``: lines, without their times, that come again and again and show no work.

    A line is judged by its shape, the line with 0 for each digit: logs repeat few of them."""

    def __init__(self, beats: frozenset[str]) -> None:
        self._beats = beats
        self._beats_raw = frozenset(beat.encode("utf-8", "surrogatepass") for beat in beats)
        self._shapes: dict[bytes, bool | _IsIdle | None] = {}  # True: idle; None: blank

    def count(self, data: bytes) -> int:
        """How many lines of ``data`` are not blank; 0 if one of them shows work."""
        times = Counter(data.split(b"\n"))  # each different line is judged once
        shapes = self._shapes
        count = 0
        for line, shape in zip(times, b"\n".join(times).translate(_ZEROS).split(b"\n"), strict=True):
            try:
                idle = shapes[shape]
            except KeyError:
                idle = self._learned(shape)
            if idle is None:
                continue
            if idle is not True and (idle is False or not idle(line)):
                return 0
            count += times[line]
        return count

    def is_idle(self, line: bytes) -> bool:
        """Whether a line, not blank, shows no work."""
        text = shown_text(line) or ""
        return shows_no_work(text) or (BUSY.search(text) is None and TIMES.sub("", text) in self._beats)

    def _learned(self, shape: bytes) -> bool | _IsIdle | None:
        if len(self._shapes) >= SHAPES:
            self._shapes.clear()
        idle = self._shapes[shape] = self._judge(shape)
        return idle

    def _judge(self, shape: bytes) -> bool | _IsIdle | None:
        """What is known of all lines of a shape: whether they show no work, or how to tell it of one of them."""
        text = shown_text(shape)
        if text is None:
            return None
        if not shape.isascii() or any(word in shape for word in _BY_VALUE):
            return self.is_idle
        if shows_no_work(text):
            return True
        if not self._beats:
            return False
        parts = _lasting_parts(shape)
        if len(parts) == 1:
            (only,) = parts
            return lambda line: line[only] in self._beats_raw
        return lambda line: b"".join([line[part] for part in parts]) in self._beats_raw


def _lasting_parts(shape: bytes) -> list[slice]:
    """Where in a line of this shape, all ASCII, the text stands that is neither a colour nor a time."""
    line = shape.rstrip(b"\r")
    begin = line.rfind(b"\r") + 1
    text = line[begin : begin + LONGEST].decode("ascii")
    places = _outside(list(range(begin, begin + len(text))), ANSI, text)
    places = _outside(places, TIMES, colourless(text))
    parts: list[slice] = []
    for place in places:
        if parts and parts[-1].stop == place:
            parts[-1] = slice(parts[-1].start, place + 1)
        else:
            parts.append(slice(place, place + 1))
    return parts


def _outside(places: list[int], pattern: re.Pattern[str], text: str) -> list[int]:
    """Of ``places``, those of each character of ``text``, which stand outside of all matches."""
    kept: list[int] = []
    at = 0
    for match in pattern.finditer(text):
        kept += places[at : match.start()]
        at = match.end()
    return kept + places[at:]
