"""The records of several logs in the order in which they were written, and which of them a process survived. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from liverl.causes.finding import LogRecords
from liverl.causes.match import Match, Matcher, whole
from liverl.causes.verdict.main_program import of_the_main_program
from liverl.logs.progress import STARTED, SURVIVED, progress_of
from liverl.logs.record import Record

# Seconds by which Ray may write a process's lines later than those of others.
LATE = 120.0


class Moment(msgspec.Struct, frozen=True):
    """One record in its place. ``at``: when it was written, as well as its log tells: Unix seconds, 0 if nothing does;
    ``survived``: its process, or the whole run, worked afterwards; ``outlived``: its log ends with a sign of health, so
    that nothing in it is known to have ended anything; ``ended``: it is a traceback of an exception that nobody
    caught, of which the program died; ``last``: it is a traceback, and the last thing that its process wrote."""

    log: str
    record: Record
    at: float
    matched: tuple[Match, ...]
    survived: bool
    outlived: bool
    ended: bool = False
    last: bool = False


Hit = tuple[Moment, Match]  # a record, and one row that it matches


def timeline(logs: Sequence[LogRecords], matcher: Matcher | None = None) -> list[Moment]:
    """All records by time. One without a stamp has that of the last one before it of the same process, if that is not
    long ago, else of the same log, else the first one's. Ray writes lines of a process late, so within a log too
    the stamp decides. ``matcher``: of another catalogue than ours."""
    matcher = whole() if matcher is None else matcher
    entries = []
    for place, log in enumerate(logs):
        times = _times(log)
        survived = _survived(log)
        ends_well = _ends_well(log.records)
        spoke_last = _healthy_voices(log.records)
        last = frozenset(log.last_tracebacks)
        matched = [matcher.of(record) for record in log.records]
        retried = set(_retried(log.records, matched))
        for position, (record, at) in enumerate(zip(log.records, times, strict=True)):
            outlasted = survived[position] or position in retried
            above = _above(log.records, position)
            silent = record.torn or spoke_last.get(record.voice, -1) < record.offset
            well = ends_well and not (silent and _ends_its_program(record, above))
            is_last = record.offset in last and not (outlasted or well)
            ended = is_last and of_the_main_program(record, above)
            moment = Moment(log.log, record, at, matched[position], outlasted, well, ended, is_last)
            entries.append((at, place, position, moment))
    return [entry[-1] for entry in sorted(entries, key=lambda e: e[:3])]


def _times(log: LogRecords) -> list[float]:
    newest: float = next((r.at for r in log.records if r.at is not None), log.modified or 0.0)
    of_writer: dict[str, float] = {}
    times = []
    for record in log.records:
        if record.at is not None:
            of_writer[record.writer] = at = record.at
            newest = max(newest, at)
        else:
            own = of_writer.get(record.writer, newest)
            at = own if newest - own <= LATE else newest
        times.append(at)
    return times


def _survived(log: LogRecords) -> list[bool]:
    """Of each record, whether enough healthy ones follow it: a step's metrics count for the whole log, since the run
    went on; other signs count for the process that gave them. A process that failed may answer a few more requests (a
    probe per second) before it is gone; a server whose start is complete has survived what its start complained of."""
    after: dict[object, int] = {}
    stepped = False
    result = []
    for position in range(len(log.records) - 1, -1, -1):
        record = log.records[position]
        if record.kind == "healthy":
            counts = progress_of(record.text)
            stepped = stepped or counts > SURVIVED
            started = SURVIVED + 1 if record.text.startswith(STARTED) else 0
            for voice in (record.writer, record.voice):
                after[voice] = after.get(voice, 0) + max(counts, started, 1 + record.repeated)
        enough = 0 if record.end <= log.survived else SURVIVED
        ends = _ends_its_program(record, _above(log.records, position))
        signs = 0 if ends and record.torn else after.get(record.voice if ends else record.writer, 0)
        result.append(stepped or signs > enough)
    return result[::-1]


def _above(records: Sequence[Record], position: int) -> Record | None:
    return records[position - 1] if position else None


def _ends_its_program(record: Record, above: Record | None) -> bool:
    """Whether it is what an interpreter prints as it ends, and is told from what other processes wrote around it, whose
    signs of health say nothing of its own."""
    return record.kind == "traceback" and of_the_main_program(record, above)


def _healthy_voices(records: Sequence[Record]) -> dict[object, int]:
    """Where each process gave its last sign of health."""
    return {record.voice: record.offset for record in records if record.kind == "healthy"}


def _retried(records: Sequence[Record], matched: Sequence[Sequence[Match]]) -> Iterator[int]:
    """The places of what Ray reports of tasks that it runs again: their last attempt would be reported otherwise."""
    newest: dict[str, int] = {}
    for place, (record, found) in enumerate(zip(records, matched, strict=True)):
        if any("retried" in match.signature.facts for match in found):
            if record.writer in newest:
                yield newest[record.writer]
        else:
            newest[record.writer] = place


def _ends_well(records: Sequence[Record]) -> bool:
    for record in reversed(records):
        if record.kind == "healthy":
            return True
        if record.level == "error" and record.kind not in ("ignored", "thread"):
            return False
    return False
