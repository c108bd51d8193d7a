"""Reads the bytes of a log as records, in memory bounded by what is open at one time. Pure."""

from __future__ import annotations

from liverl.logs.bars import behind_bar
from liverl.logs.continuation import (
    continues_exception,
    continues_message,
    continues_raylet,
    introduces_traceback,
    names_field,
)
from liverl.logs.heads import LineHead, heads_each_line, parse_head
from liverl.logs.json_lines import plain_lines
from liverl.logs.levels import EVENT, SHELL
from liverl.logs.moments import Resolver
from liverl.logs.prefix_chain import PrefixChain, split_prefixes
from liverl.logs.prefixes import colourless
from liverl.logs.progress import progress_of
from liverl.logs.ray_prefixes import repeated_in
from liverl.logs.record import MOST_LINES, Kind, Record
from liverl.logs.text import last_state
from liverl.logs.tracebacks import BEGINS, final_of, frameless, link_of, raised_in, ungrouped
from liverl.logs.wrappers import Wrappers
from liverl.model import Level
from liverl.util.late_pattern import late_pattern

LINE_BYTES = 1 << 15  # of a longer line only so many are kept
MOST_OPEN = 64  # writers with a record that may go on
STALE = 100  # lines of others after which a record is complete
_HEALTHY = late_pattern(
    r' HTTP/\d(?:\.\d)?" 2\d\d|Avg prompt throughput: |^Application startup complete\.'
    # SGLang's router: an answer, and its start
    r"| status_code=2\d\d latency=\d+\}: smg::response: |^smg::server: [^\n]{1,300}: Router ready \| workers: "
)


def _healthy(text: str) -> bool:
    return _HEALTHY.search(text) is not None or progress_of(text) > 0


# torch's checkpoints report what other ranks raised: "Traceback (most recent call last): (RANK 2)"
_RANKED = late_pattern(r"Traceback \(most recent call last\): \(RANK \d+\)")
# What Python's module for warnings prints, behind which a traceback is of something else
_WARNING = late_pattern(r"^\S{1,300}:\d+: (?:[A-Za-z_]\w*\.)*\w*Warning: ")
# Begins what Python prints of a program that is not valid: no "Traceback" stands before it, and no function in it
_INVALID_FILE = late_pattern(r' {2}File "[^"\n]{1,400}", line \d{1,7}')
_JAVA_MAIN = 'Exception in thread "main" '  # ends Java's process
_BLANK = LineHead("", None, None, "", "")
_TIMES = late_pattern(r"[\d:.,T/-]{8,40}(?: [\d:.,]{8,20})?")
_RAISES = late_pattern(
    r"(?:[A-Za-z_]\w*\.){0,12}[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Failed)(?::|$)"
)


class _Open:
    """A record that may go on."""

    __slots__ = (
        "at", "awaited", "between", "chained", "cut", "end", "ended", "frames", "head", "last", "level", "line", "more",
        "offset", "rank", "repeated", "text", "writer",
    )  # fmt: skip

    def __init__(
        self, chain: PrefixChain, head: LineHead, at: float | None, offset: int, end: int, line: int
    ) -> None:
        self.text, self.repeated = repeated_in(head.text)
        self.writer = " ".join(name for name in (chain.writer, head.process) if name)
        self.rank = chain.rank
        self.head = head.head
        self.level: Level | None = head.level
        self.at = at
        self.offset, self.end = offset, end
        self.more: list[str] = []
        self.cut = 0  # lines that were left out
        self.between = 0  # blank lines since the last other one
        self.last = self.text
        self.line = line  # number of its latest line in the log
        self.frames = (
            BEGINS in self.text
            or "Exception Group Traceback" in self.text
            or _INVALID_FILE.fullmatch(self.text) is not None
        )
        self.ended = self.chained = False
        self.awaited = True  # its further lines matter

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
        if BEGINS in plain or plain.startswith("Exception Group Traceback"):
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

    def _stamped_anew(self, head: LineHead) -> bool:
        """Whether a line goes on with a traceback that a logger writes line by line, each with its own time."""
        if _TIMES.sub("", head.head) != _TIMES.sub("", self.head):
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
        traced = any(BEGINS in line for line in (self.text, *more)) or (
            self.ended and any(line.lstrip(" ").startswith('File "') for line in (self.text, *more))
        )
        raised = raised_in((self.text, *more)) if traced else ()
        kind, level = self._kind(bool(raised)), self.level
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
        )

    def _kind(self, raised: bool) -> Kind:
        if self.text.startswith("Exception ignored "):
            return "ignored"
        if self.text.startswith("Exception in thread ") and not self.text.startswith(_JAVA_MAIN):
            return "thread"
        if raised:
            return "traceback"
        if SHELL.match(self.text):
            return "shell"
        return "healthy" if self.level in (None, "info") and _healthy(self.text) else "line"


