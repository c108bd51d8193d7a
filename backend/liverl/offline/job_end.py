"""The end of a run whose launch script has only submitted a Ray job: judged once the job has ended, by its log."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

import msgspec

from liverl.causes.ended import Ended, Why, error_behind_success
from liverl.causes.quiet.end import quiet_end
from liverl.causes.quiet.told import Told, joined, read_told
from liverl.causes.shown import cause as cause_of
from liverl.daemon.ending import Verdict, summary_of
from liverl.daemon.exit_zero import passed_by, verdict_of
from liverl.external.ray_job import RayJob, RayJobError, job_log
from liverl.logs.files import also_written, log_files
from liverl.model import Result, Rewards
from liverl.plan.spec import Plan
from liverl.rundir.commands import resume_command
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic
from liverl.util.regular_file import read_regular

SERVICE = "trainer-job"  # name of the job's log among those of the attempt


def judge_job(run: RunDir, result: Result, job: RayJob) -> Result:
    """The result of an attempt whose Ray job has ended: written in place of ``result``, unless a backend of the run is
    alive. The job's log is kept among those of the attempt.

    Raises:
        RayJobError: the job's log cannot be had, or the run's files cannot be read or written.
    """
    assert result.job is not None
    try:
        log = _keep_log(run, result, job_log(result.job.id, result.job.address))
        judged = _result(run, result, _verdict(run, result, job, log))
        _write(run, judged)
    except (OSError, ValueError) as error:
        raise RayJobError(f"the job's end cannot be judged: {error}") from None
    return judged


def _keep_log(run: RunDir, result: Result, text: str) -> Path:
    path = run.logs(result.attempt) / f"{SERVICE}.1.log"
    write_atomic(path, text.encode())
    return path


def _verdict(run: RunDir, result: Result, job: RayJob, log: Path) -> Verdict:
    assert result.job is not None
    plan = msgspec.json.decode(read_regular(run.plan), type=Plan)
    of_job = read_told(log, shown=str(log.relative_to(run.path)))
    told = joined([of_job, *_of_script(run)])
    jobs = tuple(one for one in told.jobs if one.id == result.job.id)
    end = quiet_end(
        msgspec.structs.replace(told, jobs=jobs), passed_by(plan), result.steps, job.state, job.message
    )
    if end.state == "done" and end.owed is not None:
        return verdict_of(end, None)
    failed = job.state == "FAILED"
    why = error_behind_success(Ended("trainer", log), unfinished=failed or end.owed is not None)
    if why is not None:
        cause = cause_of(why, run.path, time.time())
        return verdict_of(msgspec.structs.replace(end, state="failed", job=None), cause)
    if end.cause is None:
        return verdict_of(end, None)
    return verdict_of(end, cause_of(Why("trainer", end.cause), run.path, time.time()))


def _of_script(run: RunDir) -> list[Told]:
    """What the logs of the script itself have told."""
    own = [file.path for file in log_files(run, ("trainer",))][-1:]
    found = []
    for path in [*own, *(other for log in own for other in also_written(log))]:
        with contextlib.suppress(FileNotFoundError):
            found.append(read_told(path, shown=path.name))
    return found


def _result(run: RunDir, before: Result, verdict: Verdict) -> Result:
    snapshot = run.read_snapshot()
    rewards = snapshot.rewards if snapshot is not None else Rewards()
    return msgspec.structs.replace(
        before,
        state=verdict.state,
        exit_code=verdict.exit_code,
        cause=verdict.cause,
        steps=max(before.steps, verdict.step or 0),
        ended_at=time.time(),
        summary=summary_of(verdict, None, rewards, verdict.step or 0, False),
        resume=None if verdict.state == "done" else resume_command(run.path),
        total_steps=verdict.total_steps or before.total_steps,
        steps_by=verdict.steps_by or before.steps_by,
        made=verdict.made,
        job=verdict.job,
    )


def _write(run: RunDir, result: Result) -> None:
    """Write the result while no backend holds the run."""
    fd = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_atomic(run.result, msgspec.json.format(msgspec.json.encode(result)))
    finally:
        os.close(fd)
