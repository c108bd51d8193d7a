"""The script of ``liverl-tui launcher slurm``, submitted to a real Slurm: a job that ends, one that is cancelled, one
that is queued again and resumes its run, and one that reaches its time limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kit.runs import ToyRun
from kit.slurm import Slurm, over, start_again
from kit.waiting import wait_until

from liverl.observe.metrics.steps import MetricsReader
from liverl.rundir.layout import RunDir

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = ("training.save_freq=1", "infrastructure.litellm_port=0")


def script(folder: Path, steps: int, *more: str) -> Path:
    file = folder / "job.sbatch"
    sets = [word for one in (*SMALL, f"training.total_steps={steps}", *more) for word in ("--set", one)]
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


def steps_of(run: ToyRun) -> list[int]:
    return [metrics.step for metrics in MetricsReader.of_run(run.run_dir).poll()]


def test_a_job_runs_to_its_end(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(tmp_path, 2))
    run = ToyRun(tmp_path / "runs" / "liverl" / "night")
    assert over(slurm, job) == "COMPLETED", slurm.output(job)
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
    assert (result.state, result.exit_code, run.tagged()) == ("stopped", 5, {}), slurm.output(job)
    assert slurm.job(job)["Restarts"] == "0"


def test_a_job_that_is_queued_again_resumes_its_run(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(tmp_path, 3))
    run = ToyRun(tmp_path / "runs" / "liverl" / "night")
    wait_until(lambda: steps_of(run), 120, "a step")
    slurm.tell("scontrol", "requeue", job)
    wait_until(lambda: slurm.job(job)["JobState"] == "PENDING", 90, "the requeue")
    assert (run.result().state, run.result().exit_code) == ("stopped", 5), slurm.output(job)
    start_again(slurm, job)
    assert over(slurm, job) == "COMPLETED", slurm.output(job)
    assert slurm.job(job)["Restarts"] == "1"
    result = run.result()
    assert (result.state, result.exit_code, result.attempt, run.tagged()) == ("done", 0, 2, {})
    assert steps_of(run) == [1, 2, 3]


def test_a_checkpoint_before_the_time_limit(slurm: Slurm, tmp_path: Path) -> None:
    """Four minutes, and the run is stopped one before; ``training.save_freq`` alone would save nothing."""
    file = script(tmp_path, 1000, "training.save_freq=1000", "batch.margin=120")
    job = slurm.submit(file, "--time=4", "--signal=B:USR1@60")
    run = ToyRun(tmp_path / "runs" / "liverl" / "night")
    wait_until(lambda: steps_of(run), 120, "a step")
    end = run.snapshot().batch_end
    assert end is not None and end.by == "squeue" and end.at is not None and end.problem == end.unsaved == ""
    assert 0 < end.at - run.snapshot().at < 240
    wait_until(lambda: slurm.job(job)["JobState"] == "PENDING", 400, "the requeue before the limit")
    result = run.result()
    assert (result.state, result.exit_code, run.tagged()) == ("stopped", 5, {}), slurm.output(job)
    saved = [
        int(path.name.removeprefix("global_step_")) for path in run.run_dir.glob("checkpoints/global_step_*")
    ]
    trainer = (run.run_dir / "attempt_001" / "logs" / "trainer.1.log").read_text()
    assert saved and f"saving a checkpoint at step {min(saved)}: the batch job ends in" in trainer
    assert max(saved) < 1000
    start_again(slurm, job)
    wait_until(
        lambda: len(RunDir(run.run_dir).attempts()) == 2 and steps_of(run)[-1] > max(saved),
        200,
        "a step of the next attempt",
    )
    (log,) = (run.run_dir / "attempt_002" / "logs").glob("trainer.*.log")
    assert f"setting global step to {max(saved)}" in log.read_text()
    slurm.tell("scancel", job)
    assert over(slurm, job) == "CANCELLED"
    wait_until(
        lambda: slurm.tell("squeue", "-h", "-j", job, "-o", "%T") == "", 90, "the end of its processes"
    )
    assert run.tagged() == {}