class RecordReader:
    """Turns the bytes of one log into records, in the order of their first bytes. It may be fed in any pieces.

    A record is complete when its writer writes something else, or has written nothing for ``STALE`` lines.
    """

    def __init__(self, modified: float | None = None, offset: int = 0, zone: int | None = None) -> None:
        """``modified``: Unix time at which the log was last written, for stamps without a year or date; ``offset``:
        of the first byte that is fed; ``zone``: of stamps that state none, see ``Resolver``."""
        self._resolver = Resolver(modified, zone)
        self._offset = offset  # of the line that is being read
        self._line = bytearray()
        self._length = 0  # bytes of that line, with those that were left out
        self._open: dict[tuple[str, int | None], _Open] = {}
        self._done: list[_Open] = []  # complete, but begun after one that is open
        self._count = 0  # lines
        self._awaited = True
        self._above: _Open | None = None  # the record of the line above
        self._wrappers = Wrappers()

    @property
    def idle(self) -> bool:
        """Whether no record is open whose further lines matter."""
        return not any(waiting.awaited for waiting in self._open.values())

    def feed(self, data: bytes, *, awaited: bool = True) -> list[Record]:
        """Return the records that ``data`` completes. ``awaited``: the further lines of records that begin in it
        matter, too."""
        self._awaited = awaited
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._add(piece)
            self._length += 1
            self._take()
        self._add(rest)
        return self._release()

    def skip(self, length: int) -> None:
        """Pass over whole lines that belong to no record of interest."""
        self._offset += length
        self._count += 1
        waiting = self._open.get(("", None))
        if waiting is not None and not waiting.frames:
            self._close(("", None))
        self._above = None

    def cut(self, length: int, since: int) -> list[Record]:
        """Pass over whole lines in the middle of what is read, and return the records that end there. Those that have
        begun at byte ``since`` or later are dropped, as their ends are missing."""
        for key, waiting in list(self._open.items()):
            if waiting.offset >= since:
                del self._open[key]
            else:
                self._close(key)
        self.skip(length)
        return self._release()

    def end(self) -> list[Record]:
        """Return what is left when the log ends."""
        if self._length:
            self._take()
        for key in list(self._open):
            self._close(key)
        return self._release()

    def _add(self, piece: bytes) -> None:
        self._length += len(piece)
        room = LINE_BYTES - len(self._line)
        if room > 0:
            self._line += piece[:room]

    def _take(self) -> None:
        raw, start = bytes(self._line), self._offset
        self._offset += self._length
        self._line.clear()
        self._length = 0
        line = colourless(last_state(raw).decode("utf-8", "replace")).rstrip()
        self._count += 1
        for piece in _pieces(line):
            for part in _parts(piece):
                self._next(part, start)
        if self._count % 16 == 0:
            self._expire()

    def _next(self, line: str, start: int) -> None:
        chain, head = self._parsed(line)
        key = (chain.writer, chain.rank)
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
        if not chain.writer and above is not None and above.continued_bare(chain, head):
            above.add(head.text, self._offset, self._count)
            return
        opened = _Open(chain, head, self._at(chain, head), start, self._offset, self._count)
        opened.awaited = self._awaited
        self._above = opened
        if waiting is not None and waiting.frames and not opened.frames and not chain.writer:
            self._done.append(opened)  # another writer, without a prefix, inside of a traceback
            return
        self._close(key)
        self._open[key] = opened
        if len(self._open) > MOST_OPEN:
            self._close(min(self._open, key=lambda each: self._open[each].line))

    def _parsed(self, line: str) -> tuple[PrefixChain, LineHead]:
        """Split a line into its prefixes, its head and its text. Prefixes may also stand behind a head, or behind what
        a program that is not known puts before each line."""
        chain = split_prefixes(line)
        if not chain.text or chain.text.isspace():
            return chain, _BLANK
        head = parse_head(chain.text)
        if head.head and head.text[:1] in ("(", "["):
            chain, head = _behind(chain, head, head.text, head.head)
        if not self._wrappers.seen and BEGINS not in head.text:
            return chain, head
        rest = self._wrappers.stripped(head.text)
        return (chain, head) if rest is None else _behind(chain, head, rest)

    def _at(self, chain: PrefixChain, head: LineHead) -> float | None:
        moment = head.moment
        if chain.moment is not None and (moment is None or chain.moment.offset is not None):
            moment = chain.moment
        return None if moment is None else self._resolver.at(moment)

    def _expire(self) -> None:
        for key, waiting in list(self._open.items()):
            if self._count - waiting.line > STALE:
                self._close(key)

    def _close(self, key: tuple[str, int | None]) -> None:
        closed = self._open.pop(key, None)
        if closed is not None:
            self._done.append(closed)

    def _release(self) -> list[Record]:
        if not self._done:
            return []
        first = min((waiting.offset for waiting in self._open.values()), default=None)
        ready = [done for done in self._done if first is None or done.offset < first]
        if not ready:
            return []
        self._done = [done for done in self._done if first is not None and done.offset >= first]
        return [done.record() for done in sorted(ready, key=lambda done: done.offset)]


def _pieces(line: str) -> list[str]:
    """A progress bar and what stands behind it, each with the prefixes of the line; any other line as it is."""
    place = behind_bar(line)
    return [line[:place], f"{line[: split_prefixes(line).length]}{line[place:]}"] if place else [line]


def _parts(line: str) -> list[str]:
    """The lines that a line in JSON stands for, each with the prefixes before it; any other line as it is."""
    begin = line.find('{"')
    if begin < 0 or not line.endswith("}"):
        return [line]
    before = split_prefixes(line).length
    lines = plain_lines(line[before:]) if begin == before else None
    return [line] if lines is None else [f"{line[:before]}{one.rstrip()}" for one in lines]


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
