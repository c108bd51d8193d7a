"""What exit code 0 of a trainer means, from its planned steps and those that it made: done, or ended too early. Pure.

``causes.ended.error_behind_success`` looks for an error first: if the logs have one, the run has failed. Otherwise:

1. all planned steps were made: done; more steps than planned are reported;
2. its script submitted a job, or left a program behind, and training is not over: stopped;
3. the last lines of its log tell another exit code: failed; steps are left: stopped, with the reason;
4. the number of planned steps is unknown: done after the steps that it made; without any, only its exit is reported.
   Where its log was not read completely, it is stopped: what was not read may tell more.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.causes.finding import Explanation
from liverl.causes.quiet.owed import Owed, Passed, owed
from liverl.causes.quiet.reasons import (
    JOB_FAILED,
    exit_code_hidden,
    job_command,
    job_words,
    not_judged,
    reason,
    sentence,
)
from liverl.causes.quiet.told import Submitted, Told
from liverl.util.plural import plural

NO_STEP = "ended (exit 0); no training step was seen"


class QuietEnd(msgspec.Struct, frozen=True):
    """``state``: as of a result; ``words``: the sentence behind the state; ``step``: the newest one; ``made``: steps of
    this attempt, None if that is not known; ``owed``: None if nobody says; ``cause``: why it ended, None if it is done;
    ``job``: that goes on, or whose end is not known."""

    state: Literal["done", "stopped", "failed"]
    words: str
    step: int
    made: int | None
    owed: Owed | None
    cause: Explanation | None = None
    job: Submitted | None = None


def quiet_end(
    told: Told, passed: Passed | None, steps: int, job_state: str = "", job_error: str = "", left: str = ""
) -> QuietEnd:
    """What exit code 0 without an error means. ``steps``: those that the run's metrics count, 0 without any;
    ``job_state``: what Ray says now of the job that the log does not tell the end of, empty if it was not asked or does
    not answer, ``job_error``: its message; ``left``: a program that still ran when the script ended, in words."""
    whole, step = owed(told, passed), _newest(told, steps)
    made = told.made if told.made or told.step is not None or not steps else None
    if not told.trains and told.made is None and not steps:
        made = 0
    if whole is not None and step >= whole.steps:
        return QuietEnd("done", _done(step, whole), step, made, whole)
    job = told.jobs[-1] if told.jobs else None
    if job is not None and (job.end in ("failed", "stopped") or job_state in ("FAILED", "STOPPED")):
        return _job_ended(told, whole, step, made, job, job.end or job_state.lower(), job_error)
    running = job if job is not None and not job.end and job_state != "SUCCEEDED" else None
    background = bool(left) or (bool(told.background) and not told.made and not told.has_bar)
    if told.failed and running is None:
        cause = exit_code_hidden(told)
        return QuietEnd("failed", cause.title, step, made, whole, cause)
    if whole is None and running is None and not (background and step < 1):
        if told.left_out:
            cause = not_judged(told, step)
            return QuietEnd("stopped", cause.title, step, made, None, cause)
        words = NO_STEP if step < 1 else f"{step} {plural(step, 'step')}"
        return QuietEnd("done", words, step, made, None)
    cause = reason(told, whole, step, passed, running, job_state, left)
    return QuietEnd("stopped", cause.title, step, made, whole, cause, running)


def _newest(told: Told, steps: int) -> int:
    """The newest step: a trainer that began anew and made none does not stand where an earlier one did."""
    if told.step is None:
        return steps
    return max(steps, told.step) if told.made else told.step


def _done(step: int, whole: Owed) -> str:
    differing = f" ({whole.differing})" if whole.differing else ""
    made = f"{step} {plural(step, 'step')}"
    if step > whole.steps:
        return f"{made}, more than the {whole.steps} of {whole.source}{differing}"
    return f"{step} of {whole.steps} {plural(whole.steps, 'step')}{differing}" if differing else made


def _job_ended(
    told: Told, whole: Owed | None, step: int, made: int | None, job: Submitted, end: str, error: str
) -> QuietEnd:
    """The job of a script failed, or somebody stopped it, although the script exited with 0."""
    words = f"{job_words(job)} {'failed' if end == 'failed' else 'was stopped'}"
    after = (
        ""
        if whole is None
        else f" after step {step} of {whole.steps}"
        if step
        else f" before its first step of {whole.steps}"
    )
    proof = told.proofs.get(job.id)
    cause = Explanation(
        JOB_FAILED,
        "critical" if end == "failed" else "warning",
        f"{words}{after}",
        error or "Ray reports this; the script exited with 0 all the same.",
        "Read the log of the job: its last error is the cause.",
        job_command(job).replace(" -f ", " "),
        evidence=() if proof is None else (proof,),
    )
    state: Literal["failed", "stopped"] = "failed" if end == "failed" else "stopped"
    return QuietEnd(state, cause.title, step, made, whole, cause)


__all__ = ["NO_STEP", "QuietEnd", "quiet_end", "sentence"]
