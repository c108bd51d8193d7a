"""Follows the Ray job that a run's launch script has submitted."""

from __future__ import annotations

import time

from liverl.exit_codes import ExitCode, of_signal
from liverl.external.ray_job import JobSteps, RayJob, RayJobError, address_of, job_state
from liverl.model import Result, SubmittedJob
from liverl.offline.job_end import judge_job
from liverl.rundir.commands import next_command
from liverl.rundir.layout import RunDir
from liverl_tui.cli.output import echo
from liverl_tui.text.words import one_line

LOOK_S = 2.0  # seconds between two questions for a job's state
SILENT_S = 60.0  # seconds for which Ray may be silent while a job is followed
_SIGINT = 2


def of_job(run: RunDir, result: Result, job: SubmittedJob, *, follow: bool) -> int | Result:
    """The exit code where nothing is to be started: the job was running, and was followed to its end if ``follow``, or
    its state is not known. Else the run's result by the job's end."""
    whose = f"run {run.name}: its script has submitted the Ray job {job.id}"
    try:
        now = job_state(job.id, job.address)
        if not now.lives:
            return judge_job(run, result, now, _say)
        echo(f"{whose}, which is {now.state}; nothing was started", err=True)
        if not follow:
            return ExitCode.OK
        echo("following the job; Ctrl-C ends only this command", err=True)
        judged = judge_job(run, result, _followed(job, now), _say)
    except RayJobError as error:
        echo(
            f"{whose}, and its state is not known: {error}. Nothing was started.\n"
            f"To check its state: ray job status {job.id} --address {address_of(job.address)}\n"
            f"If it has ended, go on with: {next_command(result)}",
            err=True,
        )
        return ExitCode.FAILED
    except KeyboardInterrupt:
        echo(f"no longer following the Ray job {job.id}, which goes on", err=True)
        return of_signal(_SIGINT)
    echo(f"run {run.name}: {one_line(judged.summary)}", err=True)
    return int(judged.exit_code)


def _say(text: str) -> None:
    echo(text, err=True)


def _followed(job: SubmittedJob, now: RayJob) -> RayJob:
    """Wait for the job's end, and tell its states and steps.

    Raises:
        RayJobError: Ray has been silent for ``SILENT_S`` seconds.
    """
    heard = time.monotonic()
    steps, step = JobSteps(job.id, job.address), None
    while now.lives:
        time.sleep(LOOK_S)
        try:
            before, now = now.state, job_state(job.id, job.address)
            heard = time.monotonic()
            if now.state != before:
                echo(f"Ray job {job.id}: {now.state}", err=True)
            if now.state == "RUNNING":
                told = steps.look(now, heard)
                if told.step is not None and told.step != step:
                    step = told.step
                    of = f" of {told.total}" if told.total else ""
                    echo(f"Ray job {job.id}: step {step}{of}", err=True)
        except RayJobError:
            if time.monotonic() - heard > SILENT_S:
                raise
    return now
