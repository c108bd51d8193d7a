"""A run of profile cpu-verl whose agents are programs with the packages of OpenAI and Anthropic. The sessions
service is killed in the middle of a step, while agents wait for replies.

LIVERL_TEST_VERL_PYTHON names a Python with verl 0.9.1. The run takes two to five minutes on two cores:
``pytest -m slow tests/stack/test_verl_commands.py``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kit import sdk_agent
from kit.real import records, trial_dirs, whole_lines
from kit.runs import ToyRun
from kit.sdk_agent import CALLS, WAYS
from kit.trained import decoded, read, rows_of, sampled_parts, trained_scores
from kit.verl_runs import NEEDS_VERL, RUN, Launch, finished, nothing_lives, result_of, smoke_directory
from kit.waiting import wait_until

from liverl.control.messages import ControlError

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    NEEDS_VERL,
]
STEPS = 3
TRIALS = 8 * 2  # of a step: prompts, and trials of each
SETTINGS = (
    "agent.kind=command",
    f"agent.command=[{sys.executable}, {sdk_agent.__file__}]",
    "training.n_resp_per_prompt=2",
    "harbor_agent.max_timeout_sec=400",
    "harbor_agent.override_timeout_sec=400",
    f"training.total_steps={STEPS}",
)


def calls_of(trial: Path) -> list[dict[str, Any]]:
    """What the agent of a trial has written about its calls so far."""
    path = trial / "work" / "calls.jsonl"
    return [json.loads(line) for line in whole_lines(path)] if path.exists() else []


def waiting(trials: list[Path]) -> list[str]:
    """How the agents ask that wait for a reply now."""
    return [calls[-1]["way"] for trial in trials if (calls := calls_of(trial)) and "asked" in calls[-1]]


def test_no_call_of_a_command_is_lost_when_the_service_is_killed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    launch = Launch(tmp_path, smoke_directory(tmp_path_factory))
    run = ToyRun(launch.run_dir("killed"))
    try:
        process = launch.up("killed", *SETTINGS)

        def in_flight() -> bool:
            """Whether agents of a step after the first wait for a reply, two of them streamed and two not, and some
            have had one."""
            assert process.poll() is None, launch.output("killed").read_text()[-3000:]
            late = trial_dirs(run.run_dir)[TRIALS:]
            streamed = [way.endswith("streamed") for way in waiting(late)]
            return min(streamed.count(True), streamed.count(False)) >= 2 and any(map(records, late))

        wait_until(lambda: len(trial_dirs(run.run_dir)) >= TRIALS or in_flight(), RUN, "the first step")
        before = run.service("sessions")
        assert before.pid is not None
        wait_until(in_flight, RUN, "agents that wait for a reply")
        os.kill(before.pid, signal.SIGKILL)
        killed = time.time()

        def again() -> bool:
            try:
                return run.service("sessions").generation == before.generation + 1
            except ControlError:
                return False

        wait_until(again, what="the next process of the service")
        assert finished(process) == 0, launch.output("killed").read_text()[-3000:]
    finally:
        launch.end()

    result = result_of(run.run_dir)
    assert (result.state, result.exit_code, result.steps, result.cause) == ("done", 0, STEPS, None)
    (log,) = run.run_dir.glob("attempt_001/logs/sessions.2.log")
    assert "restored" in log.read_text() and "restored 0 open" not in log.read_text()
    held = each_call_was_answered_once(launch.model / "model", run.run_dir, killed)
    assert {way.endswith("streamed") for way in held} == {True, False}
    rewards_are_those_that_verl_trained(run.run_dir)
    nothing_lives(run.run_dir)


def each_call_was_answered_once(model: Path, run_dir: Path, killed: float) -> list[str]:
    """Each agent has had all its replies, and the tokens of each are once in its row. Returns how those calls were made
    that waited for their reply at the time ``killed``."""
    trials = trial_dirs(run_dir)
    assert len(trials) == STEPS * TRIALS
    held, ways, texts, parts = [], set(), [], []
    for trial in trials:
        told = read(trial / "result.json")
        assert told["exception_info"] is None and told["divergences"] == []
        calls = calls_of(trial)
        asked, answered = calls[::2], calls[1::2]
        assert [call["turn"] for call in answered] == list(range(CALLS))
        held += [
            a["way"] for a, b in zip(asked, answered, strict=True) if a["asked"] < killed < b["answered"]
        ]
        ways |= {call["way"] for call in asked}

        (row,) = rows_of(trial)
        own = sampled_parts(row)
        assert [len(part) for part in own] == [call["tokens"] for call in answered]
        assert told["turns_trained"] == CALLS
        assert told["tokens_trained"] == sum(row["traj_response_mask"]) == sum(map(len, own))
        parts += own
        texts += [call["text"] for call in answered]
    for text, said in zip(decoded(model, parts), texts, strict=True):
        assert said.strip() in text
    assert ways == {*WAYS}
    return held


def rewards_are_those_that_verl_trained(run_dir: Path) -> None:
    """Row by row; and verl's trainer computes nearly the probabilities of the engine."""
    trained = trained_scores(run_dir)
    rewards = {}
    for trial in trial_dirs(run_dir):
        facts = read(trial / "liverl.json")
        reward = read(trial / "result.json")["verifier_result"]["rewards"]["reward"]
        rewards[f"{facts['uid']}_{facts['session']}"] = [pytest.approx(reward)]
    assert trained == rewards and len({scores[0] for scores in trained.values()}) > TRIALS
    (path,) = (run_dir / "attempt_001").glob("metrics.verl*.jsonl")
    steps = [json.loads(line)["data"] for line in path.read_text().splitlines()]
    assert len(steps) == STEPS
    for step in steps:
        assert 0 < step["training/rollout_probs_diff_mean"] < 0.005
        assert abs(step["rollout_corr/kl"]) < 0.01
