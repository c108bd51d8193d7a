"""A run of profile cpu-verl on a user's own rows: five kinds of agents in one file, with the user's reward function,
tools, class, program and tasks of Harbor's, in real verl 0.9.1.

LIVERL_TEST_VERL_PYTHON names a Python with verl; with LIVERL_TEST_HARBOR_PYTHON, a Python with Harbor, some rows are
tasks of Harbor's. The run takes two to four minutes on two cores: ``pytest -m slow tests/stack/test_verl_own.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit.harbor_tasks import write_agent, write_task
from kit.real import trial_dirs
from kit.trained import read, rows_of, trained_scores
from kit.verl_runs import NEEDS_VERL, PYTHON, Launch, finished, result_of, smoke_directory

from liverl.agents.tools import TOOLS

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200), NEEDS_VERL]
HARBOR = os.environ.get("LIVERL_TEST_HARBOR_PYTHON")
STEPS, PROMPTS, TRIALS = 3, 8, 4
DIFFERENCE = 0.005  # as in test_verl_sessions.py
MOST_KL = 0.01

REWARD = """
def score(data_source, solution_str, ground_truth, extra_info=None, scale=1.0, **kwargs):
    share = sum(c.islower() for c in solution_str) / max(1, len(solution_str))
    return {"score": round(scale * share, 4), "letters": len(solution_str), "truth": ground_truth}
"""
TOOL = """
import json
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse


class Note(BaseTool):
    async def create(self, instance_id=None, **kwargs):
        self.given = kwargs.get("create_kwargs") or kwargs
        with open(self.config["file"], "a") as file:
            file.write(json.dumps(self.given) + "\\n")
        return "one", ToolResponse()

    async def execute(self, instance_id, parameters, **kwargs):
        return ToolResponse(text="noted"), 0.0, {}
"""
PYTHON_AGENT = """
class Agent:
    async def run(self, task, chat, dir):
        message = await chat(task["messages"])
        (dir / "said.txt").write_text(message["content"] or "")
        index = task["row"]["extra_info"]["index"]
        return 0.25 if index % 8 < 4 else None
"""
CURL = """
body='{"max_tokens": 40, "messages": [{"role": "user", "content": "how many apples?"}]'
printf '%s, "model": "%s"}' "$body" "$OPENAI_MODEL" |
curl -sS --fail "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" -d @-
"""
WRITE = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.Table.from_pylist(json.load(sys.stdin)), sys.argv[1])
"""
VERIFIER = (
    "test -s /app/hello.txt && echo 0.75 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt"
)


def kinds() -> list[str]:
    return ["chat", "tools", "python", "command", *(["harbor"] if HARBOR else [])]


def row(kind: str, index: int, asked: list[dict[str, str]], file: str) -> dict[str, Any]:
    """A row in the shape of GSM8K's, with what its kind needs."""
    extra: dict[str, Any] = {"split": "train", "index": index, "task_path": "", "need_tools_kwargs": True}
    extra["tools_kwargs"] = {tool["function"]["name"]: {"create_kwargs": {"row": index}} for tool in TOOLS}
    if kind == "harbor":
        extra["task_path"] = "tasks/say"
    words = [{"role": "user", "content": f"Tom has {index} apples and buys 3. How many has he?"}]
    return {
        "data_source": "apples",
        "agent_name": f"liverl_{kind}",
        "prompt": asked if kind == "tools" else words,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(index + 3)},
        "extra_info": extra,
    }


