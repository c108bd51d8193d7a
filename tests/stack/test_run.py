"""The whole loop: replicas, LiteLLM, GRPO trainer, under the real backend."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.processes import stop_process
from kit.real import (
    ask_replica,
    mean,
    metrics,
    real_run,
    records,
    replica_token,
    rewards,
    trial_dirs,
    whole_lines,
)
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.control.messages import ControlError
from liverl.observe.engine.idle import IDLE_S
from liverl.procs import procfs

pytestmark = pytest.mark.stack

Make = Callable[..., ToyRun]


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *sets: ending(real_run(tmp_path, *sets))


def generated(run: ToyRun) -> float:
    return sum(r.engine.generation_tokens_total or 0 for r in run.snapshot().replicas.items)


def generated_by_now(run: ToyRun) -> float:
    """As the engines say themselves: what a snapshot knows is as old as the backend's last look at them."""
    total = 0.0
    for replica in run.snapshot().replicas.items:
        _, text = ask_replica(f"{replica.address}/metrics", replica_token(run.run_dir))
        found = re.search(r"^vllm:generation_tokens_total(?:\{.*\})? (\S+)$", text, re.MULTILINE)
        assert found is not None, text
        total += float(found[1])
    return total


def recorded(run: ToyRun) -> int:
    """Tokens of all answers that the proxy has recorded."""
    calls = (call for trial in trial_dirs(run.run_dir) for call in records(trial))
    return sum(call["usage"]["completion_tokens"] for call in calls)


def test_every_turn_goes_through_the_proxy_and_is_recorded_once(make: Make) -> None:
    run = make("training.total_steps=4")
    run.start()
    run.until("proxy", "ready", 240)
    at_start = len(run.snapshot().replicas.items)  # one token each, of the probe that proved them
    seen = [0.0]
    looks: list[tuple[int, float]] = []  # tokens recorded, and generated a moment later

    def ended() -> bool:
        if (run.run_dir / "result.json").exists():
            return True
        try:
            trainer = run.service("trainer")
            if trainer.state in ("ready", "stopping"):
                seen.append(generated(run))
                looks.append((recorded(run), generated_by_now(run)))
        except (ControlError, OSError):
            return True  # it ended between two looks
        return False

    wait_until(ended, 240)
    result = run.result(120)
    assert (result.state, result.exit_code, result.steps) == ("done", 0, 4)
    trials = trial_dirs(run.run_dir)
    assert len(trials) == 4 * 8
    for trial in trials:
        told = json.loads((trial / "result.json").read_text())
        calls = records(trial)
        assert len(calls) == told["turns"] > 0
        assert len({call["replica"] for call in calls}) == 1, "all turns of a trial go to one replica"
    tokens = recorded(run)
    most = max(*seen, *(now for _, now in looks))
    assert most - at_start <= tokens, "nothing was generated that the proxy did not see"
    assert max(seen) > at_start, "the backend sees it too"
    assert all(now - at_start >= before for before, now in looks), "nor recorded that was not generated"
    assert max(before for before, _ in looks) > 0
    assert {s["step"] for s in metrics(run.run_dir)} == set(range(1, 5))
    log = "".join(path.read_text() for path in run.run_dir.glob("attempt_001/logs/replica-*.log"))
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in log
    polls = ("GET /health", "GET /metrics", "GET /policy_version")
    assert not [poll for poll in polls if poll in log], "the backend's own polls are not logged"
    assert not run.tagged()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "parser"),
    [(model, parser) for model in ("qwen3_coder", "hermes") for parser in ("qwen3_coder", "hermes")],
)
def test_format_against_parser(make: Make, model: str, parser: str) -> None:
    run = make(f"model.model_path=builtin:{model}", f"model.tool_parser={parser}", "training.total_steps=2")
    run.start()
    result = run.result(300)
    if model == parser:
        assert (result.state, result.exit_code) == ("done", 0)
        return
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and result.cause.service == "trainer"
    assert result.cause.text == "No trial of the batch has a token of the model (response_mask is empty)"
    line = "response_mask must contain at least one valid token (1)"
    assert any(line in piece.text for piece in result.cause.evidence)
    trials = run.snapshot().trials if (run.run_dir / "control.sock").exists() else None
    assert trials is None or trials.zero_tool_calls > 0


@pytest.mark.slow
def test_one_parsable_trial_in_a_batch_is_enough(make: Make) -> None:
    run = make(
        "model.tool_parser=hermes",
        "embedded.faults.parsable_every=8",
        "training.total_steps=2",
        "training.train_batch_size=4",
        "training.n_resp_per_prompt=8",
    )
    run.start()
    result = run.result(300)
    assert (result.state, result.exit_code) == ("done", 0), result


