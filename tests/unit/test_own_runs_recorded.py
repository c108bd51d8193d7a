"""Trials of users' agents that were recorded on H200s: what they say agrees with what verl trained."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.trial import Trial

DATA = Path(__file__).parents[1] / "data" / "own_runs_h200"
TRIALS = sorted(path.parent for path in DATA.glob("*/*/result.json"))


def facts(trial: Path) -> dict[str, Any]:
    """Ours: in a trial of Harbor's beside its own files."""
    own = trial / "liverl.json"
    return dict(json.loads((own if own.exists() else trial / "config.json").read_text()))


def trained(trial: Path) -> list[dict[str, Any]]:
    """The rows of verl's dump that belong to the trial."""
    own = facts(trial)
    rows = map(json.loads, (trial.parent / "rollouts_2.jsonl").read_text().splitlines())
    return [row for row in rows if row["uid"].startswith(f"{own['uid']}_{own['session']}_")]


def test_each_kind_of_client_was_recorded() -> None:
    ways = [json.loads((t / "task.json").read_text())["row"]["extra_info"]["index"] % 4 for t in TRIALS[:-1]]
    assert sorted(ways) == [0, 1, 2, 3]
    assert TRIALS[-1].parent.name == "harbor"


@pytest.mark.parametrize("folder", TRIALS, ids=lambda path: path.name)
def test_a_trial_has_the_reward_that_verl_trained(folder: Path) -> None:
    (row,) = trained(folder)
    whole = read_trajectory(folder)
    assert whole.rewards["reward"] == pytest.approx(row["score"], abs=1e-6)
    trial = Trial(str(folder.parent), folder.name, None)
    trial.check(lambda *_: (0, True), time.time())
    shown = trial.head()
    assert (shown.state, shown.step, shown.turns, shown.tool_calls) == ("finished", 2, 2, 0)
    assert shown.reward == whole.rewards["reward"] and shown.flags == ()


@pytest.mark.parametrize("folder", TRIALS, ids=lambda path: path.name)
def test_the_row_holds_the_tokens_that_were_sampled(folder: Path) -> None:
    (row,) = json.loads((folder / "proxy_trajectory.json").read_text())["rows"]
    calls = map(json.loads, (folder / "litellm-trajectory.jsonl").read_text().splitlines())
    sampled = [call["usage"]["completion_tokens"] for call in calls if call["success"]]
    assert sum(row["traj_response_mask"]) == sum(sampled) > 0
    assert len(row["traj_acc_ids"]) == row["initial_prompt_token_len"] + len(row["traj_response_mask"])
    assert all(
        p < 0
        for p, m in zip(row["traj_response_logprobs"], row["traj_response_mask"], strict=True)
        if m and p
    )
