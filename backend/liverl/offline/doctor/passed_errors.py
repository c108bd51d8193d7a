"""Errors in logs that ended nothing and are no part of the verdict: neither faults nor a clean bill. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from liverl.causes.finding import Evidence, Explanation, LogRecords, Verdict
from liverl.causes.match import Matcher, whole
from liverl.causes.read.keeping import is_error, shape
from liverl.causes.verdict.chain import kind
from liverl.causes.verdict.words import short
from liverl.logs.record import Record
from liverl.logs.tracebacks import BEGINS
from liverl.offline.doctor.verdicts import row_of
from liverl.util.plural import quantity

PASSED = "errors-passed"
SHOWN = 3  # kinds of errors that are quoted
_INTERRUPTS = frozenset(("KeyboardInterrupt", "SystemExit"))
# How Ray's processes tell, with their stack, that they were asked to end (absl, failure_signal_handler.cc)
_ASKED = re.compile(r"\*\*\* SIGTERM received at time=\d|\s*(?:PC: )?@ +0x[0-9a-f]{4,16}\s")


def errors_passed(
    logs: Sequence[LogRecords], verdict: Verdict, matcher: Matcher | None = None
) -> Explanation | None:
    """The note that logs hold errors which are no part of ``verdict``; None if they hold none, or if it has a cause:
    errors beside that are what comes of it."""
    if verdict.cause is not None:
        return None
    shown = {(one.log, one.offset) for told in verdict.explanations for one in told.evidence}
    known = {short(one.text) for told in verdict.explanations for one in told.evidence}
    told_rows = {row_of(told.id) for told in verdict.explanations}
    kinds: dict[str, tuple[int, Evidence]] = {}
    for log in logs:
        for record in _errors(log, matcher or whole(), told_rows):
            line = short(
                record.raised[-1].text if record.raised and record.text.startswith(BEGINS) else record.text
            )
            if (log.log, record.offset) in shown or line in known:
                continue
            count, first = kinds.get(shape(record), (0, Evidence(line, log.log, record.offset)))
            kinds[shape(record)] = count + 1 + record.repeated, first
    if not kinds:
        return None
    often = sorted(kinds.values(), key=lambda one: -one[0])
    lines = sum(count for count, _ in often)
    some = any(log.left_out or log.passed_more for log in logs)  # not all of them are counted
    least, kinds_word = ("at least ", "or more kinds") if some else ("", "kinds")
    more = f" of {len(often)} {kinds_word}" if len(often) > 1 else ""
    return Explanation(
        PASSED,
        "info",
        f"The logs have {least}{quantity(lines, 'error')}{more} that ended nothing",
        "a request, a tool call or a trial may have failed each time",
        "Read them, and what stands around them.",
        evidence=tuple(one for _, one in often[:SHOWN]),
    )


def _errors(log: LogRecords, matcher: Matcher, told_rows: AbstractSet[str]) -> Iterator[Record]:
    """``told_rows``: ids of the rows that are told in the verdict, whatever records they show there."""
    for record in (*log.passed, *log.records):
        if not is_error(record) or record.kind in ("ignored", "shell", "healthy"):
            continue
        if record.raised and kind(record.raised[-1]) in _INTERRUPTS:
            continue  # it was to end
        if _ASKED.match(record.text):
            continue
        rows = [match.signature for match in matcher.of(record)]
        if not any(row.role == "noise" or row.id in told_rows for row in rows):
            yield record
