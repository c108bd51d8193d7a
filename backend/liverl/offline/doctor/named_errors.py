"""A line at the end of a log that names an error, and that nothing marks as one: no fault, no clean bill. Pure.

A program that keeps the lines of another one logs all of them at level INFO, and some print what failed as plain text.
"""

from __future__ import annotations

from collections.abc import Sequence

from liverl.causes.finding import Evidence, Explanation, LogRecords, Verdict
from liverl.causes.verdict.words import short

NAMED = "error-named"  # id of the note
AT_THE_END = 4096  # bytes of a log


def errors_named(logs: Sequence[LogRecords], verdict: Verdict) -> Explanation | None:
    """The note that a log ends with a line which names an error; None if none does, or if ``verdict`` tells anything: a
    line that only names an error adds nothing to that."""
    if verdict.explanations:
        return None
    found = [
        Evidence(short(log.named.text), log.log, log.named.offset)
        for log in logs
        if log.named is not None and log.last is not None and log.last.end - log.named.end <= AT_THE_END
    ]
    if not found:
        return None
    return Explanation(
        NAMED,
        "info",
        "Something may have failed: a line at the end names an error",
        "neither its level nor its form says that it is one, and no sign of health follows it",
        "Read it, and what stands around it.",
        evidence=tuple(found[:1]),
    )
