"""A run of profile cpu-verl whose agents compact their history: trials with several rows in real verl 0.9.1.

LIVERL_TEST_VERL_PYTHON names a Python with verl. The run takes two to four minutes on two cores:
``pytest -m slow tests/stack/test_verl_rows.py``.
"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest
from kit.real import records, trial_dirs
from kit.trained import read, rows_of, trained_scores
from kit.verl_runs import NEEDS_VERL, PYTHON, Launch, finished, result_of, smoke_directory

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    NEEDS_VERL,
]
STEPS = 3
TRIALS = 8 * 4  # of a step: prompts, and trials of each
DIFFERENCE = 0.005  # as in test_verl_sessions.py


def compacting_environment(folder: Path) -> Path:
    """An environment above the one with verl, in which agents compact their history."""
    environment = folder / "compacting"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    below = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = (
        f"import site; site.addsitedir({below.stdout.strip()!r})",
        str(Path(__file__).parent),
        "import compacting_inside",
    )
    (site / "compacting.pth").write_text("\n".join(lines) + "\n")
    return environment


def test_verl_trains_each_sampled_token_of_trials_with_several_rows_once(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    launch = Launch(tmp_path, smoke_directory(tmp_path_factory), venv=compacting_environment(tmp_path))
    run_dir = launch.run_dir("rows")
    try:
        process = launch.up("rows", f"training.total_steps={STEPS}")
        assert finished(process) == 0, launch.output("rows").read_text()[-3000:]
    finally:
        launch.end()
    result = result_of(run_dir)
    assert (result.state, result.exit_code, result.steps, result.cause) == ("done", 0, STEPS, None)

    trials = trial_dirs(run_dir)
    assert len(trials) == STEPS * TRIALS
    several, trained = 0, trained_scores(run_dir)
    for trial in trials:
        told = read(trial / "result.json")
        assert told["exception_info"] is None and told["divergences"] == []
        turns = [turn for turn in records(trial) if turn["success"]]
        rows = rows_of(trial)
        assert [row["kind"] for row in rows] == ["main"] + ["rewrite"] * (len(turns) > 2)
        several += len(rows) > 1
        sampled = [sum(row["traj_response_mask"]) for row in rows]
        replies = [turn["usage"]["completion_tokens"] for turn in turns]
        assert sum(sampled) == sum(replies) == told["tokens_trained"]
        assert told["turns_trained"] == told["turns"] == len(turns)
        config = read(trial / "liverl.json")
        reward = told["verifier_result"]["rewards"]["reward"]
        assert trained[f"{config['uid']}_{config['session']}"] == [reward] * len(rows)
    assert several > len(trials) / 4, "most trials have more than two turns"
    assert len(trained) == len(trials)

    (path,) = (run_dir / "attempt_001").glob("metrics.verl*.jsonl")
    steps = [json.loads(line)["data"] for line in path.read_text().splitlines()]
    assert len(steps) == STEPS
    for step in steps:
        assert 0 < step["training/rollout_probs_diff_mean"] < DIFFERENCE
        assert all(
            math.isfinite(step[name]) for name in ("actor/pg_loss", "actor/grad_norm", "actor/entropy")
        )
