"""What exit code 0 of a run's trainer means: its logs decide, together with the steps that it owed.

The exit code of a launch script may be that of the last command of a pipe, such as ``tee``; its trainer may have ended
early, or go on as a job that the script has only submitted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from liverl.causes.quiet.end import quiet_end
from liverl.causes.quiet.reasons import left_trainer
from liverl.causes.quiet.told import Submitted, Told
from liverl.causes.verdict.unexplained import FIRST_ERROR
from liverl.daemon.end_causes import NotReadError
from liverl.daemon.ending import Verdict
from liverl.daemon.job_end import passed_by, shown, verdict_of, verdict_of_job
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.external.ray_job import RayJobError, job_state
from liverl.rundir.layout import RunDir
from liverl.supervise.services.instance import Instance

COUNT_S = 10.0  # seconds for reading which steps are done
_LOST_CODE = (
    "Exit code 0 hides the error, because the script returns the exit code of the last command of a pipe, such as "
    "tee: begin the script with `set -o pipefail`."
)


async def judged(
    supervisor: RunSupervisor, trainer: Instance, progress: Callable[[], Awaitable[int]]
) -> Verdict:
    """The verdict where the trainer exited with 0. ``progress``: counts the finished steps anew."""
    steps, causes, plan = 0, supervisor.end_causes, supervisor.plan
    with contextlib.suppress(TimeoutError):  # then only the log is used
        async with asyncio.timeout(COUNT_S):
            steps = await progress()
    told = await causes.told(trainer)
    left = left_trainer(trainer.left_behind) if plan.script is not None else ""
    end = quiet_end(told, passed_by(plan), steps, left=left)
    if end.state == "done" and end.owed is not None:
        return verdict_of(end, None)
    found, unread = None, ""
    try:
        found = await causes.behind_success(trainer, unfinished=end.owed is not None)
    except NotReadError as error:
        unread = str(error)
    if unread and end.state == "done":
        told = msgspec.structs.replace(told, left_out="; ".join(filter(None, (told.left_out, unread))))
        end = quiet_end(told, passed_by(plan), steps, left=left)
    if found is not None:
        text = f"it exited with 0, but its log ends with an error: {found.text.rpartition(FIRST_ERROR)[2]}"
        fix = f"{found.fix} {_LOST_CODE}" if plan.script is not None else found.fix
        failed = msgspec.structs.replace(found, text=text, fix=fix)
        return verdict_of(msgspec.structs.replace(end, state="failed", job=None), failed)
    if end.job is not None and end.job.system == "ray":
        of_job = await _by_job(supervisor, told, steps, end.job)
        if of_job is not None:
            return of_job
    return verdict_of(end, None if end.cause is None else shown(end, supervisor.run_dir))


async def _by_job(supervisor: RunSupervisor, told: Told, steps: int, job: Submitted) -> Verdict | None:
    """The verdict by the Ray job that may go on without its script; None if Ray does not tell."""

    def ask() -> Verdict:
        now = job_state(job.id, job.address)
        run = RunDir(supervisor.run_dir)
        return verdict_of_job(run, supervisor.attempt, supervisor.plan, told, steps, job, now)

    try:
        return await asyncio.to_thread(ask)
    except (RayJobError, OSError) as error:
        supervisor.say(
            "job", f"the state of the Ray job {job.id} is not known: {error}", "warning", "trainer"
        )
        return None
