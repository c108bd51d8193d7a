"""The places in logs of services that evidence and failures name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from liverl.model import Evidence, Snapshot

PROVING = 20  # lines of logs at most
BEGINNING, SHORTEST = 80, 8  # characters by which a line is known
_FAILING = ("stopping", "failed")  # states of a run that a failed service has ended
_FAILED = ("failed", "gave_up")


class LogPlace(NamedTuple):
    """A line of a log. ``log``: path relative to the run's directory; ``offset``: byte in it, None for its end."""

    service: str
    log: str
    offset: int | None = None


def log_place(evidence: Iterable[Evidence]) -> LogPlace | None:
    """The first place in a service's log that evidence names; None if it names none."""
    for one in evidence:
        service = _service_of(one.log or "")
        if service:
            return LogPlace(service, one.log or "", one.offset)
    return None


def _service_of(log: str) -> str:
    """The service that writes ``attempt_NNN/logs/<service>.<generation>.log``; empty for any other file."""
    attempt, _, rest = log.partition("/")
    folder, _, name = rest.partition("/")
    service, _, generation = name.removesuffix(".log").rpartition(".")
    ours = attempt.startswith("attempt_") and folder == "logs" and "/" not in name and name.endswith(".log")
    return service if ours and generation.isdecimal() else ""


def failure_place(snapshot: Snapshot) -> LogPlace | None:
    """The line of the log that says why the run failed, or the end of the failed service's log; None if the run did
    not fail, or no service did."""
    if snapshot.state not in _FAILING:
        return None
    cause = snapshot.result.cause if snapshot.result is not None else None
    if cause is not None and cause.service is not None and cause.log is not None:
        return LogPlace(cause.service, cause.log, cause.offset)
    services = [s for s in snapshot.services if s.state in _FAILED]
    if cause is not None:
        services = [s for s in services if s.name == cause.service]
    service = min(services, key=lambda s: s.since, default=None)  # the first one: others fail because it did
    if service is None or service.log is None:
        return None
    symptom = next((s for s in snapshot.symptoms if s.id == f"service_{service.state}:{service.name}"), None)
    place = log_place(symptom.evidence) if symptom is not None else None
    return place or LogPlace(service.name, service.log)


def proving_lines(snapshot: Snapshot | None) -> tuple[str, ...]:
    """The beginnings of the lines of logs that the result and the alerts give as evidence, each once, ``PROVING`` at
    most. Not all programs give such lines a level."""
    if snapshot is None:
        return ()
    cause = snapshot.result.cause if snapshot.result is not None else None
    evidence = [
        *(cause.evidence if cause is not None else ()),
        *(e for s in snapshot.symptoms for e in s.evidence),
    ]
    texts = (
        one.text[:BEGINNING].strip() for one in evidence if one.log is not None and one.offset is not None
    )
    return tuple(dict.fromkeys(text for text in texts if len(text) >= SHORTEST))[:PROVING]
