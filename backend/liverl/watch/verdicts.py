"""What the logs of a watched run say is wrong, by the rules of ``causes``. A log is read again when it has grown, its
last ``MOST`` bytes only; reading takes at most about a tenth of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from liverl.causes.finding import Exit, Explanation, LogRecords, Verdict
from liverl.causes.judge import judge
from liverl.causes.reading import read_log
from liverl.model import Evidence, Symptom

MOST = 64 << 20  # bytes of one log
LOGS = 64  # the newest ones
SHARE = 10.0  # seconds without reading per second of reading


class JudgedLog(msgspec.Struct, frozen=True):
    """A log to judge. ``shown``: its path as evidence names it; ``alive``: its process still runs."""

    path: Path
    shown: str
    service: str
    alive: bool
    size: int
    modified: float


class Judgement(msgspec.Struct, frozen=True):
    """``symptoms``: the cause of a failure first; ``failed``: names of services in whose logs the cause stands."""

    symptoms: tuple[Symptom, ...] = ()
    failed: tuple[str, ...] = ()
    cause: str = ""


class Judge:
    """Judges logs; ``logs`` says which, each time."""

    def __init__(self, logs: Callable[[], Iterable[JudgedLog]]) -> None:
        self._logs = logs
        self._read: dict[Path, tuple[int, LogRecords]] = {}
        self._key: object = None
        self._last = Judgement()
        self._rest_until = 0.0

    def look(self) -> Judgement:
        """Read what has grown and judge all; the last judgement while nothing has changed."""
        logs = sorted(self._logs(), key=lambda log: log.modified, reverse=True)[:LOGS]
        key = tuple(sorted((str(log.path), log.size, log.alive) for log in logs))
        if key == self._key or time.monotonic() < self._rest_until:
            return self._last
        began = time.monotonic()
        records = [one for log in logs if (one := self._records(log)) is not None]
        self._read = {log.path: self._read[log.path] for log in logs if log.path in self._read}
        living = {log.shown: log.service for log in logs if log.alive}
        exits = [Exit(service, shown, 0) for shown, service in living.items()]
        # A process that runs has not failed, whatever its log says: of its log only symptoms are taken.
        ended = judge([one for one in records if one.log not in living])
        going = judge([one for one in records if one.log in living], exits) if living else Verdict()
        self._last = judgement(ended, going, {log.shown: log.service for log in logs})
        self._key = key
        self._rest_until = time.monotonic() + SHARE * (time.monotonic() - began)
        return self._last

    def _records(self, log: JudgedLog) -> LogRecords | None:
        known = self._read.get(log.path)
        if known is not None and known[0] == log.size:
            return known[1]
        try:
            records = read_log(log.path, log.shown, max(0, log.size - MOST))
        except OSError:
            return None  # not readable, or no text after all
        self._read[log.path] = log.size, records
        return records


def judgement(ended: Verdict, going: Verdict, services: dict[str, str]) -> Judgement:
    """Two verdicts as alerts: on the logs of what has ended, and of what runs. ``services``: by the logs' shown paths.
    Pure."""
    found: dict[str, Symptom] = {}
    failed: tuple[str, ...] = ()
    text = ""
    if ended.cause is not None:
        first = next((one.log for one in ended.cause.evidence if one.log is not None), "")
        failed = (services[first],) if first in services else ()
        text = ended.cause.title
        found[ended.cause.id] = symptom(ended.cause, ended.guesses)
    for one in (*ended.symptoms, *going.symptoms):
        found.setdefault(one.id, symptom(one, ()))
    return Judgement(tuple(found.values()), failed, text)


def symptom(explanation: Explanation, guesses: tuple[Explanation, ...]) -> Symptom:
    """An explanation as an alert, with guesses as further evidence. Pure."""
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
