"""Checkpoints outside of the rhythm of ``training.save_freq``, in real verl 0.9.1 with its v1 trainer (profile
cpu-verl): when somebody asks for one, and before the end of the batch job.

LIVERL_TEST_VERL_PYTHON names a Python with verl. The run takes two to four minutes on two cores:
``pytest -m slow tests/stack/test_verl_before_end.py``.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from kit.verl_runs import NEEDS_VERL, PYTHON, RUN, Launch, finished, remains, result_of
from kit.waiting import wait_until

from liverl.control.blocking import Connection
from liverl.observe.metrics.steps import MetricsReader
from liverl.plan.verl_trainer import CAPACITY_END

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200), NEEDS_VERL]
ASKED = "somebody has asked for it"
ENDS = "the batch job ends in"


def steps_of(run_dir: Path) -> list[int]:
    return [metrics.step for metrics in MetricsReader.of_run(run_dir).poll()]


def saved(run_dir: Path) -> list[int]:
    """The steps whose checkpoint is complete: verl writes the number of the newest one last."""
    newest = run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"
    text = newest.read_text() if newest.exists() else ""  # empty for a moment
    found = (int(path.name.removeprefix("global_step_")) for path in newest.parent.glob("global_step_*"))
    return sorted(step for step in found if step <= int(text or 0))


def said(run_dir: Path, words: str) -> list[int]:
    """The steps at which the plug-in said that it saves, with these words."""
    text = (run_dir / "attempt_001" / "logs" / "trainer.1.log").read_text()
    begins = "liverl: saving a checkpoint at step "
    parts = (line.partition(begins)[2].partition(": ") for line in text.splitlines() if begins in line)
    return [int(step) for step, _, why in parts if words in why]


def change(run_dir: Path, **values: str) -> None:
    with Connection(run_dir) as connection:
        connection.command(
            "reconfigure", {"values": {f"batch.{key}": value for key, value in values.items()}}
        )


def test_a_checkpoint_when_somebody_asks_and_before_the_end_of_the_job(launch: Launch) -> None:
    later = f"batch.end_time={time.time() + 7200:.0f}"
    process = launch.up("end", "training.total_steps=100", "training.save_freq=50", later, "batch.margin=0")
    run_dir = launch.run_dir("end")
    wait_until(lambda: steps_of(run_dir), RUN, "a step")
    assert said(run_dir, "") == [] and saved(run_dir) == []
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: saved(run_dir), 200, "the checkpoint that was asked for")
    first = saved(run_dir)
    assert len(first) == 1 and said(run_dir, ASKED) == first and said(run_dir, ENDS) == []
    wait_until(lambda: steps_of(run_dir)[-1] > first[0], 200, "another step")
    assert saved(run_dir) == first, "one was asked for"
    change(run_dir, margin="100000")
    wait_until(lambda: len(saved(run_dir)) > 1, 200, "the checkpoint before the end")
    assert said(run_dir, ENDS)[0] == saved(run_dir)[1] > first[0]
    change(run_dir, margin="0")
    process.send_signal(signal.SIGTERM)
    assert finished(process) == 5, launch.output("end").read_text()[-3000:]
    result = result_of(run_dir)
    assert (result.state, remains(run_dir)) == ("stopped", {})
    events = (run_dir / "events.jsonl").read_text()
    assert "trainer saves a checkpoint at the end of its present step, as SIGUSR1 to up" in events


def test_the_other_trainers_of_verl_know_the_end_by_their_variable() -> None:
    """``should_save_ckpt_esi`` of the installed verl, with what they are given: the end less the margin."""
    code = (
        "from verl.utils.checkpoint.checkpoint_manager import should_save_ckpt_esi as due\n"
        "print(due(max_steps_duration=100, save_ckpt_duration=60))"
    )
    for left, expected in ((150.0, "True"), (300.0, "False"), (-5.0, "False")):
        env = {"PATH": "/usr/bin:/bin", CAPACITY_END: f"{time.time() + left:.0f}"}
        done = subprocess.run([PYTHON, "-c", code], env=env, text=True, capture_output=True, check=True)
        assert done.stdout.split()[-1] == expected
    env[CAPACITY_END] = ""
    done = subprocess.run([PYTHON, "-c", code], env=env, text=True, capture_output=True, check=True)
    assert done.stdout.split()[-1] == "False", "without an end nothing is saved before it"
