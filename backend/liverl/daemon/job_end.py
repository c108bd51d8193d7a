"""The end of a launch script that has submitted a Ray job, by what Ray says of the job and by the job's log."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from liverl.causes.inputs.ended import Ended, Why, error_behind_success
from liverl.causes.inputs.shown import cause as cause_of
from liverl.causes.quiet.end import QuietEnd, quiet_end
from liverl.causes.quiet.owed import Passed
from liverl.causes.quiet.told import Submitted, Told, joined, read_told
from liverl.daemon.ending import Verdict
from liverl.exit_codes import ExitCode
from liverl.external.ray_job import RayJob, job_log
from liverl.model import Cause, SubmittedJob
from liverl.plan.spec import STEPS_KEY, Plan
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic

SERVICE = "trainer-job"  # name of the job's log among those of the attempt
_CODES = {"done": ExitCode.OK, "stopped": ExitCode.STOPPED, "failed": ExitCode.FAILED}


def verdict_of_job(
    run: RunDir, attempt: int, plan: Plan, told: Told, steps: int, job: Submitted, now: RayJob
) -> Verdict:
    """The verdict by the job's state ``now``. The log of one that has ended is kept among those of the attempt.
    ``told``: by the script's own logs; ``steps``: those that the run's metrics count. Blocks on network and disk.

    Raises:
        RayJobError: the job's log cannot be had.
        OSError: it cannot be kept.
    """
    told = msgspec.structs.replace(told, jobs=(job,))
    if now.lives:
        end = quiet_end(told, passed_by(plan), steps, now.state)
        return verdict_of(end, None if end.cause is None else shown(end, run.path))
    path = run.logs(attempt) / f"{SERVICE}.1.log"
    write_atomic(path, job_log(job.id, job.address).encode())
    told = joined([read_told(path, shown=str(path.relative_to(run.path))), told])
    end = quiet_end(
        msgspec.structs.replace(told, jobs=(job,)), passed_by(plan), steps, now.state, now.message
    )
    if end.state == "done" and end.owed is not None:
        return verdict_of(end, None)
    why = error_behind_success(
        Ended("trainer", path), unfinished=now.state == "FAILED" or end.owed is not None
    )
    if why is not None:
        cause = cause_of(why, run.path, time.time())
        return verdict_of(msgspec.structs.replace(end, state="failed", job=None), cause)
    return verdict_of(end, None if end.cause is None else shown(end, run.path))


def shown(end: QuietEnd, run_dir: Path) -> Cause:
    """The cause of an end without an error, as it is shown."""
    assert end.cause is not None
    return cause_of(Why("trainer", end.cause), run_dir, time.time())


def passed_by(plan: Plan) -> Passed:
    """The steps that the trainer was given, by the run's plan."""
    ours = plan.script is None  # then the key of our configuration is passed on
    epochs = "training.total_epochs" if ours else "trainer.total_epochs"
    return Passed(plan.total_steps, plan.steps_by or STEPS_KEY, epochs)


def verdict_of(end: QuietEnd, cause: Cause | None) -> Verdict:
    """The verdict of an end with exit code 0, with the cause as it is shown."""
    owed = end.owed
    by = "" if owed is None else owed.differing.removeprefix("from ") or owed.source
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
