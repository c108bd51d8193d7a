"""The result of a run whose launch script has only submitted a Ray job, once the job has ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable

import msgspec

from liverl.causes.quiet.told import Submitted, Told, joined, read_told
from liverl.daemon.ending import Verdict, summary_of
from liverl.daemon.job_end import verdict_of_job
from liverl.external.ray_job import RayJob, RayJobError
from liverl.logs.files import also_written, log_files
from liverl.model import Result, Rewards
from liverl.offline.job_news import message_of, tell
from liverl.plan.spec import Plan
from liverl.rundir.commands import resume_command
from liverl.rundir.layout import RunDir
from liverl.util import redact
from liverl.util.atomic_file import write_atomic
from liverl.util.decode import decode_json
from liverl.util.lock_file import open_lock
from liverl.util.regular_file import read_regular


def judge_job(
    run: RunDir, result: Result, now: RayJob, say: Callable[[str], None] = lambda _: None
) -> Result:
    """The result of an attempt whose Ray job has ended, without secrets, written in place of ``result``; the targets of
    the run's notifications are told of it, and ``say`` of each delivery. Where somebody else has written another result
    meanwhile, that one.

    Raises:
        RayJobError: the job's log cannot be had, the run's files cannot be read or written, or a backend of the run is
            alive.
    """
    assert result.job is not None
    job = Submitted(result.job.system, result.job.id, result.job.address)
    try:
        plan = decode_json(read_regular(run.plan), type=Plan)
        verdict = verdict_of_job(run, result.attempt, plan, _of_script(run), result.steps, job, now)
        judged = redact.struct(_result(run, result, verdict))
        found = _replace(run, result, judged)
        if found is judged:
            tell(run, plan.notify, message_of(run, judged, job.id), say)
    except (OSError, ValueError) as error:
        raise RayJobError(f"the job's end cannot be judged: {error}") from None
    return found


def _of_script(run: RunDir) -> Told:
    """What the logs of the script itself have told."""
    own = [file.path for file in log_files(run, ("trainer",))][-1:]
    found = []
    for path in [*own, *(other for log in own for other in also_written(log))]:
        with contextlib.suppress(FileNotFoundError):
            found.append(read_told(path, shown=path.name))
    return joined(found)


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


def _replace(run: RunDir, before: Result, judged: Result) -> Result:
    """Write the result while no backend holds the run, unless it is not ``before`` any more: another command has judged
    the same job, or an attempt has begun and ended. Returns the result that the run has then."""
    fd = open_lock(run.lock, only_locked=True)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RayJobError("a backend of the run is alive") from None
        present = run.read_result()
        if present is not None and present != before:
            return present
        write_atomic(run.result, msgspec.json.format(msgspec.json.encode(judged)))
        return judged
    finally:
        os.close(fd)
