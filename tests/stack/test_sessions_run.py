"""The whole loop with the trials through sessions: replicas, sessions, GRPO trainer, under the real backend."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.real import mean, metrics, real_run, records, rewards, trial_dirs
from kit.runs import ToyRun
from kit.trained import rows_of
from kit.waiting import wait_until

from liverl.model import SessionsStatus, Symptom

pytestmark = [pytest.mark.stack]

Make = Callable[..., ToyRun]


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    sets = ("proxy.trials_through=sessions", "training.total_steps=4")
    return lambda *more, **how: ending(real_run(tmp_path, *sets, *more, **how))


def outcome(trial: Path) -> dict[str, Any]:
    return dict(json.loads((trial / "result.json").read_text()))


def every_trial_is_whole(run: ToyRun, count: int) -> None:
    """Each trial has its result, its turns, and one row in which each reply is once."""
    trials = trial_dirs(run.run_dir)
    assert len(trials) == count
    for trial in trials:
        told, turns, rows = outcome(trial), records(trial), rows_of(trial)
        assert told.get("exception_info") is None, told
        assert len(turns) == told["turns"] > 0
        assert [row["kind"] for row in rows] == ["main"]
        (row,) = rows
        sampled = sum(row["traj_response_mask"])
        assert sampled == sum(turn["usage"]["completion_tokens"] for turn in turns)
        assert len(row["traj_response_mask"]) == len(row["traj_response_logprobs"])


def alert(run: ToyRun, name: str) -> Symptom:
    """Wait for a symptom: the backend diagnoses a run every few seconds, not with each change of a service."""
    found = wait_until(lambda: [s for s in run.snapshot().symptoms if s.id == name], what=f"the alert {name}")
    return found[0]


def mid_step(run: ToyRun) -> None:
    """Wait until trials of the second step or a later one have had a turn, and have not ended."""
    run.until("trainer", "ready", 120)

    def speaking() -> bool:
        late = trial_dirs(run.run_dir)[8:]
        return sum(bool(records(trial)) and not (trial / "result.json").exists() for trial in late) >= 4

    wait_until(speaking, what="trials in the middle of a step")


def test_a_run_trains_on_the_rows_of_its_sessions_killed_in_the_middle_of_a_step(make: Make) -> None:
    run = make("embedded.turn_latency=0.4")
    run.start()
    mid_step(run)

    def told_now() -> SessionsStatus | None:
        told = run.snapshot().sessions
        return told if told is not None and told.open and told.waiting else None

    told = wait_until(told_now, what="what the sessions report")
    assert told is not None and told.counters["num_calls"] > 0
    assert told.address == run.service("sessions").address
    assert set(told.backends) == {replica.address for replica in run.snapshot().replicas.items}
    before = run.service("sessions")
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    after = run.until("sessions", lambda s: s.state == "ready" and s.generation == before.generation + 1)
    assert after.address == before.address
    result = run.result(240)
    assert (result.state, result.exit_code, result.steps) == ("done", 0, 4)
    every_trial_is_whole(run, 4 * 8)
    assert max(line["data"]["training/rollout_probs_diff_max"] for line in metrics(run.run_dir)) < 1e-6
    key = (run.run_dir / "secrets" / "sessions_key").read_text().strip()
    assert (run.run_dir / "secrets" / "sessions_key").stat().st_mode & 0o777 == 0o600
    logs = "".join(path.read_text() for path in run.run_dir.glob("attempt_001/logs/*.log"))
    assert key not in logs and "GET /health" not in logs
    chats = re.findall(r'"POST (/v1/(?:chat/)?completions)[^"]*" 200', logs)
    assert len(chats) <= 2 * 2 * 2, (
        "tokens in, tokens out: text is asked of replicas and LiteLLM as they start only"
    )
    assert "restored 0 open" not in next(run.run_dir.glob("attempt_001/logs/sessions.2.log")).read_text()
    assert not run.tagged()


@pytest.mark.slow
def test_the_default_run_learns_through_sessions(make: Make) -> None:
    run = make("training.total_steps=20", small=False)
    run.start()
    assert run.result(500).state == "done"
    scores = rewards(run.run_dir)
    assert mean(scores[-3:]) > mean(scores[:3]) + 0.35
    every_trial_is_whole(run, 20 * 32)


@pytest.mark.slow
def test_a_restart_on_request_keeps_address_and_trials(make: Make) -> None:
    run = make("embedded.turn_latency=0.4")
    run.start()
    mid_step(run)
    before = run.service("sessions")
    answer = run.command("restart", service="sessions")
    assert answer["generation"] == before.generation + 1
    assert run.service("sessions").address == before.address
    assert run.result(240).state == "done"
    every_trial_is_whole(run, 4 * 8)
    log = next(run.run_dir.glob("attempt_001/logs/sessions.1.log")).read_text()
    assert "stopped; replies cut: 0" in log


@pytest.mark.slow
def test_a_replica_leaves_and_another_joins(make: Make) -> None:
    run = make("embedded.turn_latency=0.1", "training.total_steps=200")
    run.start()
    mid_step(run)

    def backends() -> set[str]:
        sessions = run.snapshot().sessions
        return set(sessions.backends) if sessions is not None else set()

    assert len(backends()) == 2
    run.command("scale", remove="replica-0")
    wait_until(lambda: len(backends()) == 1, what="the list without the one that left")
    left = backends()
    run.command("scale", to=2)
    wait_until(lambda: backends() > left, what="the list with the new one")
    ended = [trial for trial in trial_dirs(run.run_dir) if (trial / "result.json").exists()]
    assert [told for told in map(outcome, ended) if told.get("exception_info")] == []


def test_a_run_through_sessions_ends_well_without_an_environment_of_litellm(make: Make) -> None:
    run = make(
        "environments.proxy.requirements=[no-such-package-of-liverl==9.9.9]", "embedded.turn_latency=0.2"
    )
    run.start()
    failed = run.until("env:proxy", "failed", 120)
    assert run.until("trainer", "ready", 120).down_since is None
    wait_until(lambda: run.snapshot().state == "running", what="the run is running without LiteLLM")
    assert alert(run, f"service_failed:{failed.name}").severity == "warning"
    run.command("scale", to=3)
    run.command("scale", remove="replica-0")
    result = run.result(240)
    assert (result.state, result.exit_code, result.steps) == ("done", 0, 4)
    every_trial_is_whole(run, 4 * 8)


@pytest.mark.slow
def test_a_litellm_that_is_killed_again_and_again_ends_no_run_through_sessions(make: Make) -> None:
    run = make("embedded.turn_latency=0.2", "training.total_steps=500", "supervise.restart_cap=0.2")
    run.start()
    mid_step(run)
    killed: set[int] = set()

    def given_up() -> bool:
        proxy = run.service("proxy")
        if proxy.pid is not None and proxy.pid not in killed:
            killed.add(proxy.pid)
            os.kill(proxy.pid, signal.SIGKILL)
        return proxy.state == "gave_up"

    wait_until(given_up, 240, "LiteLLM is not restarted any more")
    assert len(killed) >= 2
    steps = run.snapshot().step or 0
    wait_until(lambda: (run.snapshot().step or 0) > steps + 1, what="training goes on")
    assert run.snapshot().state == "running"
    assert alert(run, "service_gave_up:proxy").severity == "warning"
