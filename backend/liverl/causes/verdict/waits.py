"""Waits for another process beside the errors of that one: who failed, and who only noticed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from liverl.causes.verdict.errors import is_own
from liverl.causes.verdict.timeline import Hit, Moment


def without_waits(fatal: Sequence[Hit], alive: Sequence[Hit], moments: Sequence[Moment]) -> list[Hit]:
    """The causes without those waits (``Signature.role``) that an error of another process or log explains, whenever it
    was written and whether or not anything tells when: logs are merged late, and clocks of hosts differ. One of the
    same process counts if it stands before the wait, or is a cause of its own; what it raises afterwards may come of
    the wait. Nothing is left where that error is one which no row explains. Without any, what tells in another log that
    a process or host was ended (``Signature.gone``) takes the place of the waits. ``alive``: complaints of processes
    that went on."""
    own = [hit for hit in fatal if not _waits(hit)]
    errors = [moment for moment in moments if is_own(moment)]
    failed = [*(moment for moment, _ in own), *errors]
    causes = [
        moment for moment, match in own if match.signature.role == "cause" and not match.signature.effect
    ]

    def explained(wait: Moment) -> bool:
        return any(one is not wait for one in causes) or any(
            one is not wait and (_before(one, wait) or not _same(one, wait)) for one in failed
        )

    left = [hit for hit in fatal if not _waits(hit) or not explained(hit[0])]
    if own or not left:
        return left
    logs = {moment.log for moment, _ in fatal}
    gone = [hit for hit in alive if "gone" in hit[1].signature.facts and logs != {hit[0].log}]
    return gone or left


def _waits(hit: Hit) -> bool:
    """Whether a hit is a wait, or what Python says in the same record ("TimeoutError")."""
    moment, match = hit
    rows = {other.signature.role for other in moment.matched}
    return match.signature.role == "waits" or (match.signature.role == "general" and "waits" in rows)


def _same(one: Moment, other: Moment) -> bool:
    """Whether one process wrote both, as far as its log tells."""
    mine, yours = one.record, other.record
    return (one.log, mine.writer, mine.rank) == (other.log, yours.writer, yours.rank)


def _before(one: Moment, wait: Moment) -> bool:
    return one.log == wait.log and one.record.offset < wait.record.offset
