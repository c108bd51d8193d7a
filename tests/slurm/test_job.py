"""The script of ``liverl-tui launcher slurm``, submitted to a real Slurm: a job that ends, one that is cancelled, and
one that is queued again and resumes its run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kit.runs import ToyRun
from kit.slurm import Slurm
from kit.waiting import wait_until

from liverl.observe.metrics.steps import MetricsReader

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = ("training.save_freq=1", "infrastructure.litellm_port=0")
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def script(folder: Path, steps: int) -> Path:
    file = folder / "job.sbatch"
    sets = [word for one in (*SMALL, f"training.total_steps={steps}") for word in ("--set", one)]
    words = [
        "launcher",
        "slurm",
        "--name",
        "night",
        "--run-root",
        str(folder / "runs"),
        "-o",
        str(file),
        *sets,
    ]
    subprocess.run(
        [sys.executable, "-m", "liverl_tui", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return file


def output(slurm: Slurm, job: str) -> str:
    return (slurm.folder / f"slurm-{job}.out").read_text()


def over(slurm: Slurm, job: str) -> str:
    """The state in which the job has ended."""
    return wait_until(
        lambda: next((s for s in OVER if slurm.job(job)["JobState"] == s), ""), 300, "the job's end"
    )


def steps_of(run: ToyRun) -> list[int]:
    return [metrics.step for metrics in MetricsReader.of_run(run.run_dir).poll()]


def test_a_job_runs_to_its_end(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(tmp_path, 2))
    run = ToyRun(tmp_path / "runs" / "liverl" / "night")
    assert over(slurm, job) == "COMPLETED", output(slurm, job)
    assert slurm.job(job)["ExitCode"] == "0:0"
    result = run.result()
    assert (result.state, result.exit_code, result.steps, run.tagged()) == ("done", 0, 2, {})


def test_a_cancelled_job_is_stopped_and_not_queued_again(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(tmp_path, 500))
    run = ToyRun(tmp_path / "runs" / "liverl" / "night")
    wait_until(lambda: steps_of(run), 120, "a step")
    slurm.tell("scancel", job)
    assert over(slurm, job) == "CANCELLED"
    wait_until(
        lambda: slurm.tell("squeue", "-h", "-j", job, "-o", "%T") == "", 90, "the end of its processes"
    )
    result = run.result()
    assert (result.state, result.exit_code, run.tagged()) == ("stopped", 5, {}), output(slurm, job)
    assert slurm.job(job)["Restarts"] == "0"


def test_a_job_that_is_queued_again_resumes_its_run(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(tmp_path, 3))
    run = ToyRun(tmp_path / "runs" / "liverl" / "night")
    wait_until(lambda: steps_of(run), 120, "a step")
    slurm.tell("scontrol", "requeue", job)
    wait_until(lambda: slurm.job(job)["JobState"] == "PENDING", 90, "the requeue")
    assert (run.result().state, run.result().exit_code) == ("stopped", 5), output(slurm, job)
    slurm.tell("scontrol", "update", f"JobId={job}", "StartTime=now")  # else Slurm waits two minutes
    assert over(slurm, job) == "COMPLETED", output(slurm, job)
    assert slurm.job(job)["Restarts"] == "1"
    result = run.result()
    assert (result.state, result.exit_code, result.attempt, run.tagged()) == ("done", 0, 2, {})
    assert steps_of(run) == [1, 2, 3]
