"""Follows the logs of services that run, and counts what they complain of.

A log is read from where its last minutes begin, by the index of its times, so that a backend that takes over a run
counts what an earlier one has seen, each line once, and reads ``MOST`` bytes of a log at most. Parts without a request
that failed, an error or a text of the catalogue are passed over. Of a log that grows faster than ``RATE``, the reader
takes the first bytes since the last look, where the cause of the flood stands, and the newest ones. It counts the bytes
between them as left out.

Everything here may block: call it in a thread.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from liverl.causes.inputs.places import at_its_line
from liverl.causes.match import Matcher, whole
from liverl.logs.access_lines import line_kinds, lines_alike, posts_in
from liverl.logs.follow import Follower
from liverl.logs.record import Record
from liverl.logs.records import RecordReader
from liverl.logs.times import TimeIndex
from liverl.model import Evidence
from liverl.observe.live_logs.counting import Counter, Counts
from liverl.observe.live_logs.facts import WINDOW_S, Complaint, FailedRequests, LiveLog, Sighting
from liverl.observe.live_logs.responses import Response, message_of, response_of, short
from liverl.observe.live_logs.watched import Watched
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import open_binary

MOST = 1 << 20  # bytes of one log that are read at a time; of more, the newest
HEAD = 1 << 14  # bytes of more than that which are read from where the last look ended
# Bytes per second that are read of one log, once ``MOST`` were: 500 lines of an engine, one for each request. That
# costs 1 ms of CPU, and 13 ms where each line matters.
RATE = 1 << 16
MOST_FED = 1 << 18  # of them, bytes of blocks that matter: splitting those into records takes 0.4 s per MiB
BLOCK = 1 << 16  # bytes that are read or passed over together
OLD_BLOCK = 1 << 12  # the same of what was written before this backend, which has one time each
AHEAD_S = 60.0  # seconds by which a stamp may lie ahead of our clock
LONGEST = 1 << 18  # bytes of an unfinished line that are kept
MOST_ERRORS = 16  # errors before requests that are answered later
BEFORE = 16 << 10  # bytes before a failed request in which the error that explains it was written
_POST = b'"POST '  # of an access line; the polls of health checks and scrapers are GETs
# Work that was done. Health checks are answered, and a throughput of 0.0 is logged, while an engine hangs.
_SIGN = "|".join(
    (
        r'"POST [^"\n]{1,300}" 2\d\d',
        r"method=POST [^\n]{1,300} status_code=2\d\d ",  # of SGLang's router
        r"generation throughput: (?!0\.0 )",
        r"(?:^|\s)step:\d+ - ",
    )
)
# One of them stands in each sign; none has a digit. To find a text takes a thirtieth of the time of the search with the
# expression.
_OF_SIGNS = (_POST, b"method=POST ", b"generation throughput: ", b"step:")
_SIGN_IN_BLOCK = late_pattern(_SIGN.encode(), re.MULTILINE)
_SIGN_IN_LINE = late_pattern(_SIGN)
# Of which one stands in most parts of a log that matter.
_ERRORS = (b"rror", b"ERROR", b"xception", b"WARN", b"arning", b"liverl-proxy: ")
_STATUSES = (b'" 4', b'" 5', b"/1.1 4", b"/1.1 5", b"/1.0 4", b"/1.0 5")
_BARE_STATUSES = (b'" ', b"/. ")  # the same without digits
_NUMBERS = late_pattern(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\b[\w-]*\d[\w-]*\b")
_KEY = 120  # characters of a message by which requests that failed alike are told from others


def _matters(block: bytes, kinds: bytes, needles: Iterable[tuple[bytes, bytes]]) -> bool | None:
    """Whether something in whole lines must be looked at; None: nothing, nor in any other lines of the same kinds, and
    they are no signs of health. ``kinds``: their ``line_kinds``, without those for which this is known."""
    if any(text in kinds for text in _ERRORS):
        return True
    dull = not any(text in kinds for text in _OF_SIGNS)
    if any(bare in kinds for bare in _BARE_STATUSES):
        if any(text in block for text in _STATUSES):
            return True
        dull = False
    for bare, needle in needles:
        if bare in kinds:
            if bare == needle or needle in block:
                return True
            dull = False
    return None if dull else False


def _has_sign(block: bytes, kinds: bytes) -> bool:
    """Whether whole lines show work that was done. ``kinds``: their ``line_kinds``."""
    return any(text in kinds for text in _OF_SIGNS) and _SIGN_IN_BLOCK.search(block) is not None


def _is_post(text: str) -> bool:
    """Whether a record is the access line of a request of a trial."""
    line = text.encode()
    return bool(posts_in(line, line_kinds(line)))


class StampedTimes:
    """When the lines of a log were written whose times nobody recorded: by their own stamps. Lines without one that
    stand close behind a stamp are taken to be as old."""

    def __init__(self, path: Path, now: float) -> None:
        """Reads the last ``MOST`` bytes. ``now``: Unix time.

        Raises:
            OSError: the log cannot be read.
        """
        self._offsets: list[int] = []
        self._times: list[float] = []
        with open_binary(path) as file:
            status = os.fstat(file.fileno())
            begin = max(0, status.st_size - MOST)
            file.seek(begin)
            data = file.read(MOST)
        records = RecordReader(status.st_mtime, begin)
        for record in sorted((*records.feed(data), *records.end()), key=lambda one: one.offset):
            if record.at is not None and record.at < now + AHEAD_S:
                self._offsets.append(record.offset)
                self._times.append(min(now, record.at))

    def at(self, offset: int) -> float | None:
        """The Unix time of the line with this byte; None if that is not known."""
        place = bisect_right(self._offsets, offset) - 1
        return self._times[place] if place >= 0 and offset - self._offsets[place] <= BEFORE else None


class _Failed(Struct):
    """``response``: of the newest one; ``sighting``: where it stands."""

    response: Response
    sighting: Sighting


class _Complained(Struct):
    """``sighting``: at the beginning of its record, until ``facts`` looks for the line that it quotes;
    ``record_bytes``: of that record, 0 once it has."""

    groups: dict[str, str]
    sighting: Sighting
    healthy: int  # signs of health before it
    record_bytes: int


class LogReader:
    """The log of one process of a service. ``shown``: its path in what is found; ``start``: its first byte in the file;
    ``now``: Unix time; ``watched``: what is looked for; ``foreign``: nobody recorded when its lines were written.

    Raises:
        OSError: a foreign log cannot be read.
    """

    def __init__(
        self, path: Path, shown: str, start: int, now: float, watched: Watched, *, foreign: bool = False
    ) -> None:
        self._watched = watched
        self.path = path
        self._left_out = Counter()
        self.healthy_at: float | None = None
        self._shown = shown
        self._times = TimeIndex(path)
        self._known = _size(path)  # bytes that were there before this reader
        begin = max(start, _recent(path, self._times, now))
        undated = foreign and not self._times.known and begin < self._known
        self._stamps = StampedTimes(path, now) if undated else None
        self._follower = Follower(path, begin)
        self._records = RecordReader(None, begin)
        self._budget = MOST  # bytes that may be read
        self._now = self._at = now  # of this poll; when the last block was written
        self._rest = b""
        self._resets = 0
        self._hot = False  # the last block mattered, so that a record of it may go on in the next one
        self._open = False  # records may be incomplete
        self._failed: Counts[tuple[object, ...], _Failed] = Counts()
        self._complaints: Counts[str, _Complained] = Counts()
        self._answered = Counter()
        self._undated = Counter()
        self._signs = 0  # of health
        self._errors: deque[tuple[int, str]] = deque(maxlen=MOST_ERRORS)  # their ends, and what they say

    def poll(self, now: float) -> bool:
        """Read what was appended; return whether anything was found that is counted. ``now`` is Unix time.

        Raises:
            OSError: the log exists and cannot be read.
        """
        self._budget = min(MOST, self._budget + int(RATE * max(0.0, now - self._now)))
        self._now = now
        found = False
        behind = self._follower.behind()
        if not behind:
            return self._settle()
        if behind > self._budget:
            found = self._look(HEAD, newest=False)
        return self._look(max(HEAD, self._budget), newest=True) or found

    def _look(self, most: int, *, newest: bool) -> bool:
        before = self._follower.offset
        data = self._follower.poll(most, newest=newest)
        if self._follower.resets != self._resets:
            self._resets = self._follower.resets
            self._known = before = 0
            self._begin_at(0)
        self._budget -= len(data)
        if not data:
            return self._settle()
        start = self._follower.offset - len(data)
        found = False
        if start != before:
            found = self._settle()  # what goes on in the part that is passed over
            self._left_out.add(self._now, start - before)
            cut = data.find(b"\n") + 1
            data, start = data[cut:], start + cut
            self._begin_at(start)
        whole = self._rest + data
        cut = whole.rfind(b"\n") + 1
        self._rest = whole[cut:]
        found = self._read(whole[:cut], start - (len(whole) - len(data))) or found
        if len(self._rest) > LONGEST:  # no line of a log that is read by people
            self._begin_at(self._follower.offset)
        return found

    @property
    def incomplete(self) -> bool:
        """Whether a record may go on, which the next poll completes."""
        return self._open

    def _begin_at(self, offset: int) -> None:
        self._rest, self._records = b"", RecordReader(None, offset)
        self._errors.clear()
        self._open = self._hot = False

    def _settle(self) -> bool:
        """The process has written nothing more: what was left open is complete."""
        if not self._open:
            return False
        self._open = False
        found = [self._take(record, self._at) for record in self._records.end()]
        return any(found)

    def _read(self, lines: bytes, offset: int) -> bool:
        found = False
        fed = place = 0
        dull = False  # the block before had no line that had to be searched
        while place < len(lines):
            old = offset + place < self._known
            size = OLD_BLOCK if old and not dull else BLOCK
            end = lines.rfind(b"\n", place, place + size) + 1 or lines.find(b"\n", place) + 1
            block = lines[place:end]
            fresh = self._watched.dull.others(lines_alike(block))
            if fresh and old and dull:  # its lines may have several times
                dull = False
                continue
            dull = not fresh
            known_at = self._time(offset + place)
            at = self._at = self._now if known_at is None else known_at
            kinds = b"\n".join(fresh)
            if (answers := posts_in(block, kinds)) and known_at is not None:
                self._answered.add(at, answers)  # those that failed are subtracted as they are read
            matters = _matters(block, kinds, self._watched.needles) if fresh else None
            if matters is None and fresh:
                self._watched.dull.add(fresh)
            if fed >= MOST_FED:
                self._left_out.add(self._now, len(block))
                self._records.skip(block, 0, len(block))
            elif matters or self._hot:
                fed += len(block)
                self._open = True
                for record in self._records.feed(block):
                    found = self._take(record, at) or found
            else:
                self._records.skip(block, 0, len(block))
                if _has_sign(block, kinds):
                    self._sign(at)
            self._hot = bool(matters)
            place = end
        return found

    def _time(self, offset: int) -> float | None:
        """When the line with this byte was written, in Unix time; None if that is not known."""
        if offset >= self._known:
            return self._now
        if self._stamps is not None:
            return self._stamps.at(offset)
        return min(self._now, self._times.time_at(offset))

    def _sign(self, at: float) -> None:
        self._signs += 1
        self.healthy_at = at

    def _take(self, record: Record, at: float) -> bool:
        number = 1 + record.repeated
        if record.kind == "healthy":
            if _SIGN_IN_LINE.search(record.text):
                self._sign(at)
            return False
        known_at = self._time(record.end - 1) if record.offset < self._known else at
        at = min(self._now, self._times.modified) if known_at is None else known_at
        sighting = Sighting(self._shown, record.offset, short(record.text), at)
        response = response_of(record)
        if response is not None and response.status >= 400:
            if known_at is None:
                self._undated.add(self._now, number)
            else:
                self._fail(response, record, sighting, number)
            found = True
        else:
            found = False
        if response is None and (record.level in ("warning", "error") or record.raised):
            self._errors.append((record.end, message_of(record)))
        for match in self._watched.matcher.of(record):
            if known_at is None and match.signature.fails == "request":
                continue  # how many of them are too many within some minutes cannot be told
            text = Sighting(self._shown, record.offset, short(match.text), at)
            complained = _Complained(match.groups, text, self._signs, record.end - record.offset)
            self._complaints.add(match.signature.id, complained, at, number)
            found = True
        return found

    def _fail(self, response: Response, record: Record, sighting: Sighting, number: int) -> None:
        if not response.message:
            response = response._replace(message=self._error_before(record))
        alike = _NUMBERS.sub("#", response.message[: 4 * _KEY])[:_KEY]
        key = (response.status, response.request, response.ours, alike)
        self._failed.add(key, _Failed(response, sighting), sighting.at, number)
        if not response.ours and _is_post(record.text):
            self._answered.add(sighting.at, -number)

    def _error_before(self, record: Record) -> str:
        """What the newest error before a failed request says, which then explains no other one; "" without one."""
        if not self._errors or record.offset - self._errors[-1][0] > BEFORE:
            return ""
        return self._errors.pop()[1]

    def _at_its_line(self, complained: _Complained) -> Sighting:
        """Where the line stands that a complaint quotes: a traceback begins above its exception."""
        found = complained.sighting
        if complained.record_bytes:
            evidence = at_its_line(
                Evidence(found.text, found.log, found.offset), self.path, complained.record_bytes
            )
            complained.sighting = found = replace(found, offset=evidence.offset or 0)
            complained.record_bytes = 0
        return found

    def facts(self, service: str, now: float) -> LiveLog:
        """What was found of ``service`` within the window before ``now``."""
        for counts in (self._failed, self._complaints):
            counts.expire(now)
        self._answered.expire(now)
        self._undated.expire(now)
        self._left_out.expire(now)
        failed = [
            FailedRequests(
                one.last.response.status,
                one.last.response.request,
                one.last.response.message,
                one.counter.counted(),
                one.last.sighting,
                one.last.response.ours,
            )
            for one in self._failed.seen.values()
        ]
        complaints = [
            Complaint(
                key,
                one.last.groups,
                one.counter.counted(),
                self._at_its_line(one.last),
                self._signs > one.last.healthy,
                self._watched.matcher.by_id[key],
            )
            for key, one in self._complaints.seen.items()
        ]
        return LiveLog(
            service,
            tuple(failed),
            tuple(complaints),
            self._answered.counted(),
            self.healthy_at,
            self._left_out.counted().since(0.0),
            self._undated.counted().since(0.0),
        )


class FollowedLog(Struct, frozen=True):
    """A log to follow. ``start``: the first byte of the present process in the file."""

    service: str
    path: Path
    start: int = 0


class LiveLogs:
    """The logs of all services that run. One ``look`` at a time, in any thread. ``catalogue``: another one than
    ours; ``foreign``: of somebody else, whose lines have no times but those that they state."""

    def __init__(self, run_dir: Path, catalogue: Matcher | None = None, *, foreign: bool = False) -> None:
        self._watched = Watched(catalogue or whole())
        self.facts: tuple[LiveLog, ...] = ()  # one for each log
        self.unreadable: dict[Path, OSError] = {}
        self._run_dir, self._foreign = run_dir, foreign
        self._readers: dict[Path, LogReader] = {}

    @property
    def incomplete(self) -> bool:
        """Whether the next look may find more in what was read."""
        return any(reader.incomplete for reader in self._readers.values())

    def look(self, logs: Sequence[FollowedLog], now: float) -> bool:
        """Read what was appended to these logs, and forget all others; return whether anything was found that is
        counted. ``now`` is Unix time."""
        paths = {log.path for log in logs}
        self._readers = {path: reader for path, reader in self._readers.items() if path in paths}
        self.unreadable = {}
        found = [self._poll(log, now) for log in logs]
        self.facts = tuple(self._facts(logs, now))
        return any(found)

    def _poll(self, log: FollowedLog, now: float) -> bool:
        try:
            reader = self._readers.get(log.path)
            if reader is None:
                shown = str(log.path).removeprefix(f"{self._run_dir}/")
                reader = LogReader(log.path, shown, log.start, now, self._watched, foreign=self._foreign)
                self._readers[log.path] = reader
            return reader.poll(now)
        except OSError as error:
            self.unreadable[log.path] = error
            return False

    def _facts(self, logs: Iterable[FollowedLog], now: float) -> Iterable[LiveLog]:
        for log in logs:
            reader = self._readers.get(log.path)
            facts = reader.facts(log.service, now) if reader is not None else None
            if facts is not None:
                yield facts


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _recent(path: Path, times: TimeIndex, now: float) -> int:
    """The byte of a log at which its last ``WINDOW_S`` begin, by its index; its end if it is older."""
    first = times.first_at(now - WINDOW_S)
    return first if first is not None else _size(path)