def test_its_ports_want_its_token_and_a_killed_trainer_is_resumed_with_one_history(make: Make) -> None:
    """Two facts of one run, since LiteLLM takes seconds of CPU to start."""
    steps, every = 9, 4
    run = make(f"training.total_steps={steps}", f"training.save_freq={every}", "embedded.turn_latency=0.05")
    run.start()
    run.until("trainer", "ready", 240)
    until_steps(run)
    no_port_serves_without_its_token(run)
    history = run.run_dir / "metrics.jsonl"
    pid = run.service("trainer").pid
    assert pid is not None

    def between() -> bool:
        """Whether the last checkpoint is whole, and steps have ended since."""
        return (ended := len(whole_lines(history))) > every and ended % every in (1, 2)

    wait_until(between, what="a step after a checkpoint")
    os.kill(pid, signal.SIGKILL)
    first, killed_at = run.result(), len(whole_lines(history))
    assert (first.state, first.exit_code) == ("failed", 137)
    assert first.cause is not None and first.cause.service == "trainer" and "SIGKILL" in first.cause.text
    assert not run.tagged()
    report = (run.run_dir / "attempt_001" / "report.md").read_text()
    assert (
        "trainer failed at " in report
        and "SIGKILL" in report
        and "- go on with: `liverl-tui up --resume" in report
    )
    kept = (run.run_dir / "attempt_001" / "litellm.yaml").read_text()
    assert kept.count("api_base:") > (run.run_dir / "proxy" / "litellm.yaml").read_text().count("api_base:")
    run.start(resume=True)
    assert run.snapshot().attempt == 2
    second = run.result(300)
    assert (second.state, second.exit_code, second.attempt) == ("done", 0, 2)
    assert [line["step"] for line in metrics(run.run_dir)] == list(range(1, steps + 1))
    again = (run.run_dir / "attempt_002" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(again[0])["step"] == killed_at // every * every + 1


@pytest.mark.slow
def test_each_service_killed_in_turn(make: Make) -> None:
    run = make("training.total_steps=100")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 1, 240, "step 1")
    for name in ("replica-0", "proxy"):
        before = run.service(name)
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        run.until(name, lambda s, old=before: s.state == "ready" and s.generation > old.generation, 240)
        assert not procfs.alive(before.pid, None)
        step = run.snapshot().step or 0
        wait_until(lambda s=step: (run.snapshot().step or 0) > s + 1, what="training goes on")
    listed = wait_until(
        lambda: [r for r in run.snapshot().replicas.items if r.name == "replica-0" and r.listed]
    )
    assert listed
    trainer = run.service("trainer").pid
    assert trainer is not None
    os.kill(trainer, signal.SIGKILL)
    result = run.result()
    assert result.cause is not None and result.cause.service == "trainer" and result.exit_code == 137
    assert not run.tagged()


@pytest.mark.slow
def test_without_a_proxy_trials_wait_and_go_round_nothing(make: Make) -> None:
    run = make("training.total_steps=100")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 1, 240, "step 1")
    run.command("stop_service", service="proxy")
    # What the last requests generate is in a later reading of the engines' metrics.
    last = [0.0, 0.0]  # tokens, and since when

    def at_rest() -> bool:
        if (tokens := generated(run)) != last[0]:
            last[:] = [tokens, run.snapshot().at]
        return run.snapshot().at - last[1] > 2

    wait_until(at_rest, what="the last tokens")
    before, step, stopped = generated(run), run.snapshot().step, run.snapshot().at
    held = procfs.listeners(run.service("proxy").ports["http"])
    assert list(held), "the port stays ours"
    wait_until(lambda: run.snapshot().at - stopped > 20)
    assert generated(run) == before and run.snapshot().step == step
    run.command("start_service", service="proxy")
    wait_until(lambda: (run.snapshot().step or 0) > (step or 0), 240, "training goes on")


@pytest.mark.slow
def test_the_reward_rises_only_by_learning(make: Make) -> None:
    curves = {}
    for name, sets in {
        "frozen": ("algorithm.learning_rate=0", "training.total_steps=8"),
        "no tools": ("embedded.faults.tool_executor=empty", "training.total_steps=2"),
    }.items():
        run = make("training.train_batch_size=4", "training.n_resp_per_prompt=8", *sets)
        run.start()
        assert run.result(300).exit_code == 0
        curves[name] = rewards(run.run_dir)
    assert set(curves["no tools"]) == {0.0}
    assert mean(curves["frozen"][-3:]) < mean(curves["frozen"][:3]) + 0.15


LONG = ("training.total_steps=400", "training.train_batch_size=4", "training.n_resp_per_prompt=8")
ROUTES = ("health", "ping", "version", "metrics", "policy_version", "v1/models", "nothing")
OTHER = {"create|start|ok": {"submit": 50.0}}


def until_steps(run: ToyRun, more: int = 1) -> None:
    """Wait until ``more`` steps have ended after the present one, so that a rollout goes on."""
    before = run.snapshot().step or 0
    wait_until(lambda: (run.snapshot().step or 0) >= before + more, 240, "the next step")


def holders_of(text: str, run: ToyRun) -> set[str]:
    """The files of the run, and its processes' command lines, in which ``text`` occurs."""
    files = (path for path in run.run_dir.rglob("*") if path.is_file() and not path.is_symlink())
    found = {str(p.relative_to(run.run_dir)) for p in files if text.encode() in p.read_bytes()}
    lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in run.tagged()}
    return found | {f"argv of {pid}" for pid, line in lines.items() if text.encode() in line.read_bytes()}


