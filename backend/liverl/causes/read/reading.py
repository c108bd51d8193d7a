"""Reads a log for what may explain an end: files of any size, in bounded memory."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import BinaryIO

from msgspec.structs import replace

from liverl.causes.finding import LogRecords
from liverl.causes.match import Matcher, whole
from liverl.causes.read.keeping import Kept, Passed
from liverl.causes.read.last_words import TAIL, last_tracebacks
from liverl.causes.read.shapes import BARE, DULL, FLOODED, INFO, READ, REPEATED, SIGNED, Lines, Shapes
from liverl.logs.progress import SURVIVED, progress_of
from liverl.logs.record import Record
from liverl.logs.records import RecordReader
from liverl.logs.tracebacks import BEGINS
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import open_binary

BLOCK = 1 << 20  # bytes read at a time
MOST_BEFORE = 500  # records with a needle from before the last healthy signs
MOST_AFTER = 2000  # other records
SAMPLE = 1 << 16  # bytes that tell a log from binary data
REPEATED_BYTES = 1 << 17  # bytes of the beginning and of the end of a run of repeated lines,
LATER_BEGIN, LATER_END = 1 << 14, 1 << 16  # and of those behind a long one, up to the next sign of health
MOST_BETWEEN = 10  # bare lines of a traceback between one in JSON and one that is read
MOST_SIGNS = 8192  # healthy signs whose places are remembered
_ZEROS = late_pattern(rb"\0{16,}")
_TEXT = bytes([*b"\t\n\r\f\b\a\x1b", *range(0x20, 0x7F), *range(0x80, 0x100)])

# An exception with its message, or the word of a level, within a line of another level or of none
NAMES_ERROR = late_pattern(
    r"(?:^|(?<!status:)[\s(\[|])(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): \S"
    r"|(?:^|[\s(\[|])(?:ERROR|FATAL|CRITICAL)\]?: \S"
)
_ANSWER = b'" 2'
_POST = '"POST /'
_ROUTED_POST = "http_request{method=POST "  # of SGLang's router
_THROUGHPUT = b"Avg prompt throughput"
# Runs of lines by the letters of what they are (``shapes``). Healthy lines and those of level info often take turns:
# they are passed over as one run, but for runs of the latter with words that are counted.
_RUNS = late_pattern(rb"R[Rbimf]*+|(?P<healthy>(?:i++(?!m))?h++(?:i++(?!m)|h++)*+)|[im]++|b++|f++|d++|x++")
_OF_REPEATED = late_pattern(rb"[Rbimf]*+")
_ALIKE = late_pattern(rb"R++|b++|[im]++|f++")
_PASSED = bytes([BARE, INFO, SIGNED])
_BEFORE_READ = late_pattern(rb"[bim](?=[xd])")
_BARE_OR_NOT = late_pattern(rb"b++|[Rimf]++")


class NotTextError(OSError):
    """A file that is no log: it holds binary data."""


def read_log(
    path: str | os.PathLike[str],
    shown: str,
    start: int = 0,
    zone: int | None = None,
    hear: Callable[[bytes, int], None] | None = None,
    told: Callable[[int], None] = lambda _: None,
    *,
    inside: str | os.PathLike[str] | None = None,
    matcher: Matcher | None = None,
) -> LogRecords:
    """Return the records of a log that may explain an end: warnings and worse, tracebacks, and those in which a needle
    of the catalogue stands. Of what its process survived only records with a needle are kept.

    ``shown``: the log's path as shown; ``start``: the byte from which it is read; ``zone``: of stamps that state none,
    seconds east of UTC, None for that of this host; ``hear``: is given each block of lines, too, with its place in the
    log; ``told``: gets the bytes that were read so far, after each block; ``inside``: see ``open_regular``;
    ``matcher``: of another catalogue than ours.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        NotRegularFileError: it is a FIFO, a directory, a socket or a device.
        NotTextError: it holds binary data.
        OSError: it cannot be read.
    """
    with open_binary(path, inside=inside) as file:
        modified = os.fstat(file.fileno()).st_mtime
        file.seek(start)
        reading = _Reading(start, modified, zone, matcher)
        at = start
        for block in _lines(file):
            if reading.offset == start and _is_binary(block):
                raise NotTextError(22, "binary data, not a log", os.fspath(path))
            if hear is not None:
                hear(block, at)
            at += len(block)
            reading.block(block)
            told(reading.offset - start)
        found = reading.result(shown, modified)
        return replace(found, last_tracebacks=tuple(_last_tracebacks(file, found, max(start, at - TAIL))))


def _last_tracebacks(file: BinaryIO, log: LogRecords, since: int) -> Iterable[int]:
    """See ``last_tracebacks``. ``since``: the byte from which the end of the log is read again, from the first
    traceback in it on."""
    begin = next((r.offset for r in log.records if r.kind == "traceback" and r.offset >= since), None)
    if begin is None:
        return
    file.seek(begin)
    reader = RecordReader(log.modified, begin)
    tail = [*reader.feed(file.read(2 * TAIL)), *reader.end()]
    yield from last_tracebacks(log.records, tail)


def _lines(file: BinaryIO) -> Iterable[bytes]:
    """Yield the file in blocks that end with a line, except where a line is longer than a block and at the end."""
    rest = b""
    while chunk := file.read(BLOCK):
        cut = chunk.rfind(b"\n") + 1
        if not cut and len(rest) + len(chunk) < 2 * BLOCK:
            rest += chunk
            continue
        yield rest + (chunk[:cut] or chunk)
        rest = chunk[cut:] if cut else b""
    if rest:
        yield rest


class _Reading:
    def __init__(
        self, start: int, modified: float, zone: int | None = None, matcher: Matcher | None = None
    ) -> None:
        self.offset = start
        self._modified = modified
        self._zone = zone
        self._reader = RecordReader(modified, start, zone)
        matcher = matcher or whole()
        self._shapes = Shapes(matcher.needles, [row.needle for row in matcher.rows], matcher.digits_tell)
        self._alive = 0  # healthy signs so far
        self._signs: list[tuple[int, int]] = []  # offset of a sign, how many there are up to it
        self._signs_gone = 0  # how many there were before those
        self._kept = Kept(MOST_AFTER, self._has_needle)
        self._before = Kept(MOST_BEFORE, self._has_needle)
        self._passed = Passed()
        self._named: Record | None = None  # the last line that names an error
        # The last one, or its line and where that begins
        self._healthy: Record | tuple[int, bytes] | None = None
        self._step: Record | None = None  # the last metrics of a step
        self._served = -1  # offset of the last POST that was answered with 2xx
        self._last: Record | None = None
        # The last line that was passed over, and where it begins
        self._skipped: tuple[int, bytes] | None = None
        self._flooded = 0  # lines and tracebacks of floods since the last healthy sign
        self._inside = False  # of a line that is longer than a block
        self._repeats_most = (
            REPEATED_BYTES,
            REPEATED_BYTES,
        )  # bytes of the beginning and of the end that are read
        self._repeats_read = 0  # bytes of the repeated lines that are being read: of their beginning
        # The rest of them, as far as it may be their end, with what they are and where each ends; and its bytes
        self._repeats_held: deque[tuple[bytes, bytes, list[int]]] = deque()
        self._repeats_size = 0
        self._headless = range(0)  # where that end begins: the beginnings of its first records are missing

    def block(self, data: bytes) -> None:
        """Read further whole lines."""
        place = 0
        if self._inside:
            place = data.find(b"\n") + 1 or len(data)
            self._feed(data[:place])
        self._lines(data, place)
        self._inside = not data.endswith(b"\n")

    def _lines(self, data: bytes, begin: int) -> None:
        """Feed to the reader the lines that may matter, and those that may go on with one; pass over the others."""
        if begin:
            data = data[begin:]
        codes, ends = lines = _with_heads(data, *self._shapes.of(data))
        at = _behind(_OF_REPEATED, codes, 0, len(codes)) if self._repeats_read else 0
        if at:
            self._repeat(data, lines, 0, at)
        for run in _RUNS.finditer(codes, at):
            first, last = run.span()
            if codes[first] == REPEATED:
                self._repeat(data, lines, first, last)
                continue
            self._end_repeats()
            begin, end = ends[first - 1] if first else 0, ends[last - 1]
            if run["healthy"]:
                self._pass(data, begin, end, lines, first, last)
            else:
                self._run(data, begin, end, codes[first])

    def _run(self, data: bytes, begin: int, end: int, code: int) -> None:
        if code == BARE:
            self._skip(data, self._beside(data, begin, end), end)
        elif code in (INFO, SIGNED):
            self._skip(data, begin, end)
        elif code == FLOODED:
            self._flooded += data.count(b"\n", begin, end)
            self._skip(data, begin, end)
        else:
            self._feed(data[begin:end], dull=code == DULL)

    def _beside(self, data: bytes, begin: int, end: int) -> int:
        """Read of lines that do not matter those that may go on with a record that is open; return where the others
        begin."""
        if self._reader.idle:
            return begin
        place, records = self._reader.feed_until_idle(data, begin, end)
        self.offset += place - begin
        for record in records:
            self._take(record)
        return place

    def _skip(self, data: bytes, begin: int, end: int) -> None:
        """Pass over lines that matter to nothing."""
        if begin == end:
            return
        last = begin + len(data[begin:end].rstrip())  # a blank line is no last record
        if last > begin:
            line = data.rfind(b"\n", begin, last) + 1 or begin
            self._skipped = (self.offset + line - begin, data[line:end])
        self._reader.skip(data, begin, end)
        self.offset += end - begin

    def _repeat(self, data: bytes, lines: Lines, first: int, last: int) -> None:
        """Read the beginning and the end of a run of repeated lines, and pass over those between them. ``first``,
        ``last``: the number of its first line, and of that behind its last one."""
        codes, ends = lines
        begin = ends[first - 1] if first else 0
        most_begin, most_end = self._repeats_most
        room = most_begin - self._repeats_read
        if room > 0:
            cut = min(bisect_left(ends, begin + room, first, last) + 1, last)
            self._repeats_read += ends[cut - 1] - begin
            self._read_repeats(data, codes, ends, first, cut)
            first, begin = cut, ends[cut - 1]
        while first < last:
            # As much as is held at most, and the rest of lines of the same kind
            most = begin + 4 * most_end - self._repeats_size
            full = bisect_left(ends, most, first, last)
            place = _behind(_ALIKE, codes, full, last)
            end = ends[place - 1]
            places = ends[first:place]
            self._repeats_held.append((data[begin:end], codes[first:place], [at - begin for at in places]))
            self._repeats_size += end - begin
            if self._repeats_size >= 4 * most_end:
                self._forget_repeats(self._repeats_size - most_end)
            first, begin = place, end

    def _read_repeats(self, data: bytes, codes: bytes, ends: list[int], first: int, last: int) -> None:
        for run in _BARE_OR_NOT.finditer(codes, first, last):
            begin = ends[run.start() - 1] if run.start() else 0
            self._run(data, begin, ends[run.end() - 1], BARE if codes[run.start()] == BARE else READ)

    def _forget_repeats(self, most: int) -> None:
        """Pass over the first of the lines that are held, of at most so many bytes."""
        held = self._repeats_held
        gone: list[bytes] = []
        size = 0
        while size + len(held[0][0]) <= most:
            gone.append(held.popleft()[0])
            size += len(gone[-1])
        data, codes, ends = held[0]
        place = bisect_right(ends, most - size)
        if place:
            cut = ends[place - 1]
            gone.append(data[:cut])
            held[0] = data[cut:], codes[place:], [end - cut for end in ends[place:]]
            size += cut
        passed = b"".join(gone)
        self._flooded += passed.count(BEGINS.encode()) or passed.count(b"\n")
        for record in self._reader.cut(passed, self.offset - self._repeats_read):
            self._take(record)
        self.offset += size
        self._repeats_size -= size
        self._headless = range(self.offset, self.offset + self._repeats_most[1] // 2)

    def _end_repeats(self) -> None:
        most = self._repeats_most[1]
        if self._repeats_size > 2 * most:
            self._forget_repeats(self._repeats_size - most)
        if self._headless:
            self._repeats_most = LATER_BEGIN, LATER_END
        self._repeats_read = self._repeats_size = 0
        while self._repeats_held:
            data, codes, ends = self._repeats_held.popleft()
            self._read_repeats(data, codes, ends, 0, len(codes))

    def _pass(self, data: bytes, begin: int, end: int, lines: Lines, first: int, last: int) -> None:
        """Pass over healthy lines, with those of level info between them; count the answers and throughputs in
        them. ``first``, ``last``: the number of the first line, and of that behind the last one."""
        codes, ends = lines
        signs = data.count(_ANSWER, begin, end) + data.count(_THROUGHPUT, begin, end)
        start = self.offset
        served = data.rfind(_POST.encode(), begin, end)
        if served >= 0:
            self._served = start - begin + (data.rfind(b"\n", begin, served) + 1 or begin)
        self._skipped = self._line(data, begin, ends, last - 1)
        if signs:
            self._sign(signs, start)
            # The last line of the healthy ones in which the last sign stands
            newest = max(data.rfind(_ANSWER, begin, end), data.rfind(_THROUGHPUT, begin, end))
            behind = codes.find(INFO, bisect_right(ends, newest, first, last), last)
            self._healthy = self._line(data, begin, ends, (last if behind < 0 else behind) - 1)
        runs = 1 + codes.count(b"hi", first, last) + codes.count(b"ih", first, last)
        self._reader.skip(data, begin, end, runs)
        self.offset += end - begin

    def _line(self, data: bytes, begin: int, ends: list[int], number: int) -> tuple[int, bytes]:
        """A line that is passed over, and where it begins. ``begin``: where the run begins that is passed over."""
        start = ends[number - 1] if number else 0
        return self.offset + start - begin, data[start : ends[number]]

    def _feed(self, data: bytes, *, dull: bool = False) -> None:
        self.offset += len(data)
        for record in self._reader.feed(data, dull=dull):
            self._take(record)

    def _sign(self, signs: int, offset: int) -> None:
        self._alive += signs
        self._passed.more = self._passed.more or self._flooded > 0 or self._kept.left_out > 0
        self._flooded = 0
        self._repeats_most = REPEATED_BYTES, REPEATED_BYTES
        if not self._signs or offset > self._signs[-1][0]:
            self._signs.append((offset, self._alive))
        else:  # it has waited for the end of a record above it
            place = bisect_left(self._signs, (offset, 0))
            before = self._signs[place - 1][1] if place else self._signs_gone
            later = [(at, alive + signs) for at, alive in self._signs[place:]]
            self._signs[place:] = [(offset, before + signs), *later]
        if len(self._signs) > MOST_SIGNS:
            self._signs_gone = self._signs[MOST_SIGNS // 2 - 1][1]
            del self._signs[: MOST_SIGNS // 2]
        for record in self._kept.forget(self._alive - SURVIVED):
            self._survive(record)

    @property
    def _healthy_at(self) -> int:
        """Where the last healthy sign stands; -1 without any."""
        healthy = self._healthy
        return -1 if healthy is None else healthy[0] if isinstance(healthy, tuple) else healthy.offset

    def _alive_at(self, offset: int) -> int:
        """How many healthy signs stand before ``offset``: a record may be complete long after it began."""
        place = bisect_left(self._signs, (offset, 0))
        return self._signs[place - 1][1] if place else 0

    def _take(self, record: Record) -> None:
        if record.offset in self._headless:
            return
        if self._last is None or record.offset > self._last.offset:
            self._last = record
        if record.kind == "healthy":
            if _POST in record.text or record.text.startswith(_ROUTED_POST):
                self._served = max(self._served, record.offset)
            worth = progress_of(record.text) or 1
            self._sign(worth, record.offset)
            if record.offset > self._healthy_at:
                self._healthy = record
            if worth > SURVIVED and (self._step is None or record.offset > self._step.offset):
                self._step = record  # the whole log survived what is above it, whoever answers later
            return
        matters = record.level in ("warning", "error") or record.kind != "line"
        if not matters and _names_error(record.text):
            self._named = record
        if not matters and not self._has_needle(record):
            return
        alive = self._alive_at(record.offset)
        if self._alive - alive <= SURVIVED:
            self._kept.add(alive, record)
        else:
            self._survive(record)

    def _survive(self, record: Record) -> None:
        """Keep what was survived if the catalogue looks for something in it; else only count it."""
        if self._has_needle(record):
            self._before.add(0, record)
        else:
            self._passed.add(record)

    def _has_needle(self, record: Record) -> bool:
        return self._shapes.has_needle(record.whole)

    def _parsed(self, line: tuple[int, bytes] | None) -> Record | None:
        """A line that was passed over, as a record."""
        if line is None:
            return None
        reader = RecordReader(self._modified, line[0], self._zone, self._reader)
        return next(iter((*reader.feed(line[1]), *reader.end())), None)

    def result(self, shown: str, modified: float) -> LogRecords:
        self._end_repeats()
        passed = self._parsed(self._skipped)
        for record in self._reader.end():
            self._take(record)
        last = self._last
        if passed is not None and (last is None or passed.offset > last.offset):
            last = passed
        before = self._before.all()
        sign = self._parsed(self._healthy) if isinstance(self._healthy, tuple) else self._healthy
        healthy = {one.offset: one for one in (sign, self._step) if one is not None}
        records = [*before, *self._kept.all(), *healthy.values()]
        named = self._named
        if named is not None and self._alive > self._alive_at(named.offset):
            named = None
        return LogRecords(
            log=shown,
            records=tuple(sorted(records, key=lambda record: record.offset)),
            last=last,
            modified=modified,
            left_out=self._before.left_out + self._kept.left_out + self._flooded,
            survived=max((record.end for record in before), default=0),
            served=self._served,
            passed=self._passed.all(),
            passed_more=self._passed.more,
            named=named,
        )


def _with_heads(data: bytes, codes: bytes, ends: list[int]) -> Lines:
    """Lines with those in JSON as READ with which an indented one goes on that is read: it may be the rest of a
    traceback."""
    changed = bytearray()
    for before in _BEFORE_READ.finditer(codes):
        last = before.start()
        if data[ends[last]] not in b" \t":
            continue
        first = last
        while first > max(0, last - MOST_BETWEEN) and codes[first] in _PASSED:
            begin = ends[first - 1]
            if data[begin] not in b" \t":
                break
            first -= 1
        if codes[first] in _PASSED and data[ends[first] - 2] == ord("}"):
            changed = changed or bytearray(codes)
            changed[first : last + 1] = bytes([READ]) * (last + 1 - first)
    return Lines(bytes(changed) or codes, ends)


def _names_error(text: str) -> bool:
    """Whether a line names an exception or an error. Looking for words is faster than the expression."""
    may = (
        "Error: " in text or "Exception: " in text or "ERROR" in text or "FATAL" in text or "CRITICAL" in text
    )
    return may and NAMES_ERROR.search(text) is not None


def _behind(run: re.Pattern[bytes], codes: bytes, place: int, last: int) -> int:
    """Where a run ends that begins at ``place``, at ``last`` at the latest; ``place`` if none begins there."""
    found = run.match(codes, place, last)
    return place if found is None else found.end()


def _is_binary(data: bytes) -> bool:
    """Whether the beginning of a file is no text. A log that was cut while it was written has zeros there."""
    sample = _ZEROS.sub(b"", data[:SAMPLE].lstrip(b"\0"))
    return len(sample.translate(None, _TEXT)) * 20 > len(sample)
