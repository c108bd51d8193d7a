"""What the logs of a watched run say is wrong, by the rules of ``causes``. A log is read again when it has grown, its
last ``MOST`` bytes only; reading takes at most about a tenth of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from liverl.causes.catalogue import by_id
from liverl.causes.finding import Exit, Explanation, LogRecords, Verdict
from liverl.causes.inputs.places import located
from liverl.causes.match import whole
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.causes.verdict.plain_keys import for_others
from liverl.model import Evidence, Symptom, UnreadableFile
from liverl.offline.doctor.inputs import Input
from liverl.offline.doctor.logs import dated
from liverl.offline.doctor.moments import moment
from liverl.util.plural import quantity
from liverl.watch.endings import Ending, Endings

MOST = 64 << 20  # bytes of one log
LOGS = 64  # the newest ones
CLOCKS_S = 60.0  # seconds by which stamps of one host may differ from the times of its processes and files
SHARE = 10.0  # seconds without reading per second of reading
RAY = "ray"  # the service of the logs of Ray's own processes, which poll and wait by themselves


class JudgedLog(msgspec.Struct, frozen=True):
    """A log to judge. ``shown``: its path as evidence names it; ``alive``: its process still runs; ``began``: when that
    was started, Unix seconds, None if it is not visible; ``modified``: when it was last written
    to; ``what``: its kind in words, or what its process is."""

    path: Path
    shown: str
    service: str
    alive: bool
    size: int
    modified: float
    began: float | None = None
    what: str = ""


class Judgement(msgspec.Struct, frozen=True):
    """``symptoms``: the cause of a failure first; ``failed``: names of services in whose logs the cause stands;
    ``explained``: those whose end the symptoms tell, also while their processes still run; ``errors``: by service that
    has ended the error with which its own log ends, also where another one's is the cause; ``left_out``: what was not
    judged, and why; ``unreadable``: logs that could not be read; ``at``: Unix time at which the newest reading of the
    logs began."""

    symptoms: tuple[Symptom, ...] = ()
    failed: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
    errors: Mapping[str, str] = {}
    cause: str = ""
    left_out: tuple[str, ...] = ()
    unreadable: tuple[UnreadableFile, ...] = ()
    at: float = 0.0


class _Read(NamedTuple):
    """Verdicts on the logs of what has ended, of what runs, and on what has ended ``below`` what runs; ``services``: by
    the logs' shown paths; ``errors``: see ``Judgement``; ``left_out``: what was not judged, in words."""

    ended: Verdict
    going: Verdict
    services: dict[str, str]
    below: tuple[Verdict, ...]
    errors: dict[str, str]
    left_out: tuple[str, ...]


