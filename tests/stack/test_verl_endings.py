"""What becomes of trials that do not end well, in runs of profile cpu-verl: in real verl 0.9.1, three steps each.

LIVERL_TEST_VERL_PYTHON names a Python with verl. A run takes two to four minutes on two cores:
``pytest -m slow tests/stack/test_verl_endings.py``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kit.real import trial_dirs
from kit.trained import read, rows_of
from kit.verl_runs import NEEDS_VERL, PYTHON, Launch, finished, result_of, smoke_directory

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200), NEEDS_VERL]
STEPS, PROMPTS, TRIALS = 3, 8, 4
TIMEOUT = 15.0  # seconds of a trial
WRITE = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.Table.from_pylist(json.load(sys.stdin)), sys.argv[1])
"""
REWARD = """
def score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return 0.25 + 0.5 * sum(c.islower() for c in solution_str) / max(1, len(solution_str))
"""
# Odd sessions of a group talk until they have had their turns, even ones answer once.
TALKS = """
import json, pathlib
class Agent:
    async def run(self, task, chat, dir):
        session = json.loads((pathlib.Path(dir).parent / "liverl.json").read_text())["session"]
        said = list(task["messages"])
        while True:
            said += [await chat(said), {"role": "user", "content": "go on"}]
            if session % 2 == 0:
                return None
"""
# The ending by the number of the trial in its group, for half of the rows: an eighth of the trials each.
PROGRAM = """
import json, os, pathlib, sys, time, urllib.request
E = os.environ
task = json.loads(pathlib.Path(E["LIVERL_TASK"]).read_text())
session = json.loads(pathlib.Path(E["LIVERL_TRIAL_DIR"], "liverl.json").read_text())["session"]
body = json.dumps({"model": E["OPENAI_MODEL"], "messages": task["messages"], "max_tokens": 20}).encode()
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + E["OPENAI_API_KEY"]}
urllib.request.urlopen(urllib.request.Request(E["OPENAI_BASE_URL"] + "/chat/completions", body, headers)).read()
pathlib.Path(E["LIVERL_REWARD"]).write_text(str(0.25 + session / 8))
share = int(sys.argv[1])
if task["row"]["extra_info"]["index"] % share == 0:
    if session == 0: sys.exit(1)
    if session == 1: sys.exit(137)
    if session == 2: time.sleep(600)
"""