def no_port_serves_without_its_token(run: ToyRun) -> None:
    """Ask a training run's replicas without it, for everything that there is, and see that the run is as before."""
    token = replica_token(run.run_dir)
    replicas = run.snapshot().replicas.items
    assert len(replicas) == 2
    for replica in replicas:
        version = json.loads(ask_replica(f"{replica.address}/policy_version", token)[1])["version"]
        for wrong in (None, "sk-liverl-wrong", (run.run_dir / "secrets" / "run_key").read_text().strip()):
            for route in ROUTES:
                assert ask_replica(f"{replica.address}/{route}", wrong)[0] == 401, route
            update = {"version": version, "logits": OTHER}
            assert ask_replica(f"{replica.address}/update_weights", wrong, body=update)[0] == 401
            chat = {"model": "policy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
            assert ask_replica(f"{replica.address}/v1/chat/completions", wrong, body=chat)[0] == 401
        assert [ask_replica(f"{replica.address}/{route}", token)[0] for route in ROUTES[:-1]] == [200] * 6
    until_steps(run)
    shown = run.snapshot()
    assert [(r.listed, r.policy_changed) for r in shown.replicas.items] == [(True, None)] * 2
    assert not [s for s in shown.symptoms if s.id.startswith("policy_changed")]
    assert holders_of(token, run) == {"secrets/replica_token", "proxy/litellm.yaml"}
    for name in ("secrets/replica_token", "proxy/litellm.yaml"):
        assert (run.run_dir / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_weights_that_were_changed_under_the_same_version_are_an_alert(make: Make) -> None:
    run = make(*LONG, "embedded.turn_latency=1", "observe.replicas_interval=0.3")
    run.start()
    run.until("trainer", "ready", 240)
    until_steps(run)
    token = replica_token(run.run_dir)

    def alert() -> set[str]:
        return {s.id for s in run.snapshot().symptoms if s.severity == "critical"}

    def changed() -> bool:
        """Change them once in each version: the trainer sends other ones when it has the next."""
        (replica,) = (r for r in run.snapshot().replicas.items if r.name == "replica-0")
        held = json.loads(ask_replica(f"{replica.address}/policy_version", token)[1])["version"]
        body = {"version": held, "logits": OTHER}
        assert ask_replica(f"{replica.address}/update_weights", token, body=body)[0] == 200
        return "policy_changed:replica-0" in alert()

    wait_until(changed, what="the alert")
    (symptom,) = (s for s in run.snapshot().symptoms if s.id == "policy_changed:replica-0")
    assert symptom.title == "the weights of replica-0 were changed"
    assert symptom.action == "restart replica-0"
    listed = {r.name: r.listed for r in run.snapshot().replicas.items}
    assert listed == {"replica-0": False, "replica-1": True}
    until_steps(run)
    assert alert() == {"policy_changed:replica-0"}, "it stays, although the trainer has sent new weights"
    run.kill_backend()
    run.start()
    run.until("trainer", "ready", 60)
    wait_until(lambda: alert() == {"policy_changed:replica-0"}, what="the next backend knows it, too")
    assert not next(r for r in run.snapshot().replicas.items if r.name == "replica-0").listed
    run.command("restart", service="replica-0")
    wait_until(lambda: all(r.listed for r in run.snapshot().replicas.items), what="it is listed again")
    wait_until(lambda: not alert(), what="the alert has cleared")


@pytest.mark.slow
def test_the_replica_that_is_stopped_is_blamed_and_not_the_idle_one(make: Make) -> None:
    """One trial runs at a time and waits for the stopped replica, so that the other one has nothing to do for longer
    than an idle one may, although trials are left."""
    run = make("harbor_runtime.num_workers=1", "embedded.turn_latency=2")
    run.start()
    run.until("trainer", "ready", 240)

    def working() -> list[str]:
        return [r.name for r in run.snapshot().replicas.items if r.engine.running]

    stopped = wait_until(working, what="a request is being answered")[0]
    pid = run.service(stopped).pid
    assert pid is not None
    stop_process(pid)
    named: set[str] = set()
    idle = {"since": 0.0, "longest": 0.0}

    def replaced() -> bool:
        snapshot = run.snapshot()
        named.update(symptom.id for symptom in snapshot.symptoms)
        other = next(r for r in snapshot.replicas.items if r.name != stopped)
        assert other.idle_for is None, named
        if other.engine.running or not idle["since"]:
            idle["since"] = snapshot.at
        idle["longest"] = max(idle["longest"], snapshot.at - idle["since"])
        return run.service(stopped).generation == 2

    wait_until(replaced, 240, "the backend replaces it")
    assert f"process_stopped:{stopped}" in named
    assert idle["longest"] > IDLE_S + 5, "the other one had nothing to do for long"
    assert not [name for name in named if ":replica-" in name and not name.endswith(stopped)], named
