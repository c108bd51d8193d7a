"""Reads the bytes of a log as records, in memory bounded by what is open at one time. Pure."""

from __future__ import annotations

import re
from collections import deque
from functools import cache, lru_cache

from liverl.logs.above import Above
from liverl.logs.bars import behind_bar
from liverl.logs.continuation import (
    continues_exception,
    continues_message,
    continues_raylet,
    introduces_traceback,
    names_field,
)
from liverl.logs.heads import LineHead, heads_each_line, parse_head
from liverl.logs.json_lines import json_parts
from liverl.logs.levels import EVENT, SHELL
from liverl.logs.line_moment import moment_of_line
from liverl.logs.moments import Resolver
from liverl.logs.prefix_chain import PrefixChain, split_prefixes
from liverl.logs.prefixes import colourless
from liverl.logs.progress import progress_of
from liverl.logs.ray_prefixes import repeated_in
from liverl.logs.record import MOST_LINES, Kind, Record
from liverl.logs.text import last_state
from liverl.logs.tracebacks import (
    BEGINS,
    DRAWN,
    begins_in,
    final_of,
    frameless,
    link_of,
    raised_in,
    undrawn,
    ungrouped,
)
from liverl.logs.wrappers import Wrappers
from liverl.model import Level
from liverl.util.late_pattern import late_pattern

LINE_BYTES = 1 << 15  # of a longer line only so many are kept
MOST_OPEN = 64  # writers with a record that may go on
STALE = 100  # lines of others after which a record is complete
MOST_KNOWN = 1 << 9  # lines of which it is remembered how they are read,
LONGEST_KNOWN = 4096  # and bytes of such a line
_HEALTHY = late_pattern(
    r' HTTP/\d(?:\.\d)?" 2\d\d|Avg prompt throughput: |^Application startup complete\.'
    # SGLang's router: an answer, and its start
    r"| status_code=2\d\d latency=\d+\}: smg::response: |^smg::server: [^\n]{1,300}: Router ready \| workers: "
)


# The writer and the rank of a line that is quick to tell, its head, and whether its text is indented
_Plain = tuple[tuple[str, int | None], bytes | None, bool]
_Unread = tuple[bytes, int, int, int]  # a line, its first byte and the first behind it, and its number


def _healthy(text: str) -> bool:
    return (_healthy_line if len(text) <= LONGEST_KNOWN else _healthy_line.__wrapped__)(text)


@lru_cache(maxsize=MOST_KNOWN)
def _healthy_line(text: str) -> bool:
    may = " HTTP/" in text or "Avg prompt" in text or "smg::" in text or text.startswith("Application")
    return (may and _HEALTHY.search(text) is not None) or progress_of(text) > 0


# torch's checkpoints report what other ranks raised: "Traceback (most recent call last): (RANK 2)"
_RANKED = late_pattern(r"Traceback \(most recent call last\): \(RANK \d+\)")
# What Python's module for warnings prints, behind which a traceback is of something else
_WARNING = late_pattern(r"^\S{1,300}:\d+: (?:[A-Za-z_]\w*\.)*\w*Warning: ")
# Begins what Python prints of a program that is not valid, without a function in it; or the rest of a traceback whose
# first line is lost
_FIRST_FRAME = late_pattern(r' {2}File "[^"\n]{1,400}", line \d{1,7}(?:, in [^\n]{1,200})?')
_JAVA_MAIN = 'Exception in thread "main" '  # ends Java's process
_JSON = "\0json"  # behind the writer of lines in JSON: another process than the one whose bare lines stand beside them
# The name of a logger behind its level, before the prefix of a process whose lines it keeps: "runner: (Worker pid=7) "
_LOGGER = late_pattern(r"[A-Za-z_][\w.-]{0,60}: (?=[(\[])")
_BLANK = LineHead("", None, None, "", "")
_TIMES = late_pattern(r"[\d:.,T/-]{8,40}(?: [\d:.,]{8,20})?")
_RAISES = late_pattern(
    r"(?:[A-Za-z_]\w*\.){0,12}[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Failed)(?::|$)"
    r"|(?:[a-z_]\w*\.){1,12}[A-Z]\w*: "
)