def write_run(folder: Path, agent: dict[str, Any], turns: int) -> Path:
    """The user's files; the configuration."""
    rows = [
        {
            "data_source": "apples",
            "prompt": [{"role": "user", "content": f"Tom has {index} apples and buys 3. How many has he?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(index + 3)},
            "extra_info": {"split": "test", "index": index},  # verl says that it trains, not the file
        }
        for index in range(STEPS * PROMPTS)
    ]
    for name in ("train", "test"):
        subprocess.run(
            [PYTHON, "-c", WRITE, folder / f"{name}.parquet"], input=json.dumps(rows), text=True, check=True
        )
    (folder / "reward.py").write_text(REWARD)
    (folder / "talks.py").write_text(TALKS)
    (folder / "program.py").write_text(PROGRAM)
    settings: dict[str, Any] = {
        "data": {"train_index": "train.parquet", "val_index": "test.parquet"},
        "agent": {"path": ["."], **agent},
        "reward": {"function": "reward.py:score"},
        "harbor_agent": {"max_iterations": turns, "override_timeout_sec": TIMEOUT, "max_retries": 1},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(settings))
    return path


def ran(tmp_path: Path, factory: pytest.TempPathFactory, agent: dict[str, Any], turns: int = 4) -> Path:
    """The directory of a run that has ended well."""
    own = tmp_path / "own"
    own.mkdir()
    launch = Launch(tmp_path, smoke_directory(factory))
    try:
        process = launch.up("own", f"training.total_steps={STEPS}", config=write_run(own, agent, turns))
        assert finished(process) == 0, launch.output("own").read_text()[-3000:]
    finally:
        launch.end()
    result = result_of(launch.run_dir("own"))
    assert (result.state, result.steps, result.cause) == ("done", STEPS, None)
    return launch.run_dir("own")


def steps_of(run_dir: Path) -> list[dict[str, Any]]:
    """verl's metrics of each step."""
    (path,) = (run_dir / "attempt_001").glob("metrics.verl*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["data"] for line in lines if "training/global_step" in line["data"]]


def dumped(run_dir: Path, step: int) -> dict[str, list[float]]:
    """By group (verl's uid) the scores of the rows that verl trained in a step; its padding is left out."""
    found: dict[str, list[float]] = {}
    for line in (run_dir / "rollouts" / f"{step}.jsonl").read_text().splitlines():
        row = json.loads(line)
        if not row["uid"].startswith("pad"):
            found.setdefault(row["uid"].split("_")[0], []).append(row["score"])
    return found


def told(run_dir: Path) -> list[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Each attempt at a trial: its directory, what it was given, and its result."""
    return [
        (trial, read(trial / "liverl.json"), read(trial / "result.json")) for trial in trial_dirs(run_dir)
    ]


def check(run_dir: Path) -> None:
    """Files, rows, verl's metrics and its advantages agree."""
    steps, attempts = steps_of(run_dir), told(run_dir)
    assert len(steps) == STEPS
    for number, data in enumerate(steps, 1):
        of_step = [(trial, facts, result) for trial, facts, result in attempts if facts["step"] == number]
        final = [result for _, _, result in of_step if not result.get("repeated")]
        assert len(final) == PROMPTS * TRIALS
        causes = Counter(result["ending"]["cause"] for result in final)
        outcomes = Counter(result["ending"]["outcome"] for _, _, result in of_step)
        lost: Counter[str] = Counter()
        for trial, _, result in of_step:
            lost.update(result["not_trained"])
            sampled = read(trial / "proxy_trajectory.json")["counters"]["total_completion_tokens"]
            assert result["tokens_trained"] + sum(result["not_trained"].values()) == sampled
        for name in ("done", "limit", "timeout", "exit", "infrastructure"):
            assert data[f"liverl/endings/{name}"] == causes[name]
        for name in ("trained", "zeroed", "masked", "dropped", "repeated"):
            assert data[f"liverl/endings/{name}"] == outcomes[name]
        assert {
            name.rpartition("/")[2]: value
            for name, value in data.items()
            if name.startswith("liverl/not_trained/")
        } == dict(lost)
        groups = dumped(run_dir, number)
        trained = [result for result in final if result["tokens_trained"]]
        assert sum(map(len, groups.values())) == len(trained), (
            "no row of a masked trial, and no other is missing"
        )
        by_hand = []
        for scores in groups.values():
            mean, deviation = (
                (statistics.mean(scores), statistics.stdev(scores)) if len(scores) > 1 else (0.0, 1.0)
            )
            by_hand += [(score - mean) / (deviation + 1e-6) for score in scores]
        assert data["critic/advantages/max"] == pytest.approx(max(by_hand), abs=1e-3)
        assert data["critic/advantages/min"] == pytest.approx(min(by_hand), abs=1e-3)


@pytest.mark.parametrize("value", ["train", "reward_zero", "mask"])
def test_half_of_the_trials_run_out_of_turns(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, value: str
) -> None:
    agent = {"python": "talks:Agent", "endings": {"limit": value}}
    run_dir = ran(tmp_path, tmp_path_factory, agent, turns=2)
    check(run_dir)
    for trial, facts, result in told(run_dir):
        limit = facts["session"] % 2 == 1
        assert (
            result["ending"]["cause"] == ("limit" if limit else "done") and result["exception_info"] is None
        )
        assert len(rows_of(trial)) >= 1
        outcome = (
            "trained" if not limit or value == "train" else {"reward_zero": "zeroed", "mask": "masked"}[value]
        )
        assert result["ending"]["outcome"] == outcome
        reward = result["verifier_result"]["rewards"]["reward"]
        assert (reward >= 0.25) is (outcome == "trained")
        assert bool(result["tokens_trained"]) is (outcome != "masked")


@pytest.mark.parametrize("value", ["train", "reward_zero", "mask", "drop", "repeat"])
def test_programs_that_fail_in_three_ways(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, value: str
) -> None:
    """An eighth of the trials each exits with 1, is killed for its memory, and takes too long."""
    agent = {
        "command": [sys.executable, str(tmp_path / "own" / "program.py"), "2"],
        "endings": {"exit": value, "timeout": value, "infrastructure": value},
    }
    run_dir = ran(tmp_path, tmp_path_factory, agent)
    check(run_dir)
    expected = {
        "train": "trained",
        "reward_zero": "zeroed",
        "mask": "masked",
        "drop": "dropped",
        "repeat": "masked",
    }
    for _, facts, result in told(run_dir):
        fails = int(result["task_name"].rpartition("-")[2]) % 2 == 0
        cause = (
            {0: "exit", 1: "infrastructure", 2: "timeout"}.get(facts["session"], "done") if fails else "done"
        )
        ending = result["ending"]
        assert ending["cause"] == cause
        if result.get("repeated"):
            assert (value, ending["outcome"]) == ("repeat", "repeated") and cause != "done"
        else:
            assert ending["outcome"] == ("trained" if cause == "done" else expected[value])
        own = 0.25 + facts["session"] / 8
        if ending["outcome"] == "dropped":
            assert result["verifier_result"] is None and ending["reward"] == own
        else:
            reward = result["verifier_result"]["rewards"]["reward"]
            assert reward == (0.0 if ending["outcome"] == "zeroed" else own)


def test_programs_of_which_a_quarter_fails_alike(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the usual settings: what so many share is no agent's fault; it is run again, and at last masked."""
    agent = {"command": [sys.executable, str(tmp_path / "own" / "program.py"), "1"]}
    run_dir = ran(tmp_path, tmp_path_factory, agent)
    check(run_dir)
    for _, facts, result in told(run_dir):
        assert result["ending"]["cause"] == ("done" if facts["session"] == 3 else "infrastructure")
        assert (result["ending"]["outcome"] == "trained") is (facts["session"] == 3)
