"""A line of evidence that names a place in a log: how rules write it, and how views read it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from liverl.model import Snapshot

_PLACE = re.compile(r"(attempt_\d+/logs/(?P<service>[^/\n]+)\.\d+\.log)(?: at byte (\d{1,18}): |$)")
_FAILING = ("stopping", "failed")  # states of a run that a failed service has ended
_FAILED = ("failed", "gave_up")


class LogPlace(NamedTuple):
    """A line of a log. ``log``: path relative to the run's directory; ``offset``: byte in it, None for its end."""

    service: str
    log: str
    offset: int | None = None


def log_line(log: str, offset: int | None, text: str) -> str:
    """The line of evidence for ``text``, which stands at byte ``offset`` of ``log``."""
    return log if offset is None else f"{log} at byte {offset}: {text}"


def log_place(evidence: Iterable[str]) -> LogPlace | None:
    """The first place in a log that lines of evidence name; None if they name none."""
    for line in evidence:
        match = _PLACE.match(line)
        if match is not None:
            return LogPlace(match["service"], match[1], None if match[3] is None else int(match[3]))
    return None


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
