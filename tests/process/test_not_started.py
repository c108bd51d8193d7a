"""What is not started: the reason stands in no log, and is told with what to do; nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kit.cli import run_cli
from kit.drills import Drill, ended
from kit.runs import QUICK, ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.daemon.launch import LaunchError, start_backend
from liverl.model import Result

CRASHES_AT_ITS_START = """
import sys
from liverl.daemon import main

def broken(run):
    raise AssertionError("an error that nobody expected")

main._signals = broken
sys.argv[1:] = ["--run-dir", sys.argv[1]]
main.main()
"""


def test_a_replica_without_a_gpu_is_told_everywhere_with_the_fix(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    run = ending(make_run(tmp_path, [toy("replica-0", "serve", kind="replica", gpus=1, restart=QUICK)]))
    at = time.time()
    run.start(env={"CUDA_VISIBLE_DEVICES": ""})
    drill = Drill(
        "no GPU for a replica",
        "service_gave_up:replica-0",
        ("needs 1 GPU, 0 of 0 free", "shows this run no GPU"),
        ("CUDA_VISIBLE_DEVICES",),
    )
    result = ended(run, drill, at)
    assert result.cause is not None and result.cause.id == "gpus-not-seen"
    said = run_cli("doctor", run.run_dir)
    assert said.returncode == 1
    flat = " ".join(said.stdout.split())
    assert result.cause.text in flat and result.cause.fix in flat and "says nothing" not in flat


def test_a_backend_that_crashes_at_its_start_leaves_no_keeper(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    run = ending(make_run(tmp_path, [toy("a", "sleep")]))
    crashed = subprocess.run(
        [sys.executable, "-c", CRASHES_AT_ITS_START, str(run.run_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert crashed.returncode == 1 and "an error that nobody expected" in crashed.stderr
    assert (run.run_dir / "keeper.json").exists(), "it had started one"
    wait_until(lambda: not run.tagged(), what="the keeper's end")


@pytest.mark.parametrize("plan", ["[" * 100_000, ""])
def test_the_result_of_the_last_attempt_is_none_of_one_that_did_not_begin(tmp_path: Path, plan: str) -> None:
    folder = tmp_path / "p" / "r"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(plan)
    ended = Result("done", 0, None, 3, 1.0, 2.0, 1, "done")
    (folder / "result.json").write_bytes(msgspec.json.encode(ended))
    with pytest.raises(LaunchError, match=r"plan\.json"):
        start_backend(folder, resume=True)
    said = run_cli("up", "--resume", "--no-ui", "--yes", "--run", folder)
    assert said.returncode != 0 and "plan.json" in said.stderr and "Traceback" not in said.stderr
