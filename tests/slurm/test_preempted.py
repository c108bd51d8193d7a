"""verl on two nodes of a real Slurm, by the script of ``liverl-tui launcher slurm``: preempted, queued again, and
resumed without anybody's help.

The nodes are namespaces of this machine (``kit.net_hosts``); Ray, verl and Slurm are real, the replicas are those for
CPUs. The environment with verl is that of ``kit.verl_runs``. It takes eight to fifteen minutes on two cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.runs import ToyRun
from kit.slurm import Slurm, over, start_again
from kit.verl_runs import RUN, nothing_lives, smoke_directory, verl_python
from kit.waiting import wait_until

from liverl.observe.metrics.steps import MetricsReader

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]

STEPS = 6
HIGH = "#!/bin/sh\nexec sleep 5\n"


def script(folder: Path, smoke: Path) -> Path:
    file = folder / "job.sbatch"
    sets = (
        *("infrastructure.ngpus_per_node=1", "run.topology=in_process", f"training.total_steps={STEPS}"),
        *("training.save_freq=2", f"model.model_path=smoke:{smoke}"),
        f"environments.verl.venv_path={verl_python().parent.parent}",
    )
    words = ["--nodes", "2", "--profile", "cpu-verl", "--name", "night", "--run-root", str(folder / "runs")]
    words += [word for one in sets for word in ("--set", one)]
    subprocess.run(
        [sys.executable, "-m", "liverl_tui", "launcher", "slurm", "-o", str(file), *words],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return file


def steps_of(run: ToyRun) -> list[int]:
    return [metrics.step for metrics in MetricsReader.of_run(run.run_dir).poll()]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield


def test_a_preempted_job_on_two_nodes_resumes_its_run(
    state: None, two_hosts: Slurm, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    slurm, run = two_hosts, ToyRun(tmp_path / "runs" / "liverl" / "night")
    job = slurm.submit(script(tmp_path, smoke_directory(tmp_path_factory)))
    newest = run.run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"

    def saved() -> bool:
        assert slurm.job(job)["JobState"] in ("PENDING", "RUNNING"), slurm.output(job)[-3000:]
        return newest.exists() and bool(newest.read_text())

    wait_until(saved, RUN, "a checkpoint")
    assert {node.name for node in run.snapshot().nodes if node.state == "ready"} == {"n0", "n1"}
    high = tmp_path / "high.sh"
    high.write_text(HIGH)
    other = slurm.submit(high, "--partition=high", "--nodes=2", "--exclusive")
    wait_until(lambda: slurm.job(job)["JobState"] == "PENDING", 120, "the preemption")
    wait_until((run.run_dir / "result.json").exists, 60, "the result")
    stopped = run.result()
    assert (stopped.state, stopped.exit_code, stopped.attempt) == ("stopped", 5, 1), slurm.output(job)[-3000:]
    nothing_lives(run.run_dir)
    assert over(slurm, other) == "COMPLETED"
    before = int(newest.read_text())
    start_again(slurm, job)

    assert over(slurm, job, RUN) == "COMPLETED", slurm.output(job)[-3000:]
    assert slurm.job(job)["Restarts"] == "1"
    result = run.result()
    assert (result.state, result.exit_code, result.attempt) == ("done", 0, 2)
    assert steps_of(run) == list(range(1, STEPS + 1))
    log = "".join(path.read_text() for path in (run.run_dir / "attempt_002" / "logs").glob("trainer.*.log"))
    assert f"global_step_{before}" in log, "it went on from its newest checkpoint"
    nothing_lives(run.run_dir)
    assert os.environ["XDG_STATE_HOME"] == str(tmp_path / "state")
