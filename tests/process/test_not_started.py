"""Services that the program does not start: the reason stands in no log, and is told with what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from kit.cli import run_cli
from kit.drills import Drill, ended
from kit.runs import QUICK, ToyRun, make_run, toy


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
