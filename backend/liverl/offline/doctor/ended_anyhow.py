"""Ends of Ray's actors and nodes that its logs do not call meant or not: no faults, no clean bill. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from liverl.causes.finding import Evidence, Explanation, LogRecords, Verdict
from liverl.causes.match import Matcher, whole
from liverl.causes.verdict.words import short
from liverl.util.plural import quantity

RAY_ONLY = "ray-only"  # id of the note that no log of a program was read
# What Ray's own processes write, and what it writes inside of programs: never what the code of a user said.
_OF_RAY_ITSELF = (
    "raylet*", "gcs_server*", "python-core-*.log", "dashboard*", "monitor.*", "log_monitor.*", "runtime_env_agent.*",
)  # fmt: skip
ENDED_ANYHOW = "ended-anyhow"  # id of the note, and the fact of the rows that prove it
SHOWN = 3  # lines that are quoted


def only_of_ray(logs: Iterable[str]) -> Explanation | None:
    """The note that all logs, by their paths, are Ray's own: a program whose code failed ended for it as it should.
    None if another one is among them, or there is none at all."""
    names = [Path(log).name for log in logs]
    if not names or not all(any(fnmatch(name, own) for own in _OF_RAY_ITSELF) for name in names):
        return None
    return Explanation(
        RAY_ONLY,
        "info",
        "Only logs of Ray itself were read",
        "they do not say whether the code of a program failed: what it printed, and worker-*.err, were not read",
        "Give doctor what the program printed, and the folder with the logs of the Ray session.",
    )


def ends_untold(
    logs: Sequence[LogRecords], verdict: Verdict, matcher: Matcher | None = None
) -> Explanation | None:
    """The note that something ended, perhaps as it should; None if nothing tells of such an end, or if ``verdict`` has
    a cause: then its other processes end as well."""
    if verdict.cause is not None:
        return None
    asked = matcher or whole()
    found = [
        Evidence(short(match.text), log.log, record.offset)
        for log in logs
        for record in log.records
        for match in asked.of(record)
        if ENDED_ANYHOW in match.signature.facts
    ]
    if not found:
        return None
    return Explanation(
        ENDED_ANYHOW,
        "info",
        f"Ray's logs tell in {quantity(len(found), 'line')} that actors or nodes ended",
        "they do not say whether these were to end, as at the end of a program",
        "Read the log of the program that used them, and worker-*.err of the Ray session.",
        evidence=tuple(found[:SHOWN]),
    )
