"""Tells by a line's shape, the line without its digits, whether it may matter: logs repeat few shapes. Of what
a bar has overwritten nothing counts. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, compress, count, repeat
from operator import add
from typing import NamedTuple

from liverl.causes.needles import Needles
from liverl.causes.read.loose import DOUBTFUL, Loose, Words
from liverl.logs.heads import parse_head
from liverl.logs.json_lines import plain_lines
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
# Any other that stood there REPEATS times before: to the byte, or if it has no needle by its shape. In a flood of
# tracebacks
REPEATED = ord("R")
READ = ord("x")  # any other
# What is known of a shape beside these: nothing; an event of one line, which may be FLOODED; a sign of progress, which
# is read; what is read, and may be REPEATED to the byte; likewise without a needle, so that, as DULL, it may be by
# shape; and with a needle for which digits do not tell, so that it may be, too, after OFTEN of its shape
_UNKNOWN, _EVENT_LINE, _SIGN, _ANY, _PLAIN, _NEEDLED = b"uesrln"
FLOOD = 4000  # in all, if those of several shapes take turns, but not less than
OFTEN = 500  # of each
REPEATS = 300  # lines that are alike: of more, the first and the last ones are read
# Bytes of a block that are looked at together, and of one after a piece in which more than one line in SOME was
# unknown: what is learned of one helps with the next one
PIECE, LEAST, SOME = 1 << 18, 1 << 13, 16
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
# Of level info, and yet of an exception or an error: a program that keeps the lines of another one logs all of them
# alike. The source lines of its frames go on with what is read.
_EXCEPTION = late_pattern(
    rb"Traceback \(most recent|\bFile \""
    rb"|(?:^|[\s:|\]])(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)(?:: |$)"
    rb"|: (?:[a-z_]\w{0,60}\.){1,8}[A-Z]\w{0,60}: "
    rb"|[\s(\[|](?:ERROR|FATAL|CRITICAL)\]?: "
)
_OF_SOURCE = late_pattern(rb"(?:INFO|DEBUG)\b[\s:|-]{1,3}[\w.]{1,80}(?: -|:|\]| \|) {3,}\S")
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
# Signs with lines that are settled behind them, events with such lines between them, and lines of which each is looked
# at
_STATEFUL = late_pattern(rb"[hs][bimRfhs]*+|e[ebimRf]*+|[urdln]++")
# What a bar has overwritten
_OVERWRITTEN = late_pattern(rb"^[^\n]*\r(?=[^\r\n%]*%\|)", re.MULTILINE)
# A level of pino, which digits tell
_NUMBERED = late_pattern(rb'"(?:level|levelname|severity|log_level|lvl)": ?\d')
# What decides about lines beside needles, as far as the letters a to f are in it: of the expressions above
_DECIDING = (
    *("rror", "ail", "illed", "rminated", "bort", "ault", "atal", "arning", "level", "everity", "panic"),
    *("xception", "raceback", "handling of", "direct cause", 'File "', "rocess ", "nterrupt"),
    *("step", "iter", "epoch", "episode", "update", "passed", "Application startup complete"),
    *("Avg prompt throughput", "Router ready", "response: "),
)
# Codes that are remembered for loose shapes
_LOOSELY = (INFO, BARE, DULL, REPEATED, _EVENT_LINE, _PLAIN, _NEEDLED)
_SETTLED = b"bimRf"
_EVENTS = bytes(code == _EVENT_LINE for code in range(256))
MOST_ASKED, ASKED = 1 << 9, 4096  # texts that were asked about which are remembered, and characters of one
FEW = 16  # events of which each is counted by itself
_ALWAYS = (b"step:", b"Application startup complete", b": smg::response: ", b": Router ready | workers: ")


class Lines(NamedTuple):
    """The lines of a block: what each is, as a byte, and where each ends, behind its newline."""

    codes: bytes
    ends: list[int]


@lru_cache(maxsize=4)
def _indexes(needles: tuple[str, ...], every: tuple[str, ...]) -> tuple[Needles, Needles, Words]:
    """Of the needles, of those with digits without these, and of all words that decide. It takes 20 ms for those of the
    catalogue, which all logs are read with."""
    bare = (bare for needle in needles if (bare := needle.translate(_NO_DIGITS)) != needle)
    return Needles(needles), Needles(bare), Words({*needles, *every, *_DECIDING})


class Shapes:
    """``needles``: what the catalogue's signatures look for, without those that contain another one; ``every``: with
    them; ``digits_tell``: whether digits of a text may tell which signatures it matches."""

    def __init__(
        self,
        needles: Sequence[str],
        every: Sequence[str] = (),
        digits_tell: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._needles, self._without_digits, words = _indexes(tuple(needles), tuple(every))
        self._digits_tell = digits_tell
        self._loose = Loose(words)
        self._often: dict[bytes, int] = {}  # how many lines of a shape there were that is _PLAIN or DULL
        self._piece = LEAST
        # Most lines of the last piece were known by their loose shapes only, or unknown
        self._mostly_loose = False
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
        codes, begin = bytearray(), 0
        ends: list[int] = []
        while begin < len(data):
            end = data.find(b"\n", begin + self._piece) + 1 or data.rfind(b"\n", begin) + 1
            if not end:
                break
            lines = data[begin:end].split(b"\n")
            lines.pop()
            codes += self._of_lines(data[begin:end], lines)
            ends.extend(map(add, accumulate(map(len, lines)), count(begin + 1)))
            begin = end
        if begin < len(data):  # it is no whole line
            codes.append(READ)
            ends.append(len(data))
        return Lines(bytes(codes).replace(b"s", b"x"), ends)

    def _of_lines(self, data: bytes, lines: list[bytes]) -> bytes:
        """What each of some whole lines is."""
        # An answer 2xx differs from others by a digit alone.
        marked = data.replace(b'" 2', b'" T') if _ANSWERED.search(data) else data
        if b"\r" in marked:
            marked = _last_states(marked, len(lines))
        loose = self._loose_shapes(marked) if self._mostly_loose else []
        codes = bytearray(map(self._loose.get, loose, repeat(_UNKNOWN)))
        shapes = loose
        if not loose or _UNKNOWN in codes:
            shapes, loose, codes = self._by_shapes(marked, loose)
        self._piece = PIECE if codes.count(_UNKNOWN) <= len(codes) // SOME else LEAST
        if self._settled:
            changes = int.from_bytes(bytes(map(self._settled.get, lines, repeat(0))))
            codes = bytearray((int.from_bytes(codes) ^ changes).to_bytes(len(codes)))
        if codes.translate(None, _SETTLED):
            self._count(lines, shapes, loose, codes)
        return bytes(codes)

    def _by_shapes(self, data: bytes, loose: list[bytes]) -> tuple[list[bytes], list[bytes], bytearray]:
        """The shapes of some lines, their loose shapes if they were asked for, and what is known of each line."""
        shapes = data.translate(None, _DIGITS).split(b"\n")
        del shapes[-1]
        codes = bytearray(map(self._known.get, shapes, repeat(_UNKNOWN)))
        unknown = codes.count(_UNKNOWN)
        self._mostly_loose = unknown > len(codes) // 2
        if not self._loose.asks(unknown, len(codes)):
            return shapes, [], codes
        loose = loose or self._loose_shapes(data)
        return (
            shapes,
            loose,
            bytearray(map(self._known.get, shapes, map(self._loose.get, loose, repeat(_UNKNOWN)))),
        )

    def _loose_shapes(self, data: bytes) -> list[bytes]:
        loose = self._loose.shapes(data)
        del loose[-1]
        places = self._loose.doubtful(data, loose)
        if places:
            ends = list(map(add, accumulate(map(len, data.split(b"\n"))), count()))
            for place in places:
                loose[bisect_left(ends, place)] = DOUBTFUL
        return loose

    def _near(self, line: bytes) -> bytes:
        """The loose shape of one line."""
        return self._loose.near(_last_state(line).replace(b'" 2', b'" T'))

    def _count(self, lines: list[bytes], shapes: list[bytes], loose: list[bytes], codes: bytearray) -> None:
        """Decide what is not decided by the shape of a line alone."""
        if HEALTHY in codes or _SIGN in codes:  # a flood may begin anew behind it
            codes[:] = codes.replace(b"f", b"e")
        for run in _STATEFUL.finditer(bytes(codes)):
            begin, end = run.span()
            kind = codes[begin]
            if kind in (HEALTHY, _SIGN):
                self._end_floods()
            elif kind == _EVENT_LINE and self._floods(
                bytes(codes[begin:end]), shapes[begin:end], loose[begin:end]
            ):
                codes[begin:end] = codes[begin:end].replace(b"e", b"f")
            else:
                for place in range(begin, end):
                    if codes[place] in _SETTLED:
                        continue
                    near = loose[place] if loose else DOUBTFUL
                    codes[place] = self._one(lines[place], shapes[place], near, codes[place])

    def _one(self, line: bytes, shape: bytes, loose: bytes, known: int) -> int:
        """What one line is. ``known``: of its shape."""
        if known == _UNKNOWN:
            near = self._near(line) if loose == DOUBTFUL else loose
            known = self._known.get(shape) or self._loose.get(near) or self._learned(line, shape, loose)
            loose = near
        if known in (_PLAIN, _NEEDLED, DULL):
            return self._alike(line, shape, loose, known)
        if known == _ANY:
            return self._repeated(line, shape)
        if known in (_EVENT_LINE, FLOODED):
            return self._counted(shape if self._loose.get(loose) is None else loose)
        if known in (HEALTHY, _SIGN):
            self._end_floods()
        return known

    def _floods(self, codes: bytes, shapes: Sequence[bytes], loose: Sequence[bytes]) -> bool:
        """Count many events at once if all of them are of a flood; return whether they are."""
        if codes.count(_EVENT_LINE) < FEW:
            return False
        keys = self._loose.keys(loose, shapes) if loose else shapes
        often = Counter(compress(keys, codes.translate(_EVENTS)))
        most = self._most_events()
        if any(self._events.get(shape, 0) < most for shape in often):
            return False
        for shape, more in often.items():
            self._events[shape] += more
            if self._known.get(shape) == _EVENT_LINE:
                self._known[shape] = FLOODED
            self._loose.change(shape, FLOODED)
        return True

    def _end_floods(self) -> None:
        """Count events anew behind a sign of health."""
        for shape in self._events:
            if self._known.get(shape) == FLOODED:
                self._known[shape] = _EVENT_LINE
            self._loose.change(shape, _EVENT_LINE)
        self._events.clear()

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
            self._end_floods()
        self._events[shape] = number
        return FLOODED if number > FLOOD or (number > OFTEN and number > self._most_events()) else READ

    def _most_events(self) -> int:
        return max(FLOOD // max(1, len(self._events)), min(OFTEN, FLOOD))

    def _alike(self, line: bytes, shape: bytes, loose: bytes, known: int) -> int:
        """What a line is of which, if there are many of its shape, each one more is REPEATED."""
        key, is_loose, before = shape, False, self._often.get(shape)
        if before is None or self._loose.get(shape) is not None:
            if shape in self._known:  # others of its loose shape may be known
                loose = self._near(line)
            is_loose = self._loose.get(loose) is not None
            key = loose if is_loose else shape
            before = self._often.get(key, 0)
        number = before + 1
        if number > (OFTEN if known == _NEEDLED else REPEATS):
            if is_loose and self._loose.get(loose) != REPEATED:
                self._loose.learn(loose, _last_state(line), REPEATED)
            if shape in self._known:
                self._known[shape] = REPEATED
            return REPEATED
        if number == 1 and len(self._often) >= MOST:
            self._often.clear()
        if len(key) <= LONGEST or is_loose:
            self._often[key] = number
        return DULL if known == DULL else READ

    def _repeated(self, line: bytes, shape: bytes) -> int:
        before = self._repeats.get(line, 0)
        if before >= REPEATS:
            if shape in self._known:
                self._settled[line] = _ANY ^ REPEATED
            return REPEATED
        if before == 0 and len(self._repeats) >= MOST:
            self._repeats.clear()
            self._settled.clear()
        if len(line) <= LONGEST:
            self._repeats[line] = before + 1
        return READ

    def _learned(self, line: bytes, shape: bytes, loose: bytes) -> int:
        is_long = len(shape) > LONGEST
        key = hash(shape)
        if is_long and (known := self._long.get(key)) is not None:
            return known
        line = _last_state(line)
        kind = self._kind(line, shape)
        if kind in _LOOSELY and loose != DOUBTFUL:
            self._loose.learn(loose, line, kind)
        if is_long:
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
        if self._without_digits.any_of(shape.decode("utf-8", "replace")):
            return _ANY
        if self._needles.any_of(whole):
            return _ANY if self._digits_tell(whole) or _LETTER.search(line) else _NEEDLED
        if line.endswith(b"}") and b'{"' in line:
            return self._kind_of_json(line, colourless(whole))
        return self._kind_of_text(line, shape)

    def _kind_of_json(self, line: bytes, text: str) -> int:
        """What a line is that may be JSON: as the line for which it stands."""
        before = split_prefixes(text).length
        lines = plain_lines(text[before:])
        if lines is None:
            return self._kind_of_text(line, line.translate(None, _DIGITS))
        if _NUMBERED.search(line) or b"HTTP/" in line or b"smg::" in line:  # digits may tell what it is
            return _ANY
        said = "\n".join(lines)
        if self._needles.any_of(said) or self._without_digits.any_of(said.translate(_NO_DIGITS)):
            return _ANY
        if len(lines) > 1:
            return _PLAIN
        if any(words.decode() in said for words in _ALWAYS) or progress_of(parse_head(said).text):
            return _SIGN
        raw = said.encode("utf-8", "replace")
        return self._kind_of_text(raw, raw.translate(None, _DIGITS))

    def _kind_of_text(self, line: bytes, shape: bytes) -> int:
        if _INFO.fullmatch(line + b"\n"):
            if _EXCEPTION.search(line):
                return _PLAIN
            if _OF_SOURCE.search(line):
                return BARE
            return SIGNED if any(words in shape for words in SIGNS) else INFO
        if _INFO_OF_RAY.fullmatch(line + b"\n"):
            return BARE
        if _LETTER.search(line):
            return _ANY
        if len(line) > LONGEST or _RECORD.search(line):
            return _PLAIN
        text = split_prefixes(colourless(last_state(line).decode("utf-8", "replace"))).text
        if level_of_text(text) not in (None, "info", "debug") or SHELL.match(text):
            return _PLAIN
        if not _WORDS.search(line):
            return BARE
        return DULL if text[:1].isspace() else _PLAIN


def _last_states(data: bytes, lines: int) -> bytes:
    """So many lines without what bars in them have overwritten."""
    place = data.find(b"\r")
    if data.count(b"\r") > lines // 8:
        return _OVERWRITTEN.sub(b"", data)
    parts, behind = [], 0
    while place >= 0:
        begin, end = data.rfind(b"\n", 0, place) + 1, data.index(b"\n", place)
        parts += [data[behind:begin], _last_state(data[begin:end])]
        behind, place = end, data.find(b"\r", end)
    return b"".join((*parts, data[behind:]))


def _last_state(line: bytes) -> bytes:
    """A line without what a bar has overwritten."""
    return _OVERWRITTEN.sub(b"", line) if b"\r" in line else line


def _remembered(shape: bytes) -> bytes | int:
    """A shape as it is remembered: a long one by its 64-bit hash."""
    return shape if len(shape) <= LONGEST else hash(shape)


def _remember(shapes: set[bytes | int], shape: bytes | int) -> None:
    if len(shapes) >= MOST:
        shapes.clear()
    shapes.add(shape)
