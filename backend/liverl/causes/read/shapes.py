"""Tells by a line's shape, the line without its digits, whether it may matter: logs repeat few shapes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from liverl.causes.needles import Needles
from liverl.logs.levels import SHELL, level_of_text
from liverl.logs.prefix_chain import split_prefixes
from liverl.logs.prefixes import colourless
from liverl.logs.progress import progress_of
from liverl.logs.text import last_state

Shape = Literal[
    "healthy",  # a sign that the process works
    "info",  # of level info, with nothing in it that the catalogue looks for: it goes on with no record
    "bare",  # likewise, without a level: it may go on with the record above
    "beside",  # likewise, while a record is open that it may go on with
    "flood",  # a warning or an error of one line, whose shape more than FLOOD lines since the last healthy sign have
    "repeated",  # any other that stood there REPEATS times before, to the byte: in a flood of tracebacks
    "read",  # any other
]
_Known = Literal["event", "sign", Shape]  # "event": of one line; "sign": of progress; both are read
FLOOD = 4000
REPEATS = 300  # lines that are alike to the byte: of more, the first and the last ones are read
MOST = 1 << 14  # shapes that are remembered
LONGEST = 400  # bytes of a line whose shape is remembered

_PREFIX = (
    rb"(?:\x1b\[[\d;]{0,12}m|\([^()\n]{1,120}\) |\[rank\d{1,5}\]: ?|[\w.-]{1,60} {1,40}\| "
    rb"|\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-][\d:]{4,5}) |\d{1,5}: )*+"
)
# Lines that a healthy run writes by the thousand: answers, NCCL's details, vLLM's throughput
_HEALTHY = re.compile(
    rb"(?:" + _PREFIX + rb"(?:"
    rb'INFO: {4,6}[^\s"]{3,60} - "[^"\n]{1,400}" 2\d\d[^\n]*+'
    rb"|(?:\[[\d: .T/-]{10,40}\] )?[\w.-]{1,100}:\d+:\d+ \[\d+\] (?:[^\s:]{1,60}:\d+ )?NCCL INFO [^\n]*+"
    rb"|INFO \d\d-\d\d [\d:]{8} \[[^\]\n]{1,60}\] Engine \d+: Avg prompt throughput[^\n]*+"
    rb")\n)++"
)
_INFO = re.compile(
    _PREFIX + rb"(?:INFO[ :]|DEBUG[ :]|\d{4}-\d\d-\d\d [\d:,.]{8,15}[\s-]{1,3}(?:INFO|DEBUG)\b)[^\n]*\n"
)
_EVENT = re.compile(
    _PREFIX + rb"(?:\d{4}-\d\d-\d\d [\d:,.]{8,15}[\s-]{1,3})?(?:WARN|WARNING|ERROR|CRITICAL)[ :]"
)
# What may be a part of a record of several lines, or be followed by one
_PART = re.compile(
    rb"Traceback|File \"|handling of|direct cause|(?:Error|Exception|Interrupt|Exit)\b|[\]:|] {2,}|[:,({\[\\] *$|[|^~]"
)
# What a bare line must not have: the level of C++ loggers, which digits tell, and the words of failures
_LETTER = re.compile(rb"(?:^|[\[\s,])[WEFC](?:\d{3,4} \d\d:| \d+ \d+\]| [\w./-]{1,80}:\d)")
_WORDS = re.compile(
    rb"rror|xception|ERR|ail|FAIL|raceback|illed|rminated|bort|handling of|direct cause|File \"|rocess |^[|+]|\bstep:"
    rb"|Application startup complete|HTTP/|ault|nterrupt|SIG|atal|FATAL|arning|WARN|level|everity|panic|npm |^E: "
)
_DIGITS = b"0123456789"
_NO_DIGITS = dict.fromkeys(range(ord("0"), ord("9") + 1))
_ALWAYS = (b"step:", b"Application startup complete", b": smg::response: ", b": Router ready | workers: ")


class Shapes:
    """``needles``: what the catalogue's signatures look for."""

    def __init__(self, needles: Sequence[str]) -> None:
        self._needles = Needles(needles)
        self._without_digits = Needles(
            bare for needle in needles if (bare := needle.translate(_NO_DIGITS)) != needle
        )
        self._known: dict[bytes, _Known] = {}
        self._events: dict[bytes, int] = {}  # how many of a shape there were since the last healthy sign
        self._repeats: dict[bytes, int] = {}  # how often there was a line that is read
        self._without: set[str] = set()  # shapes of texts without a needle

    def of(self, data: bytes) -> Iterator[tuple[int, Shape]]:
        """Yield the length of each line of ``data`` in bytes, with its newline, and what it is."""
        if not data:
            return
        whole = data.endswith(b"\n")
        lines = data.split(b"\n")
        # An answer 2xx differs from others by a digit alone.
        shapes = data.replace(b'" 2', b'" T').translate(None, _DIGITS).split(b"\n")
        known = self._known
        last = len(lines) - 1
        for number, (line, shape) in enumerate(zip(lines, shapes, strict=True)):
            if number == last:
                if not whole:
                    yield len(line), "read"
                return
            kind = known.get(shape) or self._learned(line, shape)
            if kind == "healthy" or kind == "sign":
                self._events.clear()
            if kind == "event":
                yield len(line) + 1, self._counted(shape)
            elif kind == "read":
                yield len(line) + 1, self._repeated(line)
            else:
                yield len(line) + 1, "read" if kind == "sign" else kind

    def has_needle(self, text: str) -> bool:
        """Whether the catalogue looks for something in ``text``."""
        shape = text.translate(_NO_DIGITS)
        if shape in self._without:
            return False
        if self._needles.any_of(text):
            return True
        if len(text) <= LONGEST and not self._without_digits.any_of(shape):
            if len(self._without) >= MOST:
                self._without.clear()
            self._without.add(shape)
        return False

    def _counted(self, shape: bytes) -> Shape:
        count = self._events.get(shape, 0) + 1
        if count == 1 and len(self._events) >= MOST:
            self._events.clear()
        self._events[shape] = count
        return "flood" if count > FLOOD else "read"

    def _repeated(self, line: bytes) -> Shape:
        count = self._repeats.get(line, 0)
        if count == 0 and len(self._repeats) >= MOST:
            self._repeats.clear()
        if count >= REPEATS:
            return "repeated"
        if len(line) <= LONGEST:
            self._repeats[line] = count + 1
        return "read"

    def _learned(self, line: bytes, shape: bytes) -> _Known:
        kind = self._kind(line, shape)
        if len(line) <= LONGEST:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[shape] = kind
        return kind

    def _kind(self, line: bytes, shape: bytes) -> _Known:
        if _HEALTHY.fullmatch(line + b"\n"):
            return "healthy"
        whole = line.decode("utf-8", "replace")
        if any(words in line for words in _ALWAYS) or progress_of(whole):
            return "sign"
        if _EVENT.match(line) and not _PART.search(line):
            return "event"
        if self._needles.any_of(whole) or self._without_digits.any_of(shape.decode("utf-8", "replace")):
            return "read"
        if _INFO.fullmatch(line + b"\n"):
            return "info"
        if len(line) > LONGEST or _WORDS.search(line) or _LETTER.search(line):
            return "read"
        text = split_prefixes(colourless(last_state(line).decode("utf-8", "replace"))).text
        return "bare" if level_of_text(text) in (None, "info", "debug") and not SHELL.match(text) else "read"