def write_run(folder: Path, smoke: Path) -> Path:
    """The user's files; the configuration."""
    asked = json.loads(
        subprocess.run(
            [PYTHON, "-c", "import json, sys, pyarrow.parquet as pq; "
             "print(json.dumps(pq.read_table(sys.argv[1]).to_pylist()[0]['prompt']))", smoke / "train.parquet"],
            check=True, capture_output=True, text=True,
        ).stdout
    )  # fmt: skip
    count = STEPS * PROMPTS
    rows = [row(kinds()[i % len(kinds())], i, asked, "") for i in range(count)]
    for name in ("train", "test"):
        subprocess.run(
            [PYTHON, "-c", WRITE, folder / f"{name}.parquet"], input=json.dumps(rows), text=True, check=True
        )
    (folder / "reward.py").write_text(REWARD)
    (folder / "my_tool.py").write_text(TOOL)
    (folder / "my_agent.py").write_text(PYTHON_AGENT)
    (folder / "ask.sh").write_text(CURL)
    write_agent(folder)
    write_task(folder / "tasks", "say", "say apples", VERIFIER)
    config = {"type": "native", "file": str(folder / "created.jsonl")}
    entries = [{"class_name": "my_tool.Note", "config": config, "tool_schema": tool} for tool in TOOLS]
    (folder / "tools.json").write_text(json.dumps({"tools": entries}))
    settings: dict[str, Any] = {
        "data": {"train_index": "train.parquet", "val_index": "test.parquet"},
        "agent": {
            "kind": "chat", "path": ["."], "tools": "tools.json", "python": "my_agent:Agent",
            "command": ["/bin/sh", str(folder / "ask.sh")],
        },
        "reward": {"function": "reward.py:score", "kwargs": {"scale": 0.5}},
        "harbor_agent": {
            "agent_name": None, "agent_import_path": "obedient_agent:Obedient", "environment_type": "local",
            "max_iterations": 2,
        },
    }  # fmt: skip
    if HARBOR:
        settings["environments"] = {"harbor": {"venv_path": str(Path(HARBOR).parent.parent)}}
    path = folder / "config.yaml"
    path.write_text(json.dumps(settings))
    return path


def outcome(trial: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our facts of a trial, and its result."""
    facts = read(trial / "liverl.json")
    return facts, facts.get("result") or read(trial / "result.json")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_all_kinds_of_agents_train_in_one_run(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    launch = Launch(tmp_path, smoke_directory(tmp_path_factory))
    config = write_run(own, launch.model)
    run_dir = launch.run_dir("own")
    try:
        process = launch.up("own", f"training.total_steps={STEPS}", config=config)
        assert finished(process) == 0, launch.output("own").read_text()[-3000:]
    finally:
        launch.end()
    result = result_of(run_dir)
    assert (result.state, result.exit_code, result.steps, result.cause) == ("done", 0, STEPS, None)
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    assert [event["text"] for event in events if event["kind"] == "symptom"] == []

    scores, seen = trained_scores(run_dir), dict.fromkeys(kinds(), 0)
    trials = trial_dirs(run_dir)
    assert len(trials) == STEPS * PROMPTS * TRIALS == len(scores)
    for trial in trials:
        facts, told = outcome(trial)
        assert told["exception_info"] is None and told["divergences"] == []
        reward = told["verifier_result"]["rewards"]["reward"]
        (score,) = scores[f"{facts['uid']}_{facts['session']}"]
        assert reward == pytest.approx(score, abs=1e-6)
        seen[facts["agent"]] += 1
        sampled = sum(sum(one["traj_response_mask"]) for one in rows_of(trial))
        assert sampled == told["tokens_trained"] > 0
        if facts["agent"] == "harbor":
            assert reward in (0.0, 0.75)
    assert all(seen.values()), seen
    created = [json.loads(line) for line in (own / "created.jsonl").read_text().splitlines()]
    assert {one["row"] % len(kinds()) for one in created} == {1}, "each call had the kwargs of its own row"
    (path,) = (run_dir / "attempt_001").glob("metrics.verl*.jsonl")
    steps = [json.loads(line)["data"] for line in path.read_text().splitlines()]
    assert len(steps) == STEPS
    for step in steps:
        assert abs(step["rollout_corr/kl"]) < MOST_KL
        assert 0 < step["training/rollout_probs_diff_mean"] < DIFFERENCE