class _Line:
    """A line, with what it says of a record that it begins: that is found out when it begins one."""

    __slots__ = ("_kind", "_opening", "chain", "head", "json", "repeated")

    def __init__(self, chain: PrefixChain, head: LineHead, repeated: int, *, json: bool) -> None:
        self.chain, self.head, self.repeated, self.json = chain, head, repeated, json
        self._opening: tuple[str, int, str, bool] | None = None
        self._kind: Kind | None = None

    @property
    def opening(self) -> tuple[str, int, str, bool]:
        """Text, number of repetitions and writer of a record that begins here, and whether frames follow it."""
        if self._opening is None:
            text = self.head.text
            frames = (
                begins_in(text)
                or "Exception Group Traceback" in text
                or _FIRST_FRAME.fullmatch(text) is not None
            )
            writer = " ".join(name for name in (self.chain.writer, self.head.process) if name)
            self._opening = text, self.repeated, writer, frames
        return self._opening

    @property
    def kind(self) -> Kind:
        """Of a record of this line alone, without an exception."""
        if self._kind is None:
            self._kind = _kind_of(self.opening[0], self.head.level, raised=False)
        return self._kind


class _Open:
    """A record that may go on."""

    __slots__ = (
        "at", "awaited", "begin", "between", "chained", "cut", "end", "ended", "frames", "head", "last", "level",
        "line", "more", "offset", "rank", "repeated", "text", "torn", "writer",
    )  # fmt: skip

    def __init__(self, begin: _Line, at: float | None, offset: int, end: int, line: int) -> None:
        self.begin = begin
        self.text, self.repeated, self.writer, self.frames = begin.opening
        self.rank = begin.chain.rank
        self.head = begin.head.head
        self.level: Level | None = begin.head.level
        self.at = at
        self.offset, self.end = offset, end
        self.more: list[str] = []
        self.cut = 0  # lines that were left out
        self.between = 0  # blank lines since the last other one
        self.last = self.text
        self.line = line  # number of its latest line in the log
        self.ended = self.chained = False
        self.awaited = True  # its further lines matter
        self.torn = False

    def add(self, text: str, end: int, line: int) -> None:
        self.more.extend([""] * self.between)
        self.between = 0
        self.more.append(text)
        self.last, self.end, self.line = text, end, line
        if len(self.more) >= 2 * MOST_LINES:
            half = MOST_LINES // 2
            self.cut += len(self.more) - MOST_LINES
            self.more = [*self.more[:half], *self.more[-half:]]
        plain = ungrouped(text)
        if begins_in(plain) or plain.startswith("Exception Group Traceback"):
            self.frames, self.ended, self.chained = True, False, False
        elif link_of(plain):
            self.chained, self.frames, self.ended = True, False, False
        elif plain.lstrip(" ").startswith('File "') and self.level != "info":
            self.frames, self.ended = True, False
        elif (self.frames and plain[:1].strip() and final_of(plain) is not None) or (
            self.chained and frameless(plain)
        ):
            self.frames, self.ended, self.chained = False, True, False

    def takes(self, head: LineHead) -> bool:
        """Whether a line of the same writer, not blank, goes on with this record."""
        text = head.text
        if head.head:
            return self._same_head(text) if head.head == self.head else self._stamped_anew(head)
        if text[0].isspace() or (text[:2] in ("| ", "+-") and self.frames):
            return not (head.level == "error" and EVENT.match(text))
        if link_of(text):
            return self.ended
        if text.startswith(BEGINS):
            if self.ended and _RANKED.match(text):
                return True
            return self.chained or (not self.ended and not self.frames and self._introduces())
        if self.frames:
            return final_of(text) is not None and not SHELL.match(text)
        if self.chained:
            return frameless(text)
        if _healthy(text) or SHELL.match(text):
            return False
        if self.ended:
            return continues_exception(text, self.last)
        return self.level in ("error", "warning") and continues_message(text, self.text, self.last)

    def may_take(self, head: bytes) -> bool:
        """Whether a line with this head may go on with this record."""
        return self.frames or self.chained or self.ended or self.head.encode("utf-8", "replace") == head

    def _stamped_anew(self, head: LineHead) -> bool:
        """Whether a line goes on with a traceback that a logger writes line by line, each with its own time."""
        if _without_times(head.head) != _without_times(self.head):
            return False
        if self.ended:
            return bool(link_of(head.text))
        if self.chained and head.text.startswith(BEGINS):
            return True
        return (self.frames or self.chained) and (
            head.text[0].isspace() or (self.frames and _RAISES.match(head.text) is not None)
        )

    def _introduces(self) -> bool:
        if self.level == "info" or heads_each_line(self.head) or _WARNING.search(self.text):
            return False
        return (bool(self.head) and self.level == "error") or introduces_traceback(self.text)

    def _same_head(self, text: str) -> bool:
        if not text.strip() or text[0].isspace() or self.frames or self.chained:
            return True
        if text == self.text:
            return False
        if text.startswith(BEGINS):
            return not self.ended
        return bool(link_of(text)) or (self.ended and self.level != "info") or names_field(text, self.last)

    def continued_bare(self, chain: PrefixChain, head: LineHead) -> bool:
        """Whether a line without a prefix, right below, goes on with what the raylet or C++ of a rank wrote."""
        if self.writer.startswith("raylet") or "pid=" in self.writer:
            return continues_raylet(head.text)
        if self.rank is None or chain.rank is not None or head.head or self.level != "error" or not self.head:
            return False
        return continues_exception(head.text, self.last)

    def record(self) -> Record:
        more = tuple(self.more)
        if len(more) > MOST_LINES or self.cut:
            half = MOST_LINES // 2
            left_out = self.cut + max(0, len(more) - MOST_LINES)
            more = (*more[:half], f"... {left_out} lines left out ...", *more[-half:])
        traced = begins_in(self.text)
        if more and not traced:
            traced = any(begins_in(line) for line in more) or (
                self.ended and any(line.lstrip(" ").startswith('File "') for line in (self.text, *more))
            )
        raised = raised_in((self.text, *more)) if traced else ()
        level = self.level
        kind = _kind_of(self.text, level, raised=True) if raised else self.begin.kind
        if kind in ("shell", "thread") or (kind == "traceback" and level in (None, "info", "debug")):
            level = "error"
        elif kind == "ignored":
            level = "warning"
        return Record(
            offset=self.offset,
            end=self.end,
            text=self.text,
            kind=kind,
            writer=self.writer,
            rank=self.rank,
            at=self.at,
            level=level,
            more=more,
            raised=raised,
            repeated=self.repeated,
            json=self.begin.json,
            torn=self.torn,
        )


