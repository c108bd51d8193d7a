"""``examples/gsm8k`` as its page says: rows, then a run of profile cpu-verl with the example's reward, in real verl."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from kit.real import trial_dirs
from kit.verl_runs import NEEDS_VERL, PYTHON, Launch, finished, result_of, smoke_directory

EXAMPLE = Path(__file__).parents[2] / "examples" / "gsm8k"

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200), NEEDS_VERL]


def test_the_example_trains_on_its_rows_with_its_reward(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = tmp_path / "own"
    shutil.copytree(EXAMPLE, own)
    made = subprocess.run(
        [PYTHON, "make_rows.py", "problems.jsonl"], cwd=own, check=True, capture_output=True, text=True
    )
    assert made.stdout == "train.parquet: 9 rows\nval.parquet: 3 rows\n"
    launch = Launch(tmp_path, smoke_directory(tmp_path_factory))
    run_dir = launch.run_dir("gsm8k")
    try:
        process = launch.up("gsm8k", config=own / "config.yaml")
        assert finished(process) == 0, launch.output("gsm8k").read_text()[-3000:]
    finally:
        launch.end()
    result = result_of(run_dir)
    assert (result.state, result.steps, result.cause) == ("done", 2, None)
    trials = trial_dirs(run_dir)
    assert len(trials) == 2 * 8 * 4
    told = [json.loads((trial / "result.json").read_text()) for trial in trials]
    # The smoke model is random: it writes no answer.
    assert {one["verifier_result"]["rewards"]["reward"] for one in told} <= {0.0, 0.1, 1.0}
