"""What the embedded trainer asks for in a step, and the numbers that it reports of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from liverl.agents.settings import TrainerConfig
from liverl.agents.tasks import dataset
from liverl.embedded.policy import arguments_for, state_of
from liverl.embedded.trainer.carriers import ThroughProxy
from liverl.embedded.trainer.grpo import TrialSample, TurnSample
from liverl.embedded.trainer.main import Trainer
from liverl.embedded.trainer.step_metrics import step_metrics
from liverl.embedded.trainer.trials import TrialOutcome

# -- metrics


def outcome(reward: float, advantage: float, masks: list[list[int]], **others: Any) -> TrialOutcome:
    turns = [TurnSample("s", [97] * len(mask), [0.0] * len(mask), mask) for mask in masks]
    sample = TrialSample(0, reward, turns, advantage)
    known = {"retries": 0, "tool_calls": 0, "exception": None, "seconds": 1.0}
    return TrialOutcome(sample=sample, **{**known, **others})


def test_a_steps_numbers() -> None:
    outcomes = [
        outcome(
            1.0, 0.5, [[1, 0, 1], [1]], turns=2, tool_calls=3, retries=1, prompt_length=10,
            response_length=6, seconds=2.0,
        ),
        outcome(0.0, -1.0, [[1]], turns=1, tool_calls=1, prompt_length=30, response_length=6, seconds=4.0),
        outcome(0.0, 0.0, [], turns=0, retries=2, prompt_length=20, response_length=0, exception="E", seconds=0.5),
    ]  # fmt: skip
    timing = {"gen": 3.0, "step": 4.5}
    data = step_metrics(7, 2, outcomes, {"actor/pg_loss": -0.25}, {"training/x": 0.125}, timing)
    assert data == {
        "actor/pg_loss": -0.25,
        "training/x": 0.125,
        "training/global_step": 7,
        "training/epoch": 2,
        "critic/score/mean": pytest.approx(1 / 3),
        "critic/score/max": 1.0,
        "critic/score/min": 0.0,
        "critic/rewards/mean": pytest.approx(1 / 3),
        "critic/rewards/max": 1.0,
        "critic/rewards/min": 0.0,
        # Per trained token: 0.5 three times, -1 once.
        "critic/advantages/mean": pytest.approx(0.5 / 4),
        "critic/advantages/max": 0.5,
        "critic/advantages/min": -1.0,
        "critic/returns/mean": pytest.approx(0.5 / 4),
        "critic/returns/max": 0.5,
        "critic/returns/min": -1.0,
        "response_length/mean": 4.0,
        "response_length/max": 6.0,
        "response_length/min": 0.0,
        "prompt_length/mean": 20.0,
        "prompt_length/max": 30.0,
        "prompt_length/min": 10.0,
        "response_length/clip_ratio": pytest.approx(2 / 3),  # as long as the longest
        "prompt_length/clip_ratio": pytest.approx(1 / 3),
        "response/aborted_ratio": pytest.approx(1 / 3),
        # Messages: prompt, and per turn the answer and its observation but for the last: 4, 2, and 1 without a turn.
        "num_turns/min": 1,
        "num_turns/max": 4,
        "num_turns/mean": pytest.approx(7 / 3),
        "training/num_turns/min": 1,
        "training/num_turns/max": 4,
        "training/num_turns/mean": pytest.approx(7 / 3),
        "tool_call_counts/mean": pytest.approx(4 / 3),
        "tool_call_counts/max": 3.0,
        "tool_call_counts/min": 0.0,
        "training/rollout_failure/failed_trials": 1,
        "training/rollout_failure/retried_requests": 3,
        "timing_s/gen": 3.0,
        "timing_s/step": 4.5,
        "timing_s/trial/mean": pytest.approx(6.5 / 3),
        "timing_s/trial/max": 4.0,
        "timing_s/trial/min": 0.5,
        "perf/total_num_tokens": 72,  # 60 of prompts, 12 of responses
        "perf/time_per_step": 4.5,
        "perf/throughput": pytest.approx(72 / 4.5),
    }


# -- prompts of a step


async def test_a_step_takes_the_next_prompts_of_its_epochs_order(tmp_path: Path) -> None:
    config = TrainerConfig(
        run_dir=str(tmp_path), attempt_dir=str(tmp_path), proxy_url="http://127.0.0.1:1", served_model="policy",
        train_batch_size=5, n_resp_per_prompt=2, seed=4,
    )  # fmt: skip
    tasks = dataset()
    orders = []
    for epoch in range(2):
        order = list(tasks)
        random.Random(f"4:{epoch}").shuffle(order)
        orders.append(order)
    assert orders[0] != orders[1]
    async with aiohttp.ClientSession() as session:
        trainer = Trainer(config, session, ThroughProxy("http://127.0.0.1:1", None), None)
        steps = len(tasks) // 5  # whole steps of the first epoch: 12, of 64 tasks
        plans = [trainer._sample(step) for step in range(1, steps + 2)]
    assert (len(tasks), trainer.data.epoch, trainer.data.position) == (64, 1, 1)
    asked = [plan.task for step in plans for plan in step]
    assert asked == [task for task in [*orders[0], orders[1][0]] for _ in range(2)]
    assert [plan.step for plan in plans[2]] == [3] * 10
    assert [(plan.prompt_index, plan.sample_index) for plan in plans[2]] == [
        (prompt, sample) for prompt in range(5) for sample in range(2)
    ]


# -- what the policy writes for a call


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(name: str, result: str, number: str = "1") -> list[dict[str, Any]]:
    call = {"id": number, "function": {"name": name, "arguments": "{}"}}
    return [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": number, "content": result},
    ]


def test_arguments_come_from_the_instruction_and_the_observations() -> None:
    move = user("Move the only file that ends in `.dat` into the directory `old`.")
    assert arguments_for("list_files", [move], ()) == {"path": "."}
    # Not listed yet: a guess of the right ending.
    assert arguments_for("move_file", [move], ()) == {"source": "file.dat", "destination": "old/file.dat"}
    listed = [move, *called("list_files", "README.md\na.dat\nb.dat")]
    assert arguments_for("move_file", listed, ()) == {"source": "a.dat", "destination": "old/a.dat"}
    assert arguments_for("read_file", listed, ()) == {"path": "a.dat"}
    # Only what list_files answered is a listing.
    assert arguments_for("read_file", [move, *called("read_file", "a.dat")], ()) == {"path": "file.dat"}

    other = user("Do something else.")
    assert arguments_for("read_file", [other, *called("list_files", "a.dat")], ()) == {"path": "file.txt"}
    assert arguments_for("move_file", [other], ()) == {
        "source": "file.txt",
        "destination": "archive/file.txt",
    }

    replace = user('In the file `a.cfg` replace "x=1" with "x=2".')
    assert arguments_for("replace_text", [replace], ()) == {"path": "a.cfg", "old": "x=1", "new": "x=2"}
    assert arguments_for("write_file", [replace], ()) == {"path": "a.cfg", "content": "x=2\n"}

    total = user("Write the sum of the numbers in `n.csv` into the new file `sum.txt`.")
    read = [total, *called("read_file", "12\n30\nx 5\n")]
    assert arguments_for("write_file", read, ()) == {"path": "sum.txt", "content": "42\n"}
    assert arguments_for("read_file", read, ()) == {"path": "n.csv"}


def test_a_strangers_tool_gets_an_empty_value_of_each_required_type() -> None:
    schema = {
        "properties": {
            "count": {"type": "integer"},
            "share": {"type": "number"},
            "force": {"type": "boolean"},
            "items": {"type": "array"},
            "env": {"type": "object"},
            "text": {"type": "string"},
            "any": {},
            "optional": {"type": "string"},
        },
        "required": ["count", "share", "force", "items", "env", "text", "any", "unknown"],
    }
    tools = [
        {"type": "function", "function": {"name": "other", "parameters": {"required": ["no"]}}},
        {"type": "function", "function": {"name": "run", "parameters": schema}},
        {"type": "function"},
    ]
    found = arguments_for("run", [user("x")], tools)
    assert found == {
        "count": 0, "share": 0, "force": False, "items": [], "env": {}, "text": "", "any": "", "unknown": "",
    }  # fmt: skip
    assert found["force"] is False
    assert arguments_for("absent", [user("x")], tools) == {}


def test_the_state_is_the_last_answered_call() -> None:
    create = user('Create the file `a.txt` with exactly this line: "x".')
    assert state_of([{"role": "system", "content": "s"}, create]) == "create|start|ok"
    assert state_of([create, *called("read_file", "error: no such file")]) == "create|read_file|error"
    both = [create, *called("read_file", "error: no", "1"), *called("write_file", "done", "2")]
    assert state_of(both) == "create|write_file|ok"
    assert state_of([create, {"role": "assistant", "tool_calls": [{"id": "1"}]}]) == "create|start|ok"
    assert state_of([]) == "other|start|ok"
