"""What a loop of ours does in the worker of verl's fully asynchronous trainer, which passes less and takes one row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from liverl.sessions.result import MANY_ROWS
from liverl.verl_runtime.streamed import completed, one_row, streamed, version_prompts
from liverl.verl_runtime.tokens import Row


def row(*mask: int) -> Row:
    return Row(prompt=[1], response=[7] * len(mask), mask=list(mask), logprobs=[-0.5] * len(mask))


class Config(SimpleNamespace):
    def get(self, name: str) -> Any:
        return getattr(self, name, None)


def test_which_worker_it_is() -> None:
    assert streamed({"uid": "u", "raw_prompt": []})
    assert not streamed({"uid": "u", "session_id": 0, "global_steps": 1})


@pytest.mark.parametrize(
    ("uid", "trajectory", "step", "session"),
    [
        ("uid_sample_0_1", {"step": -1, "rollout_n": 0, "validate": False}, 1, 0),
        ("uid_sample_0_8", {"step": -1, "rollout_n": 3, "validate": False}, 1, 3),
        ("uid_sample_2_9", {"step": -1, "rollout_n": 1, "validate": False}, 2, 1),
        (
            "5f1c",
            {"step": 17, "rollout_n": 2, "validate": True},
            2,
            2,
        ),  # 16 samples handed out: version 2 is done
        ("5f1c", {"step": 1, "rollout_n": 0, "validate": True}, 0, 0),
    ],
)
def test_a_trials_step_is_the_version_that_its_sample_is_for(
    uid: str, trajectory: dict[str, Any], step: int, session: int
) -> None:
    found = completed({"uid": uid, "data_source": "s"}, trajectory, 8)
    assert found == {"uid": uid, "data_source": "s", "global_steps": step, "session_id": session}


def test_the_prompts_of_a_version() -> None:
    actor = SimpleNamespace(actor=SimpleNamespace(ppo_mini_batch_size=4))
    settings = SimpleNamespace(require_batches=2, trigger_parameter_sync_step=3)
    assert version_prompts(Config(actor_rollout_ref=actor, async_training=settings)) == 24
    assert version_prompts(Config(actor_rollout_ref=actor)) == 0


@pytest.mark.parametrize(
    ("rows", "mask", "reward", "left_out"),
    [
        ([row(1, 1)], [1, 1], 1.0, {"aside": 3}),
        ([row(1, 0, 1), row(1, 1, 1), row(1, 1)], [1, 1], 1.0, {"aside": 3, MANY_ROWS: 5}),
        ([], [0], 0.0, {"aside": 3}),
    ],
)
def test_a_trial_becomes_one_row(
    rows: list[Row], mask: list[int], reward: float, left_out: dict[str, int]
) -> None:
    outcome: Any = SimpleNamespace(rows=rows, reward=1.0, not_trained={"aside": 3})
    found = one_row(outcome, 9)
    assert (found.mask, outcome.reward, outcome.not_trained) == (mask, reward, left_out)
    assert outcome.rows == ([found] if rows else [])
