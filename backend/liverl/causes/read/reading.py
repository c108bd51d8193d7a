"""Reads a log for what may explain an end: files of any size, in bounded memory."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import BinaryIO

from msgspec.structs import replace

from liverl.causes.finding import LogRecords
from liverl.causes.match import Matcher, whole
from liverl.causes.read.keeping import Kept
from liverl.causes.read.last_words import TAIL, last_tracebacks
from liverl.causes.read.shapes import Shape, Shapes
from liverl.logs.progress import SURVIVED, progress_of
from liverl.logs.record import Record
from liverl.logs.records import RecordReader
from liverl.logs.tracebacks import BEGINS
from liverl.util.regular_file import open_binary

BLOCK = 1 << 20  # bytes read at a time
MOST_BEFORE = 500  # records with a needle from before the last healthy signs
MOST_AFTER = 2000  # other records
SAMPLE = 1 << 16  # bytes that tell a log from binary data
REPEATED = 1 << 17  # bytes of the beginning and of the end of a run of repeated lines
MOST_SIGNS = 8192  # healthy signs whose places are remembered
_TEXT = bytes([*b"\t\n\r\f\b\a\x1b", *range(0x20, 0x7F), *range(0x80, 0x100)])

_ANSWER = b'" 2'
_POST = '"POST /'
_ROUTED_POST = "http_request{method=POST "  # of SGLang's router
_THROUGHPUT = b"Avg prompt throughput"


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
        self._shapes = Shapes((matcher or whole()).needles)
        self._alive = 0  # healthy signs so far
        self._signs: list[tuple[int, int]] = []  # offset of a sign, how many there are with it
        self._kept = Kept(MOST_AFTER, self._has_needle)
        self._before = Kept(MOST_BEFORE, self._has_needle)
        # The last one, or its line and where that begins
        self._healthy: Record | tuple[int, bytes] | None = None
        self._step: Record | None = None  # the last metrics of a step
        self._served = -1  # offset of the last POST that was answered with 2xx
        self._last: Record | None = None
        # The last line that was passed over, and where it begins
        self._skipped: tuple[int, bytes] | None = None
        self._flooded = 0  # lines and tracebacks of floods since the last healthy sign
        self._inside = False  # of a line that is longer than a block
        self._repeats_read = 0  # bytes of the repeated lines that are being read: of their beginning
        self._repeats_held = bytearray()  # the rest of them, as far as it may be their end
        self._headless = range(0)  # where that end begins: the beginnings of its first records are missing

    def block(self, data: bytes) -> None:
        """Read further whole lines."""
        place = 0
        if self._inside:
            place = data.find(b"\n") + 1 or len(data)
            self._feed(data[:place], "read")
        self._lines(data, place)
        self._inside = not data.endswith(b"\n")

    def _lines(self, data: bytes, place: int) -> None:
        """Feed to the reader the lines that may matter, and those that may go on with one; pass over the others."""
        kinds = self._shapes.of(data[place:])
        begin = place
        current: Shape = "read"
        for length, kind in kinds:
            if kind == "bare":
                if current != "bare" and begin < place:
                    self._run(data, begin, place, current)
                    begin = place
                kind = "bare" if current == "bare" or self._reader.idle else "beside"
            if kind != current:
                if begin < place:
                    self._run(data, begin, place, current)
                begin, current = place, kind
            place += length
        if begin < place:
            self._run(data, begin, place, current)

    def _run(self, data: bytes, begin: int, end: int, kind: Shape) -> None:
        if kind == "repeated" or (self._repeats_read and kind in ("info", "bare", "beside", "flood")):
            self._repeat(data[begin:end])
            return
        self._end_repeats()
        if kind == "healthy":
            self._pass(data, begin, end)
        elif kind in ("info", "bare", "flood"):
            if kind == "flood":
                self._flooded += data.count(b"\n", begin, end)
            last = begin + len(data[begin:end].rstrip())  # a blank line is no last record
            if last > begin:
                line = data.rfind(b"\n", begin, last) + 1 or begin
                self._skipped = (self.offset + line - begin, data[line:end])
            self._reader.skip(end - begin)
            self.offset += end - begin
        else:
            self._feed(data[begin:end], kind)

    def _repeat(self, data: bytes) -> None:
        """Read the beginning and the end of a run of repeated lines, and pass over those between them."""
        room = REPEATED - self._repeats_read
        if room > 0:
            cut = data.find(b"\n", room) + 1 or len(data)
            self._repeats_read += cut
            self._feed(data[:cut], "read")
            data = data[cut:]
        held = self._repeats_held
        held += data
        if len(held) < 4 * REPEATED:
            return
        cut = held.rfind(b"\n", 0, len(held) - REPEATED) + 1
        self._flooded += held.count(BEGINS.encode(), 0, cut) or held.count(b"\n", 0, cut)
        for record in self._reader.cut(cut, self.offset - self._repeats_read):
            self._take(record)
        self.offset += cut
        del held[:cut]
        self._headless = range(self.offset, self.offset + REPEATED // 2)

    def _end_repeats(self) -> None:
        self._repeats_read = 0
        if self._repeats_held:
            held = bytes(self._repeats_held)
            self._repeats_held.clear()
            self._feed(held, "read")

    def _pass(self, data: bytes, begin: int, end: int) -> None:
        """Pass over healthy lines; count the answers and throughputs in them."""
        signs = data.count(_ANSWER, begin, end) + data.count(_THROUGHPUT, begin, end)
        line = data.rfind(b"\n", begin, end - 1) + 1 or begin
        self._skipped = (self.offset + line - begin, data[line:end])
        start = self.offset
        served = data.rfind(_POST.encode(), begin, end)
        if served >= 0:
            self._served = start - begin + (data.rfind(b"\n", begin, served) + 1 or begin)
        self._reader.skip(end - begin)
        self.offset += end - begin
        if signs:
            self._sign(signs, start)
            self._healthy = self._skipped or self._healthy

    def _feed(self, data: bytes, kind: Shape) -> None:
        self.offset += len(data)
        self._skipped = None
        for record in self._reader.feed(data, awaited=kind == "read"):
            self._take(record)

    def _sign(self, signs: int, offset: int) -> None:
        self._alive += signs
        self._flooded = 0
        self._signs.append((offset, self._alive))
        if len(self._signs) > MOST_SIGNS:
            del self._signs[: MOST_SIGNS // 2]
        for record in self._kept.forget(self._alive - SURVIVED):
            if self._has_needle(record):
                self._before.add(0, record)

    def _alive_at(self, offset: int) -> int:
        """How many healthy signs stand before ``offset``: a record may be complete long after it began."""
        place = bisect_left(self._signs, (offset, 0))
        return self._signs[place - 1][1] if place else 0

    def _take(self, record: Record) -> None:
        if record.offset in self._headless:
            return
        self._last = record
        if record.kind == "healthy":
            if _POST in record.text or record.text.startswith(_ROUTED_POST):
                self._served = max(self._served, record.offset)
            self._sign(progress_of(record.text) or 1, record.offset)
            self._healthy = record
            return
        matters = record.level in ("warning", "error") or record.kind != "line"
        if not matters and not self._has_needle(record):
            return
        alive = self._alive_at(record.offset)
        if self._alive - alive <= SURVIVED:
            self._kept.add(alive, record)
        elif self._has_needle(record):
            self._before.add(0, record)

    def _has_needle(self, record: Record) -> bool:
        return self._shapes.has_needle(record.whole)

    def _parsed(self, line: tuple[int, bytes] | None) -> Record | None:
        """A line that was passed over, as a record."""
        if line is None:
            return None
        reader = RecordReader(self._modified, line[0], self._zone)
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
        return LogRecords(
            log=shown,
            records=tuple(sorted(records, key=lambda record: record.offset)),
            last=last,
            modified=modified,
            left_out=self._before.left_out + self._kept.left_out + self._flooded,
            survived=max((record.end for record in before), default=0),
            served=self._served,
        )


def _is_binary(data: bytes) -> bool:
    """Whether the beginning of a file is no text. A log that was cut while it was written may begin with zeros."""
    sample = data[:SAMPLE].lstrip(b"\0")
    return len(sample.translate(None, _TEXT)) * 20 > len(sample)
