"""Ends of Ray's actors and nodes that its logs do not call meant or not: no faults, no clean bill. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from liverl.causes.finding import Evidence, Explanation, LogRecords, Verdict
from liverl.causes.match import Matcher, whole
from liverl.causes.verdict.words import short
from liverl.util.plural import quantity

ENDED_ANYHOW = "ended-anyhow"  # id of the note, and the fact of the rows that prove it
SHOWN = 3  # lines that are quoted


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