@lru_cache(maxsize=MOST_KNOWN)
def _without_times(head: str) -> str:
    return _TIMES.sub("", head)


def _kind_of(text: str, level: Level | None, *, raised: bool) -> Kind:
    if text.startswith("Exception ignored "):
        return "ignored"
    if text.startswith("Exception in thread ") and not text.startswith(_JAVA_MAIN):
        return "thread"
    if raised:
        return "traceback"
    if SHELL.match(text):
        return "shell"
    return "healthy" if level in (None, "info") and _healthy(text) else "line"


# A line of which it is quick to tell who wrote it, and whose text has no head: the processes of Ray and vLLM, and the
# text. What else may be read as a prefix or a head begins otherwise.
@cache
def _plain_line() -> re.Pattern[bytes]:
    return re.compile(
        rb"((?:(?:\x1b\[[\d;]{0,12}m)*\((?:[^()\n]{1,100} )?pid=\d{1,10}(?:, *ip=[^(),\s]+)?\)"
        rb"(?:\x1b\[[\d;]{0,12}m)* ?)*+)(INFO \d\d-\d\d \d\d:\d\d:\d\d (?:\[?[\w./<>-]{1,120}:\d+\](?: |$))?+)?"
        rb"(?![\[\d(#+\x1b]|[A-Z]{4}|[DIWEFC]\d|[A-Z][a-z]{2} |[\w.-]{1,120}:\d|slurm|srun|\s{0,8}\d{1,5}: )"
        rb"[^|\r\x1b]*(?:\x1b\[32m \[repeated \d{1,9}x across cluster\]\x1b\[0m)?"
    )


