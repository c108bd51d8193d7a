"""The whole loop: replicas, LiteLLM, GRPO trainer, under the real backend."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.real import mean, metrics, real_run, records, rewards, trial_dirs
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.control.messages import BackendDead
from liverl.supervise import procfs

pytestmark = pytest.mark.stack

Make = Callable[..., ToyRun]


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *sets: ending(real_run(tmp_path, *sets))


def generated(run: ToyRun) -> float:
    return sum(r.generation_tokens_total or 0 for r in run.snapshot().replicas.items)


@pytest.mark.timeout(240)
def test_every_turn_goes_through_the_proxy_and_is_recorded_once(make: Make) -> None:
    run = make("training.total_steps=6")
    run.start()
    run.until("proxy", "ready", 90)
    at_start = len(run.snapshot().replicas.items)  # one token each, of the probe that proved them
    seen = [0.0]

    def ended() -> bool:
        if (run.run_dir / "result.json").exists():
            return True
        try:
            trainer = run.service("trainer")
            if trainer.state in ("ready", "stopping"):
                seen.append(generated(run))
        except BackendDead:
            return True  # it ended between two looks
        return False

    wait_until(ended, 120)
    result = run.result()
    assert (result.state, result.exit_code, result.steps) == ("done", 0, 6)
    trials = trial_dirs(run.run_dir)
    assert len(trials) == 6 * 8
    tokens = 0
    for trial in trials:
        told = json.loads((trial / "result.json").read_text())
        calls = records(trial)
        assert len(calls) == told["turns"] > 0
        assert len({call["replica"] for call in calls}) == 1, "all turns of a trial go to one replica"
        tokens += sum(call["usage"]["completion_tokens"] for call in calls)
    assert max(seen) - at_start <= tokens, "nothing was generated that the proxy did not see"
    assert max(seen) - at_start >= 0.8 * tokens
    assert {s["step"] for s in metrics(run.run_dir)} == set(range(1, 7))
    assert not run.tagged()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", ["qwen3_coder", "hermes"])
@pytest.mark.parametrize("parser", ["qwen3_coder", "hermes"])
def test_format_against_parser(make: Make, model: str, parser: str) -> None:
    run = make(f"model.model_path=builtin:{model}", f"model.tool_parser={parser}", "training.total_steps=2")
    run.start()
    result = run.result(120)
    if model == parser:
        assert (result.state, result.exit_code) == ("done", 0)
        return
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and result.cause.service == "trainer"
    assert "response_mask must contain at least one valid token (1)" in result.cause.text
    trials = run.snapshot().trials if (run.run_dir / "control.sock").exists() else None
    assert trials is None or trials.zero_tool_calls > 0


@pytest.mark.timeout(240)
def test_one_parsable_trial_in_a_batch_is_enough(make: Make) -> None:
    run = make(
        "model.tool_parser=hermes",
        "embedded.faults.parsable_every=8",
        "training.total_steps=2",
        "training.train_batch_size=4",
        "training.n_resp_per_prompt=8",
    )
    run.start()
    result = run.result(120)
    assert (result.state, result.exit_code) == ("done", 0), result


@pytest.mark.timeout(300)
def test_a_killed_trainer_is_resumed_with_one_history(make: Make) -> None:
    run = make("training.total_steps=9", "training.save_freq=5", "embedded.turn_latency=0.05")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 7, 150, "step 7")
    pid = run.service("trainer").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    first = run.result()
    assert (first.state, first.exit_code) == ("failed", 137)
    assert first.cause is not None and first.cause.service == "trainer" and "SIGKILL" in first.cause.text
    assert not run.tagged()
    run.start(resume=True)
    assert run.snapshot().attempt == 2
    second = run.result(150)
    assert (second.state, second.exit_code, second.attempt) == ("done", 0, 2)
    assert [line["step"] for line in metrics(run.run_dir)] == list(range(1, 10))
    again = (run.run_dir / "attempt_002" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(again[0])["step"] == 6


@pytest.mark.timeout(300)
def test_each_service_killed_in_turn(make: Make) -> None:
    run = make("training.total_steps=100")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 1, 90, "step 1")
    for name in ("replica-0", "proxy"):
        before = run.service(name)
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        run.until(name, lambda s, old=before: s.state == "ready" and s.generation > old.generation, 60)
        assert not procfs.alive(before.pid, None)
        step = run.snapshot().step or 0
        wait_until(lambda s=step: (run.snapshot().step or 0) > s + 1, 90, "training goes on")
    listed = wait_until(
        lambda: [r for r in run.snapshot().replicas.items if r.name == "replica-0" and r.listed], 30
    )
    assert listed
    trainer = run.service("trainer").pid
    assert trainer is not None
    os.kill(trainer, signal.SIGKILL)
    result = run.result()
    assert result.cause is not None and result.cause.service == "trainer" and result.exit_code == 137
    assert not run.tagged()


@pytest.mark.timeout(300)
def test_without_a_proxy_trials_wait_and_go_round_nothing(make: Make) -> None:
    run = make("training.total_steps=100")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 1, 90, "step 1")
    run.command("stop_service", service="proxy")
    stopped = run.snapshot().at
    # What the last requests generated is in the next reading of the engines' metrics.
    wait_until(lambda: run.snapshot().at - stopped > 2, 5)
    before, step = generated(run), run.snapshot().step
    held = procfs.listeners(run.service("proxy").ports["http"])
    assert list(held), "the port stays ours"
    wait_until(lambda: run.snapshot().at - stopped > 22, 25)
    assert generated(run) == before and run.snapshot().step == step
    run.command("start_service", service="proxy")
    wait_until(lambda: (run.snapshot().step or 0) > (step or 0), 60, "training goes on")


@pytest.mark.timeout(300)
def test_the_reward_rises_only_by_learning(make: Make) -> None:
    curves = {}
    for name, sets in {
        "frozen": ("algorithm.learning_rate=0", "training.total_steps=8"),
        "no tools": ("embedded.faults.tool_executor=empty", "training.total_steps=2"),
    }.items():
        run = make("training.train_batch_size=4", "training.n_resp_per_prompt=8", *sets)
        run.start()
        assert run.result(120).exit_code == 0
        curves[name] = rewards(run.run_dir)
    assert set(curves["no tools"]) == {0.0}
    assert mean(curves["frozen"][-3:]) < mean(curves["frozen"][:3]) + 0.15
