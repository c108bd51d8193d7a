"""What the backend of a run said of its end, beside what its logs tell. Pure."""

from __future__ import annotations

import msgspec

from liverl.causes.finding import Explanation, Verdict
from liverl.causes.inputs.shown import words_of
from liverl.causes.verdict.unexplained import OF_AN_ERROR, UNEXPLAINED
from liverl.model import Cause


def as_stated(verdict: Verdict, stated: Cause | None) -> Verdict:
    """``verdict``, with what the backend of the run said where its logs alone do not explain the end, or do not show
    the value that mends it: it also saw the trials, Ray's state, the preflight checks and the kernel's counters. Where
    neither explains it, both name the same error: that of the service whose failure ended the run."""
    found = verdict.cause
    if stated is None:
        return verdict
    if found is not None and found.id not in UNEXPLAINED:
        known = found if stated.id in UNEXPLAINED else _completed(found, stated)
        return msgspec.structs.replace(verdict, cause=known)
    if not stated.id and found is not None and found.id in OF_AN_ERROR:
        return verdict  # an error in a log tells more than a reason without one
    guesses = verdict.guesses if stated.id in UNEXPLAINED else ()
    cause = Explanation(
        stated.id or "run-failed",
        "critical",
        words_of(stated),
        stated.why,
        stated.fix,
        stated.command,
        stated.patch,
        stated.evidence,
        stated.guess,
    )
    return Verdict(cause, guesses, verdict.symptoms)


def _completed(found: Explanation, stated: Cause) -> Explanation:
    """A cause that the logs show, with what the backend knew besides them: who else held GPU memory, and by the trials
    the value that mends it."""
    if found.id != stated.id:
        return found
    if stated.patch:
        found = msgspec.structs.replace(
            found, fix=stated.fix, command=stated.command, patch=stated.patch, guess=stated.guess
        )
    elif not words_of(stated).endswith(found.title):  # of another record
        return found
    return msgspec.structs.replace(found, cause=stated.why)