class _Passed:
    """Lines of one writer that are of no interest by themselves, and are read only if one that is goes on with them."""

    __slots__ = ("first", "head", "key", "last", "line")

    def __init__(self, key: tuple[str, int | None], head: bytes | None) -> None:
        self.key = key
        self.head = head  # of vLLM's lines
        self.first: list[_Unread] = []
        self.last: deque[_Unread] = deque(maxlen=MOST_LINES)
        self.line = 0  # number of the latest one in the log

    def continued_bare(self, _: PrefixChain, head: LineHead) -> bool:
        writer = self.key[0]
        return (writer.startswith("raylet") or "pid=" in writer) and continues_raylet(head.text)

    def add(self, *_: object) -> None:
        """Let the line above go on with what is passed over."""


class RecordReader:
    """Turns the bytes of one log into records, in the order of their first bytes. It may be fed in any pieces.

    A record is complete when its writer writes something else, or has written nothing for ``STALE`` lines.
    """

    def __init__(
        self,
        modified: float | None = None,
        offset: int = 0,
        zone: int | None = None,
        other: RecordReader | None = None,
    ) -> None:
        """``modified``: Unix time at which the log was last written, for stamps without a year or date; ``offset``:
        of the first byte that is fed; ``zone``: of stamps that state none, see ``Resolver``; ``other``: a reader of the
        same log, whose stamps are near."""
        self._resolver: Resolver = Resolver(modified, zone) if other is None else other._resolver
        self._skipped = Above()
        self._offset = offset  # of the line that is being read
        self._line = bytearray()
        self._length = 0  # bytes of that line, with those that were left out
        self._open: dict[tuple[str, int | None], _Open] = {}
        self._done: list[_Open] = []  # complete, but begun after one that is open
        self._may_release = False  # one has become complete since those were looked through
        self._awaiting = 0  # records that are open and whose further lines matter
        self._count = 0  # lines
        self._awaited = True
        self._above: _Open | _Passed | None = None  # the record of the line above
        self._passed: dict[tuple[str, int | None], _Passed] = {}
        self._writers: dict[bytes, tuple[str, int | None]] = {}  # by what stands before their lines
        self._wrappers = Wrappers()
        # Of lines that may come again to the byte, while there are no wrappers
        self._plain: dict[bytes, _Plain | None] = {}
        self._lines: dict[bytes, _Line] = {}

    @property
    def idle(self) -> bool:
        """Whether no record is open whose further lines matter."""
        return not self._awaiting

    def feed(self, data: bytes, *, awaited: bool = True, dull: bool = False) -> list[Record]:
        """Return the records that ``data`` completes. ``awaited``: the further lines of records that begin in it
        matter, too; ``dull``: only if they go on with none of a record that is not awaited."""
        self._awaited = awaited
        *whole, rest = data.split(b"\n")
        may_pass = dull or not awaited
        for piece in whole:
            if not (may_pass and not self._length and self._passes(piece, dull)):
                self._take_line(piece)
        self._add(rest)
        return self._release()

    def feed_until_idle(self, data: bytes, begin: int, end: int) -> tuple[int, list[Record]]:
        """Read whole lines, from byte ``begin`` to ``end`` of ``data``, that matter only as further lines of a record,
        until no record is open that they may go on with. Return where the next line begins, and the records that those
        lines complete."""
        self._awaited = False
        while begin < end and self._awaiting:
            cut = data.index(b"\n", begin, end)
            line = data[begin:cut]
            if self._length or not self._passes(line, dull=False):
                self._take_line(line)
            begin = cut + 1
        return begin, self._release()

    def skip(self, data: bytes, begin: int, end: int, runs: int = 1) -> None:
        """Pass over whole lines, from byte ``begin`` to ``end`` of ``data``, that belong to no record of interest.
        ``runs``: as how many lines they count."""
        self._offset += end - begin
        if begin < end:
            self._skipped.passed(data, end)
            self._resolver.above = self._skipped.dated
        self._count += runs
        self._passed.pop(("", None), None)
        waiting = self._open.get(("", None))
        if waiting is not None and not waiting.frames:
            self._close(("", None))
        elif waiting is not None:
            waiting.torn = True
        self._above = None

    def cut(self, data: bytes, since: int) -> list[Record]:
        """Pass over the whole lines of ``data`` in the middle of what is read, and return the records that end there.
        Those that have begun at byte ``since`` or later are dropped, as their ends are missing."""
        self._passed.clear()
        for key, waiting in list(self._open.items()):
            if waiting.offset >= since:
                del self._open[key]
                self._awaiting -= waiting.awaited
                self._may_release = True
            else:
                self._close(key)
        self.skip(data, 0, len(data))
        return self._release()

    def end(self) -> list[Record]:
        """Return what is left when the log ends."""
        if self._length:
            self._take()
        for passed in list(self._passed.values()):
            self._read_passed(passed)
        for key in list(self._open):
            self._close(key)
        return self._release()

    def _passes(self, raw: bytes, dull: bool) -> bool:
        """Pass over a line without anything of interest, if it is certain that no record of interest goes on with it;
        return whether it was."""
        if self._wrappers.seen:
            return False
        try:
            plain = self._plain[raw]
        except KeyError:
            plain = self._remember_plain(raw)
        if plain is None:
            return False
        key, head, goes_on = plain
        passed, waiting = self._passed.get(key), self._open.get(key)
        if waiting is not None and waiting.awaited and (goes_on or head is None or waiting.may_take(head)):
            return False
        if not key[0] and isinstance(self._above, _Open):
            return False
        if dull and (not goes_on or (passed is None and waiting is None)):
            return False
        if not goes_on and head is not None:
            goes_on = (
                waiting is not None and waiting.head.startswith("INFO ") and waiting.may_take(head)
                if passed is None
                else passed.head == head
            )
        start = self._offset
        self._offset += len(raw) + 1
        self._count += 1
        if not goes_on:
            self._close(key)
        elif waiting is not None:
            waiting.line = self._count
        if passed is None or not goes_on:
            self._passed.pop(key, None)
            if len(self._passed) >= MOST_OPEN:
                del self._passed[next(iter(self._passed))]
            passed = self._passed[key] = _Passed(key, head)
        lines = passed.first if len(passed.first) < MOST_LINES else passed.last
        lines.append((raw, start, self._offset, self._count))
        passed.line = self._count
        self._above = passed
        if self._count % 16 == 0:
            self._expire()
        return True

    def _remember_plain(self, raw: bytes) -> _Plain | None:
        if len(self._plain) >= MOST_KNOWN:
            self._plain.clear()
        plain = self._plain_of(raw)
        if len(raw) <= LONGEST_KNOWN:
            self._plain[raw] = plain
        return plain

    def _plain_of(self, raw: bytes) -> _Plain | None:
        match = _plain_line().fullmatch(raw)
        if match is None:
            return None
        if b"/s" in raw or b"s/" in raw or (b'{"' in raw and raw.rstrip().endswith(b"}")):
            return None  # it may have a progress bar, or be JSON
        before = match[1]
        key = self._writers.get(before)
        if key is None:
            chain = split_prefixes(f"{colourless(before.decode('utf-8', 'replace'))}x")
            if chain.text != "x":
                return None
            if len(self._writers) >= 256:
                self._writers.clear()
            key = self._writers[before] = chain.writer, chain.rank
        end = match.end(2) if match[2] else match.end(1)
        return key, match[2], len(raw) == end or raw[end] in b" \t\v\f"

    def _after_passed(self, key: tuple[str, int | None], text: str) -> None:
        """Read what was passed over if ``text``, the next line of its writer, may go on with it, else forget it."""
        waiting = self._open.get(key)
        goes_on = not text.strip() or text[0].isspace() or text.startswith(("INFO ", BEGINS))
        if goes_on or (waiting is not None and (waiting.head or waiting.frames)):
            self._read_passed(self._passed[key])
        else:
            del self._passed[key]

    def _read_passed(self, passed: _Passed) -> None:
        """Read lines that were passed over: something goes on with them, or the log ends with them."""
        self._passed.pop(passed.key, None)
        here = self._offset, self._count, self._awaited, self._above
        self._awaited, self._above = False, None
        for raw, start, self._offset, self._count in (*passed.first, *passed.last):
            self._line_of(raw, start)
        self._offset, self._count, self._awaited, self._above = here

    def _add(self, piece: bytes) -> None:
        self._length += len(piece)
        room = LINE_BYTES - len(self._line)
        if room > 0:
            self._line += piece[:room]

    def _take_line(self, piece: bytes) -> None:
        """Read the end of a line: nearly always the whole of it."""
        if not self._length and len(piece) <= LINE_BYTES:
            start = self._offset
            self._offset += len(piece) + 1
            self._count += 1
            self._line_of(piece, start)
            if self._count % 16 == 0:
                self._expire()
            return
        self._add(piece)
        self._length += 1
        self._take()

    def _take(self) -> None:
        raw, start = bytes(self._line), self._offset
        self._offset += self._length
        self._line.clear()
        self._length = 0
        self._count += 1
        self._line_of(raw, start)
        if self._count % 16 == 0:
            self._expire()

    def _line_of(self, raw: bytes, start: int) -> None:
        if not self._wrappers.seen and (known := self._lines.get(raw)) is not None:
            self._next(known, start)
            return
        line, repeated = repeated_in(
            colourless(last_state(raw.lstrip(b"\0")).decode("utf-8", "replace")).rstrip()
        )
        parts = [(part, part is not piece) for piece in _pieces(line) for part in json_parts(piece)]
        for part, json in parts:
            parsed = _Line(*self._parsed(part), repeated, json=json)
            if len(parts) == 1 and len(raw) <= LONGEST_KNOWN and not self._wrappers.seen:
                if len(self._lines) >= MOST_KNOWN:
                    self._lines.clear()
                self._lines[raw] = parsed
            self._next(parsed, start)

    def _next(self, line: _Line, start: int) -> None:
        chain, head = line.chain, line.head
        key = (f"{chain.writer}{_JSON}" if line.json else chain.writer, chain.rank)
        if key in self._passed:
            self._after_passed(key, chain.text)
        waiting = self._open.get(key)
        if not chain.text.strip():
            if waiting is not None:
                waiting.between += 1
            return
        if waiting is not None and not (head.text.strip() or head.head == waiting.head):
            waiting.between += 1
            return
        if not head.text:  # a head without a message: a blank line of a logged record
            head = head._replace(text=" ") if waiting is not None else head
        if waiting is not None and waiting.takes(head):
            if head.text.strip():
                waiting.add(head.text, self._offset, self._count)
            else:
                waiting.between += 1
            self._above = waiting
            return
        above = self._above
        if not key[0] and above is not None and above.continued_bare(chain, head):
            above.add(head.text, self._offset, self._count)
            return
        if head is not line.head:
            line = _Line(chain, head, line.repeated, json=line.json)
        opened = _Open(line, self._at(chain, head), start, self._offset, self._count)
        opened.awaited = self._awaited
        self._above = opened
        if waiting is not None and waiting.frames and not opened.frames and not key[0]:
            waiting.torn = True
            self._may_release = True
            self._done.append(opened)  # another writer, without a prefix, inside of a traceback
            return
        self._close(key)
        self._open[key] = opened
        self._awaiting += opened.awaited
        if len(self._open) > MOST_OPEN:
            self._close(min(self._open, key=lambda each: self._open[each].line))

    def _parsed(self, line: str) -> tuple[PrefixChain, LineHead]:
        """Split a line into its prefixes, its head and its text. Prefixes may also stand behind a head, or behind what
        a program that is not known puts before each line."""
        chain = split_prefixes(line)
        if not chain.text or chain.text.isspace():
            return chain, _BLANK
        if chain.text[0] in DRAWN:
            chain = chain._replace(text=undrawn(chain.text))
        head = parse_head(chain.text)
        if head.head and head.text[:1] in ("(", "["):
            chain, head = _behind(chain, head, head.text, head.head)
        elif head.head and (logger := _LOGGER.match(head.text)) is not None:
            chain, head = _behind(chain, head, head.text[logger.end() :], head.head)
        if not self._wrappers.seen and BEGINS not in head.text:
            return chain, head
        rest = self._wrappers.stripped(head.text)
        return (chain, head) if rest is None else _behind(chain, head, rest)

    def _at(self, chain: PrefixChain, head: LineHead) -> float | None:
        moment = moment_of_line(chain, head)
        return None if moment is None else self._resolver.at(moment)

    def _expire(self) -> None:
        for key, waiting in list(self._open.items()):
            if self._count - waiting.line > STALE:
                self._close(key)
        for key, passed in list(self._passed.items()):
            if self._count - passed.line > STALE:
                del self._passed[key]

    def _close(self, key: tuple[str, int | None]) -> None:
        closed = self._open.pop(key, None)
        if closed is not None:
            self._awaiting -= closed.awaited
            self._done.append(closed)
            self._may_release = True

    def _release(self) -> list[Record]:
        if not self._may_release:
            return []
        self._may_release = False
        ready, later = self._done, []
        if self._open:
            first = min([waiting.offset for waiting in self._open.values()])
            ready = [done for done in self._done if done.offset < first]
            if not ready:
                return []
            if len(ready) < len(self._done):
                later = [done for done in self._done if done.offset >= first]
        self._done = later
        return [done.record() for done in sorted(ready, key=_offset_of)]


def _offset_of(done: _Open) -> int:
    return done.offset


def _pieces(line: str) -> list[str]:
    """A progress bar and what stands behind it, each with the prefixes of the line; any other line as it is."""
    place = behind_bar(line)
    return [line[:place], f"{line[: split_prefixes(line).length]}{line[place:]}"] if place else [line]


def _behind(chain: PrefixChain, head: LineHead, rest: str, default: str = "") -> tuple[PrefixChain, LineHead]:
    """The prefixes and the head of a line of which only ``rest`` is to be read; ``default``: its head if ``rest`` has
    none."""
    inner = split_prefixes(rest)
    within = parse_head(inner.text)
    if default:
        if not inner.length:
            return chain, head
        if not within.head:
            within = within._replace(head=default, level=within.level or head.level)
    writer = " ".join(name for name in (chain.writer, inner.writer) if name)
    rank = chain.rank if inner.rank is None else inner.rank
    moment = within.moment or head.moment
    return (
        PrefixChain(writer, rank, chain.moment or inner.moment, chain.length, inner.text),
        within._replace(moment=moment, process=within.process or head.process),
    )