class Judge:
    """Judges logs; ``logs`` says which, each time."""

    def __init__(self, logs: Callable[[], Iterable[JudgedLog]]) -> None:
        self._logs = logs
        self._read: dict[Path, tuple[int, LogRecords]] = {}
        self._unreadable: dict[Path, str] = {}
        self._key: object = None
        self._endings = Endings()
        self._read_all: _Read | None = None  # what was read last, without what only time tells
        self._said: tuple[Explanation, ...] = ()  # of the ends of the logs
        # Log and byte of a line -> when it was written, None if no stamp tells.
        self._written: dict[tuple[str | None, int | None], float | None] = {}
        self._last = Judgement()
        self._began = 0.0  # the newest reading, Unix time
        self._rest_until = 0.0

    def look(self) -> Judgement:
        """Read what has grown and judge all; the last judgement while nothing has changed."""
        found = sorted(self._logs(), key=lambda log: log.modified, reverse=True)
        key = tuple(sorted((str(log.path), log.size, log.alive) for log in found))
        same = key == self._key and not self._unreadable  # what could not be read is tried again
        if not same and time.monotonic() >= self._rest_until:
            began, self._began = time.monotonic(), time.time()
            self._read_all, self._key = self._read_logs(found), key
            self._written = {}
            self._rest_until = time.monotonic() + SHARE * (time.monotonic() - began)
        elif self._read_all is None or self._endings.found(time.time()) == self._said:
            return self._last
        now = self._read_all
        self._said = self._endings.found(time.time())
        ends = () if now.ended.cause is not None else self._said
        judged = judgement(now.ended, now.going, now.services, now.below, ends)
        unreadable = tuple(UnreadableFile(str(path), why) for path, why in self._unreadable.items())
        files = {log.shown: log for log in found}
        symptoms = tuple(replace(one, since=self._since(one, files)) for one in judged.symptoms)
        self._last = replace(
            judged,
            symptoms=symptoms,
            errors=now.errors,
            left_out=now.left_out,
            unreadable=unreadable,
            at=self._began,
        )
        return self._last

    def _read_logs(self, found: Sequence[JudgedLog]) -> _Read:
        logs = found[:LOGS]
        self._unreadable = {}
        records = [one for log in logs if (one := self._records(log)) is not None]
        self._read = {log.path: self._read[log.path] for log in logs if log.path in self._read}
        living = {log.shown: log.service for log in logs if log.alive}
        exits = [Exit(service, shown, 0) for shown, service in living.items()]
        # A process that runs has not failed, whatever its log says: of its log symptoms are taken, and what has ended
        # below it (an engine, a worker), which it may wait for without an end.
        ended = judge([one for one in records if one.log not in living])
        going = judge([one for one in records if one.log in living], exits) if living else Verdict()
        starts = {log.shown: log.began for log in logs}
        going_on = (of_process(one, starts.get(one.log)) for one in records if one.log in living)
        below = [verdict for one in going_on if (verdict := ended_below(one)) is not None]
        files = {log.shown: log.path for log in logs}
        ended, going, *below = (
            located(verdict, lambda shown: files.get(shown, Path(shown)))
            for verdict in (ended, going, *below)
        )
        errors = own_errors([one for one in records if one.log not in living], ended)
        self._endings.read([ending(log) for log in logs if log.service != RAY], time.time())
        services = {log.shown: log.service for log in logs}
        named = {services[shown]: title for shown, title in errors.items()}
        return _Read(ended, going, services, tuple(below), named, left_out(found))

    def _since(self, one: Symptom, logs: Mapping[str, JudgedLog]) -> float | None:
        """When the line was written that proves an alert, by the stamps of its log; None if they do not tell."""
        line = next((e for e in one.evidence if e.log in logs and e.offset is not None), None)
        if line is None:
            return None
        place = (line.log, line.offset)
        if place not in self._written:
            log = logs[line.log or ""]
            dates = dated([Input(str(log.path), log.what, True, log.size)])
            when = moment(dates[0], line.offset or 0)
            self._written[place] = when.at if when is not None and when.how != "file" else None
        return self._written[place]

    def _records(self, log: JudgedLog) -> LogRecords | None:
        known = self._read.get(log.path)
        if known is not None and known[0] == log.size:
            return known[1]
        try:
            records = read_log(log.path, log.shown, max(0, log.size - MOST))
        except FileNotFoundError:
            return None  # removed meanwhile
        except OSError as error:
            self._unreadable[log.path] = error.strerror or str(error)
            return None
        self._read[log.path] = log.size, records
        return records


def left_out(logs: Sequence[JudgedLog]) -> tuple[str, ...]:
    """What of ``logs``, the newest first, is not judged, in words. Pure."""
    words = []
    if len(logs) > LOGS:
        words.append(
            f"{quantity(len(logs) - LOGS, 'log')} older than the newest {LOGS}, such as {logs[LOGS].path}"
        )
    large = [log for log in logs[:LOGS] if log.size > MOST]
    if large:
        others = f" and of {len(large) - 1} more" if len(large) > 1 else ""
        words.append(
            f"the beginning of {large[0].path}{others}: of a log the last {MOST >> 20} MiB are judged"
        )
    return tuple(words)


def ending(log: JudgedLog) -> Ending:
    """A log for the judge of its end. Pure."""
    return Ending(log.path, log.shown, log.what or log.service, log.size, log.alive, log.modified)


