"""The default run in a batch job: the end that squeue tells (a toy, simulated), and checkpoints outside of the rhythm
of ``training.save_freq``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.runs import ToyRun
from kit.waiting import wait_until

import liverl
from liverl.observe.metrics.steps import MetricsReader
from liverl.rundir.layout import LiveBackend, backend_alive

SMALL = (
    *("proxy.trials_through=sessions", "infrastructure.litellm_port=0"),
    *("training.train_batch_size=2", "training.n_resp_per_prompt=2"),
    *("training.train_prompt_mini_batch_size=2", "training.total_steps=1000", "training.save_freq=1000"),
    *("embedded.turn_latency=0.05", "batch.margin=0"),
)


@pytest.mark.stack
def test_a_run_saves_when_it_is_asked_and_before_the_end_of_its_job(tmp_path: Path) -> None:
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    ends = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 3600))
    squeue.write_text(f"#!/bin/sh\necho {ends}\n")
    squeue.chmod(0o755)
    env = {**os.environ, "PATH": f"{squeue.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    words = [
        sys.executable,
        "-m",
        "liverl_tui",
        "up",
        "--no-ui",
        "--name",
        "n",
        "--run-root",
        str(tmp_path / "runs"),
    ]
    words += [word for one in SMALL for word in ("--set", one)]
    run = ToyRun(tmp_path / "runs" / "liverl" / "n")
    with open(tmp_path / "up.log", "ab") as log:
        up = subprocess.Popen(words, env=env, cwd=tmp_path, stdout=log, stderr=log)

    def hears() -> bool:
        """Whether ``up`` has a handler of SIGUSR1."""
        status = Path(f"/proc/{up.pid}/status").read_text()
        return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> signal.SIGUSR1 - 1 & 1)

    def saved() -> int:
        """The newest step with a checkpoint."""
        assert up.poll() is None, (tmp_path / "up.log").read_text()
        newest = run.run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"
        return int(newest.read_text() or 0) if newest.exists() else 0

    def told(who: str) -> None:
        """Wait for the event: the trainer may have saved before the backend has written it."""
        end = f"trainer saves a checkpoint at the end of its present step, as {who} asked"
        wait_until(lambda: end in [e.text for e in run.events() if e.kind == "checkpoint"], what=end)

    try:
        wait_until(hears, what="its handler")
        up.send_signal(signal.SIGUSR1)  # there is no run yet
        early = "SIGUSR1: there is no checkpoint to save: this command has started no trainer yet"
        wait_until(lambda: early in (tmp_path / "up.log").read_text(), what="what it says to that")
        wait_until(lambda: MetricsReader.of_run(run.run_dir).poll(), what="a step")
        end = run.snapshot().batch_end
        assert end is not None and end.at is not None and (end.by, end.unsaved) == ("squeue", "")
        assert 3000 < end.at - run.snapshot().at <= 3600 and saved() == 0
        up.send_signal(signal.SIGUSR1)
        first = wait_until(saved, what="the checkpoint that was asked for")
        told(f"SIGUSR1 to up (pid {up.pid})")
        backend = backend_alive(run.run_dir)
        assert isinstance(backend, LiveBackend)
        os.kill(backend.record.pid, signal.SIGUSR1)
        second = wait_until(lambda: saved() if saved() > first else 0, what="the second one")
        told(f"SIGUSR1 to the backend (pid {backend.record.pid})")
        liverl.command(run.run_dir, "reconfigure", values={"batch.margin": "100000"})
        third = wait_until(lambda: saved() if saved() > second else 0, what="the one before the end")
        trainer = (run.run_dir / "attempt_001" / "logs" / "trainer.1.log").read_text()
        assert f"liverl: saving a checkpoint at step {first}: somebody has asked for it" in trainer
        assert f"liverl: saving a checkpoint at step {third}: the batch job ends in 3" in trainer
        up.send_signal(signal.SIGTERM)
        assert up.wait(120) == 5, (tmp_path / "up.log").read_text()
    finally:
        up.kill()
        run.end()
    # 59, or less where minutes have passed until it is said.
    assert re.search(r"the batch job ends in [345]\d min, at", (tmp_path / "up.log").read_text())
