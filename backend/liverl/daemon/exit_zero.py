"""What exit code 0 of a run's trainer means: its logs decide, together with the steps that it owed.

The exit code of a launch script may be that of the last command of a pipe, such as ``tee``; its trainer may have ended
early, or go on as a job that the script has only submitted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from liverl.causes.ended import Why
from liverl.causes.quiet.end import QuietEnd, quiet_end
from liverl.causes.quiet.owed import Passed
from liverl.causes.quiet.reasons import left_trainer
from liverl.causes.quiet.told import Submitted, Told, joined
from liverl.causes.shown import cause as cause_of
from liverl.causes.unexplained import FIRST_ERROR
from liverl.daemon.ending import Verdict
from liverl.exit_codes import ExitCode
from liverl.external.ray_job import RayJobError, job_state, job_told
from liverl.model import Cause, SubmittedJob
from liverl.plan.spec import Plan
from liverl.plan.steps import KEY as STEPS_KEY
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.supervisor import Supervisor

COUNT_S = 10.0  # seconds for reading which steps are done
_LOST_CODE = (
    "The exit code 0 hides it: a shell script returns that of the last command of a pipe, such as tee, unless it "
    "begins with `set -o pipefail`."
)

_CODES = {"done": ExitCode.OK, "stopped": ExitCode.STOPPED, "failed": ExitCode.FAILED}


async def judged(
    supervisor: Supervisor, trainer: Instance, progress: Callable[[], Awaitable[int]]
) -> Verdict:
    """The verdict where the trainer exited with 0. ``progress``: counts the finished steps anew."""
    steps, causes, plan = 0, supervisor.end_causes, supervisor.plan
    with contextlib.suppress(TimeoutError):  # then the log alone tells
        async with asyncio.timeout(COUNT_S):
            steps = await progress()
    told, passed = await causes.told(trainer), passed_by(plan)
    left = left_trainer(trainer.left_behind) if plan.script is not None else ""
    end = quiet_end(told, passed, steps, left=left)
    if end.state == "done" and end.owed is not None:
        return verdict_of(end, None)
    found = await causes.behind_success(trainer, unfinished=end.owed is not None)
    if found is not None:
        text = f"it exited with 0, but its log ends with an error: {found.text.rpartition(FIRST_ERROR)[2]}"
        fix = f"{found.fix} {_LOST_CODE}" if plan.script is not None else found.fix
        failed = msgspec.structs.replace(found, text=text, fix=fix)
        return verdict_of(msgspec.structs.replace(end, state="failed", job=None), failed)
    if end.job is not None and end.job.system == "ray":
        end = await _of_job(told, passed, steps, end.job, left)
    cause = None
    if end.cause is not None:
        cause = cause_of(Why(trainer.name, end.cause), supervisor.run_dir, supervisor.now())
    return verdict_of(end, cause)


async def _of_job(told: Told, passed: Passed, steps: int, job: Submitted, left: str) -> QuietEnd:
    """The end of a script whose Ray job may go on without it, by what Ray says of the job now."""
    try:
        now = await asyncio.to_thread(job_state, job.id, job.address)
        if now.state == "SUCCEEDED":
            told = joined([await asyncio.to_thread(job_told, job.id, job.address), told])
    except RayJobError:
        return quiet_end(told, passed, steps, left=left)
    return quiet_end(told, passed, steps, now.state, now.message, left)


def passed_by(plan: Plan) -> Passed:
    """The steps that the trainer was given, by the run's plan."""
    ours = plan.script is None  # then the key of our configuration is passed on
    epochs = "training.total_epochs" if ours else "trainer.total_epochs"
    return Passed(plan.total_steps, plan.steps_by or STEPS_KEY, epochs)


def verdict_of(end: QuietEnd, cause: Cause | None) -> Verdict:
    """The verdict of an end with exit code 0, with the cause as it is shown."""
    owed = end.owed
    by = "" if owed is None else owed.differing.removeprefix("by ") or owed.source
    job = None if end.job is None else SubmittedJob(end.job.system, end.job.id, end.job.address)
    return Verdict(
        end.state,
        _CODES[end.state],
        cause,
        words=end.words,
        step=end.step,
        made=end.made,
        total_steps=None if owed is None else owed.steps,
        steps_by=by,
        job=job,
    )