def of_process(log: LogRecords, began: float | None) -> LogRecords:
    """``log`` without what a process before this one has appended to it. ``began``: when this one was started. Nothing
    is left out where the stamps are not of this host's clock. Pure."""
    last = log.last.at if log.last is not None else None
    if began is None or last is None or log.modified is None or abs(last - log.modified) > CLOCKS_S:
        return log
    before = [
        number for number, one in enumerate(log.records) if one.at is not None and one.at < began - CLOCKS_S
    ]
    return msgspec.structs.replace(log, records=log.records[before[-1] + 1 :]) if before else log


def ended_below(log: LogRecords) -> Verdict | None:
    """What the log of a process that runs says of one that has ended below it, with nothing done since: the verdict
    that the log would get at its end. None if that is no error which ends a process: a general one of Python may have
    been caught, one that no signature explains may mean anything, and a complaint is of what goes on. Pure."""
    verdict = judge([log])
    if verdict.cause is None:
        return None
    signature = by_id().get(verdict.cause.id)
    if signature is not None:
        return verdict if signature.role != "general" and not signature.alive else None
    matched = (match.signature for record in log.records for match in whole().of(record))
    return verdict if any("ended-first" in one.facts for one in matched) else None


def own_errors(logs: Sequence[LogRecords], together: Verdict) -> dict[str, str]:
    """Of logs that have ended: shown path -> the error that ended its process, by this log alone. Not of the log in
    which the cause of them all stands (``together``), whose service has that. Pure."""
    evidence = together.cause.evidence if together.cause is not None else ()
    told = next(
        (one.log for one in evidence if one.log is not None), ""
    )  # what follows from it stands behind it
    found = {}
    for log in logs:
        if log.log != told and log.records and (cause := judge([log]).cause) is not None:
            found[log.log] = cause.title.removeprefix("cause unknown: ").rstrip(".")
    return found


def judgement(
    ended: Verdict,
    going: Verdict,
    services: dict[str, str],
    below: Iterable[Verdict] = (),
    early: Iterable[Explanation] = (),
) -> Judgement:
    """Verdicts as alerts: on the logs of what has ended, of what runs, and on what has ended ``below`` what runs;
    ``early``: without an error. ``services``: by the logs' shown paths. Pure."""
    found: dict[str, Symptom] = {}
    failed: tuple[str, ...] = ()
    text, explained = "", tuple[str, ...]()
    if ended.cause is not None:
        failed = _services_of(ended.cause, services)
        text = ended.cause.title
        found[f"log:{ended.cause.id}"] = symptom(ended.cause, ended.guesses)
    for verdict in below:
        if verdict.cause is not None:
            found.setdefault(f"log:{verdict.cause.id}", symptom(verdict.cause, verdict.guesses))
            explained = (*explained, *_services_of(verdict.cause, services))
    # How many failed requests of a service that goes on are too many, the rules of live logs count.
    going_on = (
        one for one in going.symptoms if (row := by_id().get(one.id)) is None or row.fails != "request"
    )
    for one in (*early, *ended.symptoms, *going_on):
        found.setdefault(f"log:{one.id}", symptom(one, ()))
    return Judgement(tuple(found.values()), failed, (*failed, *explained), cause=text)


def _services_of(cause: Explanation, services: Mapping[str, str]) -> tuple[str, ...]:
    """The service in whose log a cause stands, if it stands in one's. Pure."""
    first = next((one.log for one in cause.evidence if one.log is not None), "")
    return (services[first],) if first in services else ()


def symptom(explanation: Explanation, guesses: tuple[Explanation, ...]) -> Symptom:
    """An explanation as an alert, with guesses as further evidence. Pure."""
    explanation = for_others(explanation)
    fix = explanation.fix
    if explanation.command:
        fix = f"{fix.rstrip('.')}. Look with: {explanation.command}" if fix else explanation.command
    checks = (Evidence(f"possible cause: {guess.title}; check: {guess.command}") for guess in guesses[:3])
    return Symptom(
        id=f"log:{explanation.id}",
        severity=explanation.severity,
        title=explanation.title,
        cause=explanation.cause or explanation.title,
        fix=fix,
        evidence=(*explanation.evidence, *checks),
    )
