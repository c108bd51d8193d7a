"""Tells by a line's shape, the line without its digits, whether it may matter: logs repeat few shapes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, count, repeat
from operator import add
from typing import NamedTuple

from liverl.causes.needles import Needles
from liverl.logs.levels import SHELL, level_of_text
from liverl.logs.prefix_chain import split_prefixes
from liverl.logs.prefixes import colourless
from liverl.logs.progress import progress_of
from liverl.logs.text import last_state
from liverl.util.late_pattern import late_pattern

# What a line may be, as one byte: the lines of a block are then a string, in which expressions find their runs
HEALTHY = ord("h")  # a sign that the process works
# Of level info, with nothing in it that the catalogue looks for: it goes on with no record. SIGNED: likewise, with
# words that are counted in healthy lines
INFO, SIGNED = ord("i"), ord("m")
BARE = ord("b")  # likewise, without a level: it may go on with the record above
DULL = ord("d")  # indented, with a word of failures but no needle: read, unless a bare one goes on with it
# A warning or an error of one line, whose shape more than FLOOD lines since the last healthy sign have
FLOODED = ord("f")
REPEATED = ord("R")  # any other that stood there REPEATS times before, to the byte: in a flood of tracebacks
READ = ord("x")  # any other
# What is known of a shape beside these: nothing; an event of one line, which may be FLOODED; a sign of progress, which
# is read; what is read, and may be REPEATED as DULL may be
_UNKNOWN, _EVENT_LINE, _SIGN, _ANY = b"uesr"
FLOOD = 4000
REPEATS = 300  # lines that are alike to the byte: of more, the first and the last ones are read
MOST = 1 << 14  # shapes that are remembered
LONGEST = 400  # bytes of a line whose shape is remembered as it is

_PREFIX = (
    rb"(?:\x1b\[[\d;]{0,12}m|\([^()\n]{1,120}\) |\[rank\d{1,5}\]: ?|[\w.-]{1,60} {1,40}\| "
    rb"|\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-][\d:]{4,5}) |\d{1,5}: )*+"
)
_OF_RAY = rb"(?:\x1b\[[\d;]{0,12}m\([^()\n]{1,120}\)\x1b\[[\d;]{0,12}m )?+"  # in colours
# Lines that a healthy run writes by the thousand: answers (of SGLang with a stamp), NCCL's details, vLLM's throughput
_HEALTHY = late_pattern(
    rb"(?:" + _OF_RAY + _PREFIX + rb"(?:"
    rb'(?:\[\d{4}-\d\d-\d\d [\d:]{8}\] )?+INFO: {4,6}[^\s"]{3,60} - "[^"\n]{1,400}" 2\d\d[^\n]*+'
    rb"|(?:\[[\d: .T/-]{10,40}\] )?[\w.-]{1,100}:\d+:\d+ \[\d+\] (?:[^\s:]{1,60}:\d+ )?NCCL INFO [^\n]*+"
    rb"|INFO \d\d-\d\d [\d:]{8} \[[^\]\n]{1,60}\] Engine \d+: Avg prompt throughput[^\n]*+"
    rb")\n)++"
)
_OF_LEVEL_INFO = (
    _PREFIX + rb"(?:INFO[ :]|DEBUG[ :]|\d{4}-\d\d-\d\d [\d:,.]{8,15}[\s-]{1,3}(?:INFO|DEBUG)\b)[^\n]*\n"
)
_INFO = late_pattern(_OF_LEVEL_INFO)
# It ends what its writer has written above it, and so is read like a bare one, while that may go on
_INFO_OF_RAY = late_pattern(_OF_RAY.replace(b")?+", b")") + _OF_LEVEL_INFO)
_EVENT = late_pattern(
    _OF_RAY + _PREFIX + rb"(?:\d{4}-\d\d-\d\d [\d:,.]{8,15}[\s-]{1,3})?(?:WARN|WARNING|ERROR|CRITICAL)[ :]"
)
# What may be a part of a record of several lines, or be followed by one
_PART = late_pattern(
    rb"Traceback|File \"|handling of|direct cause|(?:Error|Exception|Interrupt|Exit)\b|[\]:|] {2,}|[:,({\[\\] *$|[|^~]"
)
# What a bare line must not have: the level of C++ loggers, which digits tell, and the words of failures
_LETTER = late_pattern(rb"(?:^|[\[\s,])[WEFC](?:\d{3,4} \d\d:| \d+ \d+\]| [\w./-]{1,80}:\d)")
_WORDS = late_pattern(
    rb"rror|ERR|ail|FAIL|illed|rminated|bort|ault|SIG|atal|FATAL|arning|WARN|level|everity|panic"
)
# What begins a record of another kind than a line, or goes on with one
_RECORD = late_pattern(
    rb"xception|raceback|handling of|direct cause|File \"|rocess |^[|+]|\bstep:|Application startup complete|HTTP/"
    rb"|nterrupt|npm |^E: "
)
# What is counted in healthy lines, as it stands in the shape of a line
SIGNS = (b'" T', b"Avg prompt throughput", b'"POST /')
_ANSWERED = late_pattern(b'" 2')  # to search for it takes half as long as to replace it
_DIGITS = b"0123456789"
_ZEROES = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_NO_DIGITS = dict.fromkeys(range(ord("0"), ord("9") + 1))
# Signs with lines that are settled behind them, events, and lines of which each is looked at
_STATEFUL = late_pattern(rb"[hs][bimRhs]*+|e++|[urd]++")
_SETTLED = b"bimR"
MOST_ASKED, ASKED = 1 << 9, 4096  # texts that were asked about which are remembered, and characters of one
FEW = 16  # events of which each is counted by itself
_ALWAYS = (b"step:", b"Application startup complete", b": smg::response: ", b": Router ready | workers: ")


class Lines(NamedTuple):
    """The lines of a block: what each is, as a byte, and where each ends, behind its newline."""

    codes: bytes
    ends: list[int]


@lru_cache(maxsize=4)
def _indexes(needles: tuple[str, ...]) -> tuple[Needles, Needles]:
    """Of the needles, and of those with digits without these. It takes 11 ms for those of the catalogue, which all logs
    are read with."""
    bare = (bare for needle in needles if (bare := needle.translate(_NO_DIGITS)) != needle)
    return Needles(needles), Needles(bare)


class Shapes:
    """``needles``: what the catalogue's signatures look for."""

    def __init__(self, needles: Sequence[str]) -> None:
        self._needles, self._without_digits = _indexes(tuple(needles))
        self._known: dict[bytes, int] = {}
        self._long: dict[int, int] = {}  # of longer lines by the 64-bit hash of their shapes
        self._events: dict[bytes, int] = {}  # how many of a shape there were since the last healthy sign
        self._repeats: dict[bytes, int] = {}  # how often there was a line that is read
        # Of lines of known shapes that are REPEATED, the bits in which that differs from what is known of their shapes
        self._settled: dict[bytes, int] = {}
        self._without: set[bytes | int] = set()  # shapes of texts without a needle
        # Texts with a needle that has no digits, each of theirs as a zero
        self._with: set[bytes | int] = set()
        self._asked: dict[str, bool] = {}  # the last texts, to the letter, and whether they have a needle

    def of(self, data: bytes) -> Lines:
        """What each line of ``data`` is. One without its newline is READ."""
        lines = data.split(b"\n")
        rest = lines.pop()  # it is no whole line
        # An answer 2xx differs from others by a digit alone.
        marked = data.replace(b'" 2', b'" T') if _ANSWERED.search(data) else data
        shapes = marked.translate(None, _DIGITS).split(b"\n")
        del shapes[-1]
        codes = bytearray(map(self._known.get, shapes, repeat(_UNKNOWN)))
        if self._settled:
            changes = int.from_bytes(bytes(map(self._settled.get, lines, repeat(0))))
            codes = bytearray((int.from_bytes(codes) ^ changes).to_bytes(len(codes)))
        for run in _STATEFUL.finditer(bytes(codes)) if codes.translate(None, _SETTLED) else ():
            begin, end = run.span()
            kind = codes[begin]
            if kind in (HEALTHY, _SIGN):
                self._events.clear()
            elif kind == _EVENT_LINE and self._floods(shapes[begin:end]):
                codes[begin:end] = b"f" * (end - begin)
            else:
                for place in range(begin, end):
                    codes[place] = self._one(lines[place], shapes[place], codes[place])
        ends = list(map(add, accumulate(map(len, lines)), count(1)))
        if rest:
            codes.append(READ)
            ends.append(len(data))
        return Lines(bytes(codes).replace(b"s", b"x"), ends)

    def _one(self, line: bytes, shape: bytes, known: int) -> int:
        """What one line is. ``known``: of its shape."""
        if known == _UNKNOWN:
            known = self._known.get(shape) or self._learned(line, shape)
        if known in (_ANY, DULL):
            return self._repeated(line, shape, known)
        if known == _EVENT_LINE:
            return self._counted(shape)
        if known in (HEALTHY, _SIGN):
            self._events.clear()
        return known

    def _floods(self, shapes: Sequence[bytes]) -> bool:
        """Count many events at once if all of them are of a flood; return whether they are."""
        if len(shapes) < FEW:
            return False
        often = Counter(shapes)
        if any(self._events.get(shape, 0) < FLOOD for shape in often):
            return False
        for shape, more in often.items():
            self._events[shape] += more
        return True

    def has_needle(self, text: str) -> bool:
        """Whether the catalogue looks for something in ``text``."""
        known = self._asked.get(text)
        if known is None:
            known = self._has_needle(text)
            if len(text) <= ASKED:
                if len(self._asked) >= MOST_ASKED:
                    self._asked.clear()
                self._asked[text] = known
        return known

    def _has_needle(self, text: str) -> bool:
        raw = text.encode("utf-8", "surrogatepass")
        shape = _remembered(raw.translate(None, _DIGITS))
        if shape in self._without:
            return False
        same_places = _remembered(raw.translate(_ZEROES))
        if same_places in self._with:
            return True
        needle = next(self._needles.of(text), None)
        if needle is not None:
            if needle.translate(_NO_DIGITS) == needle:
                _remember(self._with, same_places)
            return True
        if not self._without_digits.any_of(text.translate(_NO_DIGITS)):
            _remember(self._without, shape)
        return False

    def _counted(self, shape: bytes) -> int:
        number = self._events.get(shape, 0) + 1
        if number == 1 and len(self._events) >= MOST:
            self._events.clear()
        self._events[shape] = number
        return FLOODED if number > FLOOD else READ

    def _repeated(self, line: bytes, shape: bytes, known: int) -> int:
        before = self._repeats.get(line, 0)
        if before >= REPEATS:
            if shape in self._known:
                self._settled[line] = known ^ REPEATED
            return REPEATED
        if before == 0 and len(self._repeats) >= MOST:
            self._repeats.clear()
            self._settled.clear()
        if len(line) <= LONGEST:
            self._repeats[line] = before + 1
        return READ if known == _ANY else known

    def _learned(self, line: bytes, shape: bytes) -> int:
        if len(line) > LONGEST:
            key = hash(shape)
            if (known := self._long.get(key)) is not None:
                return known
        kind = self._kind(line, shape)
        if len(line) > LONGEST:
            if len(self._long) >= MOST:
                self._long.clear()
            self._long[key] = kind
        else:
            if len(self._known) >= MOST:
                self._known.clear()
                self._settled.clear()
            self._known[shape] = kind
        return kind

    def _kind(self, line: bytes, shape: bytes) -> int:
        if _HEALTHY.fullmatch(line + b"\n"):
            return HEALTHY
        whole = line.decode("utf-8", "replace")
        if any(words in line for words in _ALWAYS) or progress_of(whole):
            return _SIGN
        if _EVENT.match(line) and not _PART.search(line):
            return _EVENT_LINE
        if self._needles.any_of(whole) or self._without_digits.any_of(shape.decode("utf-8", "replace")):
            return _ANY
        if _INFO.fullmatch(line + b"\n"):
            return SIGNED if any(words in shape for words in SIGNS) else INFO
        if _INFO_OF_RAY.fullmatch(line + b"\n"):
            return BARE
        if len(line) > LONGEST or _LETTER.search(line) or _RECORD.search(line):
            return _ANY
        text = split_prefixes(colourless(last_state(line).decode("utf-8", "replace"))).text
        if level_of_text(text) not in (None, "info", "debug") or SHELL.match(text):
            return _ANY
        if not _WORDS.search(line):
            return BARE
        return DULL if text[:1].isspace() else _ANY


def _remembered(shape: bytes) -> bytes | int:
    """A shape as it is remembered: a long one by its 64-bit hash."""
    return shape if len(shape) <= LONGEST else hash(shape)


def _remember(shapes: set[bytes | int], shape: bytes | int) -> None:
    if len(shapes) >= MOST:
        shapes.clear()
    shapes.add(shape)
