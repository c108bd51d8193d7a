"""The verdict on a start that was interrupted: which call had not returned."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from liverl.causes.finding import LogRecords, Verdict
from liverl.causes.inputs.starts import INTERRUPTED, interrupted_start
from liverl.offline.doctor.logs import Log
from liverl.offline.doctor.moments import moment
from liverl.util.regular_file import open_binary

TRACEBACK = 16 << 10  # bytes of a log from an interrupt on


def of_a_start(verdict: Verdict, records: Sequence[LogRecords], made: bool, logs: Sequence[Log]) -> Verdict:
    """The verdict on an interrupted start: its cause is the call that did not return. ``made``: there were steps."""
    cause = verdict.cause
    if cause is None or cause.id not in INTERRUPTED or made:
        return verdict
    proof = next((one for one in cause.evidence if one.log is not None and one.offset is not None), None)
    log = next((log for log in logs if proof is not None and log.path == proof.log), None)
    if proof is None or log is None or proof.offset is None or _worked(records, proof.log, proof.offset):
        return verdict
    try:
        with open_binary(log.path) as file:
            file.seek(proof.offset)
            text = file.read(TRACEBACK).decode("utf-8", "replace")
    except OSError:
        return verdict
    before = moment(log, proof.offset)
    told = interrupted_start(cause, text, None if before is None else before.line)
    return msgspec.structs.replace(verdict, cause=told)


def _worked(logs: Sequence[LogRecords], log: str | None, offset: int) -> bool:
    """Whether a program showed before a byte of its log that it works: a server that has answered had started."""
    return any(
        one.kind == "healthy" and one.offset < offset
        for read in logs
        if read.log == log
        for one in read.records
    )
