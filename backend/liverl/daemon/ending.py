"""Why a run ends, and the one sentence that its result says about it. Pure."""

from __future__ import annotations

import msgspec

from liverl.causes.inputs.shown import words_of
from liverl.causes.quiet.end import NO_STEP
from liverl.causes.quiet.reasons import EARLY, JOB, JOB_FAILED, QUIET
from liverl.causes.verdict.unexplained import UNEXPLAINED
from liverl.diagnose.catalogue.agents import NO_TOKENS
from liverl.diagnose.failures import may_end_a_replica
from liverl.model import Cause, Rewards, SubmittedJob, Symptom
from liverl.observe.metrics.rewards import untrained_words, words


class Verdict(msgspec.Struct, frozen=True):
    """Why the run ends. Only the first verdict of an attempt counts. ``unread``: the name of the service whose logs
    have yet to tell the cause; ``outside``: that service goes on; what failed is one of its replicas. Of an end with
    exit code 0 ``words``: what is said behind its state, and the rest: see ``Result``; ``step``: the newest one."""

    state: str  # done, failed, stopped
    exit_code: int  # of ``exit_codes``
    cause: Cause | None = None
    unread: str | None = None
    outside: bool = False
    words: str = ""
    step: int | None = None
    made: int | None = None
    total_steps: int | None = None
    steps_by: str = ""
    job: SubmittedJob | None = None


def summary_of(
    verdict: Verdict, diagnosis: Symptom | None, rewards: Rewards, steps: int, was_ready: bool
) -> str:
    """The one sentence on an end. ``steps``: finished ones; ``was_ready``: everything served at some time."""
    cause = verdict.cause
    if verdict.state == "done":
        said = _done_words(verdict, rewards, steps)
        # training reached its last step, but with these problems
        problem = diagnosis.title if diagnosis is not None else ""
        but = "; ".join(filter(None, (untrained_words(rewards.untrained), problem)))
        return f"{said}; but {but}" if but else said
    if cause is None:
        return verdict.state
    if cause.id in QUIET or cause.id == JOB_FAILED:
        why = "" if cause.id in (EARLY, JOB, JOB_FAILED) else f". {cause.why.rstrip('.')}"
        return f"{verdict.state}: {cause.text}{why}"
    unexplained = cause.id in ("", NO_TOKENS, *UNEXPLAINED)  # else that says it all
    if diagnosis is not None and verdict.outside and not may_end_a_replica(diagnosis.id):
        diagnosis = None
    problem = (
        f"{diagnosis.title}; " if diagnosis is not None and verdict.state == "failed" and unexplained else ""
    )
    said = words_of(cause, steps + 1 if was_ready else None) if verdict.state == "failed" else cause.text
    if diagnosis is not None and verdict.state == "stopped":
        said = f"{said.rstrip('.')}; it had this problem: {diagnosis.title}"
    repeats = said.startswith(f"{verdict.state} ")  # stopped by somebody
    return said if repeats else f"{verdict.state}: {problem}{said}"


def _done_words(verdict: Verdict, rewards: Rewards, steps: int) -> str:
    if verdict.words == NO_STEP:
        return NO_STEP
    learnt = words(rewards, steps)
    if verdict.total_steps is not None and (not learnt or _notable(verdict)):
        count = f"{verdict.words}; " if learnt else verdict.words
        return f"done: {count}{learnt or ''}"
    return f"done: {learnt or verdict.words or 'completed'}"


def _notable(verdict: Verdict) -> bool:
    """Whether more is to be said of the number of steps than that all of them were made."""
    return (verdict.step or 0) > (verdict.total_steps or 0) or "; " in verdict.steps_by
