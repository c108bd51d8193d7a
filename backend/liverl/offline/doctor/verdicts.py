"""Joins what logs, trials, metrics and a run's own backend say to one verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from liverl.causes.finding import Evidence, Explanation, Verdict
from liverl.causes.match import Matcher, whole
from liverl.causes.verdict.judge import SYMPTOMS
from liverl.causes.verdict.unexplained import UNEXPLAINED
from liverl.diagnose.catalogue.agents import NO_TOKENS
from liverl.offline.doctor.ends import STOPS
from liverl.offline.doctor.rules import Judged
from liverl.offline.doctor.silence import HANGS
from liverl.offline.doctor.trials import Failure

NOT_READ = "not-all-read"
_NO_CALLS = "zero_tool_calls"  # the alert that looks into the trials
_ALERT = "trials_failed"  # it, and the rows that it counts, only say that trials fail, once it is known why

_RANKS = ("critical", "warning", "info")


def joined(
    logs: Verdict,
    judged: Sequence[Judged],
    failed: Sequence[Failure],
    silent: Sequence[Explanation],
    matcher: Matcher | None = None,
    *,
    calls_read: bool = False,
) -> Verdict:
    """One verdict. ``logs``: on the records of all logs; ``judged``: by the rules for runs; ``failed``: why trials
    failed, of which those of usual sandboxes are only counted beside an alert; ``silent``: what is wrong with logs
    without an error; ``matcher``: of another catalogue than ours; ``calls_read``: most trials called tools.

    What most trials failed with is the cause where the logs know none, or only that trials failed. A hang is told
    beside an end from outside, and beside one that nothing explains; an early end only where nothing else is wrong.
    """
    matcher = matcher or whole()
    cause, guesses = logs.cause, logs.guesses
    counted = [one.explanation for one in failed]
    failed = [one for one in failed if not one.is_usual]
    explained = [one.explanation for one in failed]
    if failed and failed[0].ends_it and _gives_way(cause, matcher):
        cause, guesses = explained[0], ()
        del explained[0]
    alerts = [one for found in judged for one in found.alerts if not (failed and one.id == _ALERT)]
    cause = _with_trials(cause, alerts)
    alerts = [_with_same(one, counted, logs.symptoms) for one in alerts]
    more: list[Explanation] = []
    if logs.cause is None:
        more += [one for one in silent if one.id != STOPS]
    elif logs.cause.id in UNEXPLAINED or _is_from_outside(logs.cause, matcher):
        more += [one for one in silent if one.id == HANGS]
    more += [one for one in alerts if one.severity == "critical"]
    by_alert = {row_of(one.id) for one in alerts}
    more += [one for one in explained if one.id not in by_alert]
    known = {one.id for one in alerts} | ({_ALERT} if failed else set())
    if calls_read:
        known.add(_NO_CALLS)  # a line about a call that was not read is a slip of the model
    more += [
        one for one in logs.symptoms if one.id not in by_alert and not _told(matcher.told_by(one.id), known)
    ]
    more += [one for one in alerts if one.severity != "critical"]
    more += [one for one in silent if one.id == STOPS and logs.cause is None]
    more += [_not_asked(one.problem) for one in judged if one.problem]
    return Verdict(cause, guesses, tuple(list(_each_once(cause, more))[:SYMPTOMS]))


def with_left_out(verdict: Verdict, left_out: str) -> Verdict:
    """``verdict`` with what was not looked at, in words, so that it is no clean bill; none if that is empty."""
    others = tuple(one for one in verdict.symptoms if one.id != NOT_READ)
    return Verdict(verdict.cause, verdict.guesses, (*others, *([_not_read(left_out)] if left_out else [])))


def with_removed(verdict: Verdict, removed: Sequence[str]) -> Verdict:
    """``verdict`` with what ``clean`` has removed, in words, so that it is no clean bill; none if that is empty."""
    if not removed:
        return verdict
    words = "; ".join(removed)
    told = Explanation(
        "logs-removed",
        "warning",
        "Logs or trials of the run were removed",
        f"Not examined: {words}. They may have told what went wrong.",
        "Nothing of them can be brought back; if the run was archived before, logs/ of its archive has their ends.",
    )
    return Verdict(verdict.cause, verdict.guesses, (*verdict.symptoms, told))


def _with_trials(cause: Explanation | None, alerts: Sequence[Explanation]) -> Explanation | None:
    """A batch without tokens, with what the trials show: the logs do not say why no tool call was parsed."""
    told = next((one for one in alerts if one.id == _NO_CALLS), None)
    if cause is None or told is None or cause.id != NO_TOKENS:
        return cause
    return msgspec.structs.replace(cause, cause=told.cause, fix=told.fix, patch=told.patch, guess=told.guess)


def row_of(alert: str) -> str:
    """The row of the catalogue that an alert on the log of a service comes from, ``log:ROW:SERVICE``; of any other
    finding its own id."""
    return alert.removeprefix("log:").partition(":")[0] if alert.startswith("log:") else alert


def _with_same(
    alert: Explanation, counted: Sequence[Explanation], of_logs: Sequence[Explanation]
) -> Explanation:
    """An alert on a log, which is told once: with what trials that failed for the same reason say, and with the lines
    of other logs that have it. Any other alert as it is."""
    row = row_of(alert.id)
    if row == alert.id:
        return alert
    why = next((one.cause for one in counted if one.id == row), alert.cause)
    shown = {one.log for one in alert.evidence}
    same = [one for one in of_logs if one.id == row]
    others = (line for one in same for line in one.evidence if line.log not in shown)
    worst = min((alert.severity, *(one.severity for one in same)), key=_RANKS.index)
    return msgspec.structs.replace(alert, severity=worst, cause=why, evidence=(*alert.evidence, *others))


def _told(alert: str, known: Iterable[str]) -> bool:
    """``alert``: an id, or the beginning of several with a ``*`` at its end; "": none."""
    return bool(alert) and any(fnmatchcase(one, alert) for one in known)


def _gives_way(cause: Explanation | None, matcher: Matcher) -> bool:
    if cause is None or cause.id in UNEXPLAINED:
        return True
    row = matcher.by_id.get(cause.id)
    return row is not None and row.fails == "request"


def _is_from_outside(cause: Explanation, matcher: Matcher) -> bool:
    row = matcher.by_id.get(cause.id)
    return row is not None and "from-outside" in row.facts


def _each_once(cause: Explanation | None, found: Iterable[Explanation]) -> Iterable[Explanation]:
    """Each kind once; of the cause also the alert on a log that comes from the same row."""
    of_cause = cause.id if cause is not None else ""
    seen = {of_cause}
    for one in found:
        if one.id not in seen and row_of(one.id) != of_cause:
            seen.add(one.id)
            yield one


def _not_read(why: str) -> Explanation:
    return Explanation(
        NOT_READ,
        "warning",
        "Some files were not examined",
        f"Not examined: {why}. They may contain further errors.",
        "Give doctor only the folder or the logs of one run, as a user who may read them, and name packed logs: "
        "liverl-tui doctor PATH...",
    )


def _not_asked(why: str) -> Explanation:
    return Explanation(
        "run-not-asked",
        "warning",
        "The alerts of the run could not be read",
        why[:1].upper() + why[1:] + ".",
        "Run liverl-tui status on the host of its backend.",
    )


def evidence_of(verdict: Verdict) -> list[Evidence]:
    """All evidence of a verdict."""
    return [one for explanation in verdict.explanations for one in explanation.evidence]
