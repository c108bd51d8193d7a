"""Runs of profile cpu-verl whose trials go through sessions: those of the service, and those of verl's workers.

Real Ray and real verl 0.9.1; the replicas are LiveRL's CPU engine. LIVERL_TEST_VERL_PYTHON names a Python with verl.
Each run takes two to four minutes on two cores: ``pytest -m slow tests/stack/test_verl_sessions.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.cli import run_cli
from kit.real import ask_replica, records, trial_dirs
from kit.runs import ToyRun
from kit.trained import decoded, read, rows_of, sampled_parts
from kit.verl_runs import NEEDS_VERL, RUN, Launch, finished, nothing_lives, result_of, smoke_directory
from kit.waiting import wait_until

from liverl.control.messages import ControlError
from liverl.model import IN_WORKERS, Snapshot
from liverl.rundir.layout import RunDir

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    NEEDS_VERL,
]

STEPS = 3
TRIALS = 8 * 4  # of a step: prompts, and trials of each
# Two engines compute the same probabilities: 0.0007 to 0.0018 was measured in 64 steps, 0 is not reached.
DIFFERENCE = 0.005
SUMMED = ("num_calls", "total_prompt_tokens", "total_completion_tokens")


class Ended:
    """A run that has ended, and what was seen of it while it ran."""

    def __init__(self, launch: Launch, name: str) -> None:
        self.run = ToyRun(launch.run_dir(name))
        self.model = launch.model / "model"
        self.output = launch.output(name)
        self.status: dict[str, Any] = {}
        self.answers: dict[str, int] = {}  # HTTP status by what was asked
        self.refusals: dict[str, subprocess.CompletedProcess[str]] = {}

    @property
    def run_dir(self) -> Path:
        return self.run.run_dir

    def snapshot(self) -> Snapshot:
        found = RunDir(self.run_dir).read_snapshot()
        assert found is not None
        return found


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    launch = Launch(tmp_path_factory.mktemp("verl"), smoke_directory(tmp_path_factory))
    yield launch
    launch.end()


@pytest.fixture(scope="module")
def service(launch: Launch) -> Ended:
    """A run with the defaults."""
    ended = Ended(launch, "service")
    assert finished(launch.up("service", f"training.total_steps={STEPS}")) == 0, ended.output.read_text()
    return ended


@pytest.fixture(scope="module")
def workers(launch: Launch) -> Ended:
    """A run with topology in_process, asked while its trials run."""
    ended = Ended(launch, "workers")
    process = launch.up("workers", "run.topology=in_process", f"training.total_steps={STEPS}")
    status = wait_until(lambda: carrying(ended, process), RUN, "an open session")
    assert status is not None
    ended.status = status
    for name in ("sessions", "proxy"):
        ended.refusals[name] = cli(launch, "restart", name, "--run", ended.run_dir)
    assert finished(process) == 0, ended.output.read_text()
    return ended


def cli(launch: Launch, *args: object) -> subprocess.CompletedProcess[str]:
    return run_cli(*args, XDG_STATE_HOME=str(launch.state))


def carrying(ended: Ended, process: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """The answer of ``status --json`` with the address of a worker, once a session that was open has refused a wrong
    key."""
    assert process.poll() is None, ended.output.read_text()[-3000:]
    running = [t for t in trial_dirs(ended.run_dir) if records(t) and not (t / "result.json").exists()]
    if not running:
        return None
    told: dict[str, Any] = json.loads(run_cli("status", "--json", ended.run_dir).stdout)
    if not told["sessions"]["workers"]:
        return None
    (address,) = told["sessions"]["workers"]
    ended.answers["health"], _ = ask_replica(f"{address}/health", None)
    for trial in running:
        chat = f"{address}/sess/{trial.name}/v1/chat/completions"
        body = {"model": "policy", "messages": [{"role": "user", "content": "?"}]}
        ended.answers["wrong key"], _ = ask_replica(chat, "wrong", body=body)
        if ended.answers["wrong key"] == 401 and not (trial / "result.json").exists():
            return told
    return None


def every_trial_is_whole(run_dir: Path, steps: int) -> None:
    """None is lost and none failed; each has one row with its replies, all of them trained."""
    trials = trial_dirs(run_dir)
    assert len(trials) == steps * TRIALS
    for trial in trials:
        told, turns = read(trial / "result.json"), records(trial)
        assert told["exception_info"] is None and told["divergences"] == []
        replies = [turn["usage"]["completion_tokens"] for turn in turns if turn["success"]]
        assert len(replies) == told["turns"] == told["turns_trained"] > 0
        (row,) = rows_of(trial)
        mask, logprobs = row["traj_response_mask"], row["traj_response_logprobs"]
        assert len(mask) == len(logprobs) == len(row["traj_acc_ids"]) - row["initial_prompt_token_len"]
        assert set(mask) <= {0, 1} and mask[0] == mask[-1] == 1
        assert all(value == 0.0 for bit, value in zip(mask, logprobs, strict=True) if not bit)
        assert any(logprobs) and all(value <= 0.0 for value in logprobs)
        assert [len(part) for part in sampled_parts(row)] == replies
        assert told["tokens_trained"] == sum(mask)


def verl_trained_on_the_rows(ended: Ended) -> None:
    """verl's own text of each row that it trained, from the ids in its queue, is the text of the session's row."""
    trained = {}
    for path in (ended.run_dir / "rollouts").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            trained[row["uid"].rsplit("_", 1)[0]] = row["output"]
    trials = trial_dirs(ended.run_dir)
    assert len(trained) == len(trials)
    rows = [rows_of(trial)[0] for trial in trials]
    texts = decoded(ended.model, [row["traj_acc_ids"][row["initial_prompt_token_len"] :] for row in rows])
    for trial, text in zip(trials, texts, strict=True):
        config = read(trial / "liverl.json")
        assert trained[f"{config['uid']}_{config['session']}"] == text


def replies_are_the_sampled_ids(ended: Ended) -> None:
    """The text of each reply's ids holds what the engine's parser gave the agent: words, and the calls' arguments."""
    trials = trial_dirs(ended.run_dir)
    parts = [part for trial in trials for part in sampled_parts(rows_of(trial)[0])]
    answers = [
        turn["response_body"]["choices"][0]["message"]
        for trial in trials
        for turn in records(trial)
        if turn["success"]
    ]
    calls = 0
    for text, message in zip(decoded(ended.model, parts), answers, strict=True):
        assert (message.get("content") or "").strip() in text
        for call in message.get("tool_calls") or []:
            calls += 1
            assert f"<function={call['function']['name']}>" in text
            for value in json.loads(call["function"]["arguments"]).values():
                assert str(value).strip() in text
    assert calls > len(trials), "the model calls tools"


def training_is_on_policy(run_dir: Path) -> None:
    """verl's trainer computes nearly the probabilities of the engine for the ids of the rows."""
    (path,) = (run_dir / "attempt_001").glob("metrics.verl*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, STEPS + 1)]
    for line in lines:
        assert 0 < line["data"]["training/rollout_probs_diff_mean"] < DIFFERENCE


def counters_are_those_of_the_trials(ended: Ended) -> None:
    sessions = ended.snapshot().sessions
    assert sessions is not None and (sessions.open, sessions.finished) == (0, STEPS * TRIALS)
    trials = [read(t / "proxy_trajectory.json")["counters"] for t in trial_dirs(ended.run_dir)]
    for name in SUMMED:
        assert sessions.counters[name] == sum(trial[name] for trial in trials) > 0
    for name in ("num_failed", "healed", "context_overflow"):
        assert sessions.counters.get(name, 0) == sum(trial.get(name, 0) for trial in trials)
    assert (sessions.counters["min_global_steps"], sessions.counters["max_global_steps"]) == (0, STEPS - 1)


@pytest.mark.parametrize("name", ["service", "workers"])
def test_a_run_trains_on_what_its_engines_sampled(name: str, request: pytest.FixtureRequest) -> None:
    ended: Ended = request.getfixturevalue(name)
    result = result_of(ended.run_dir)
    assert (result.state, result.exit_code, result.steps, result.cause) == ("done", 0, STEPS, None)
    every_trial_is_whole(ended.run_dir, STEPS)
    verl_trained_on_the_rows(ended)
    replies_are_the_sampled_ids(ended)
    training_is_on_policy(ended.run_dir)
    counters_are_those_of_the_trials(ended)
    nothing_lives(ended.run_dir)


def test_the_default_carries_no_trial_through_litellm(service: Ended) -> None:
    snapshot = service.snapshot()
    assert snapshot.carrier == "sessions" and snapshot.service("proxy") is not None
    assert snapshot.proxy.requests == 0, "LiteLLM was started, and no trial used it"


def test_sessions_in_workers_are_reported_and_guarded(workers: Ended) -> None:
    assert (workers.status["carrier"], workers.status["topology"]) == ("workers", "in_process")
    assert {service["kind"] for service in workers.status["services"]}.isdisjoint({"proxy", "sessions"})
    assert workers.answers == {"health": 200, "wrong key": 401}


@pytest.mark.parametrize("name", ["sessions", "proxy"])
def test_sessions_in_workers_are_not_restarted(workers: Ended, name: str) -> None:
    refused = workers.refusals[name]
    assert refused.returncode == 1
    assert refused.stderr.strip() == f"liverl-tui: this run has no service {name}: {IN_WORKERS}"


def test_no_trial_is_lost_when_the_service_is_killed(launch: Launch) -> None:
    run = ToyRun(launch.run_dir("killed"))
    process = launch.up("killed", "training.total_steps=4")

    def speaking() -> bool:
        """Whether trials of a step after the first are between their first turn and their end."""
        assert process.poll() is None, launch.output("killed").read_text()[-3000:]
        late = trial_dirs(run.run_dir)[TRIALS:]
        return sum(bool(records(trial)) and not (trial / "result.json").exists() for trial in late) >= 4

    wait_until(lambda: len(trial_dirs(run.run_dir)) >= TRIALS or speaking(), RUN, "the first step")
    before = run.service("sessions")
    assert before.pid is not None
    wait_until(speaking, RUN, "trials in the middle of a step")
    os.kill(before.pid, signal.SIGKILL)

    def again() -> bool:
        try:
            return run.service("sessions").generation == before.generation + 1
        except ControlError:
            return False

    wait_until(again, what="the next process of the service")
    assert finished(process) == 0, launch.output("killed").read_text()[-3000:]
    assert result_of(run.run_dir).steps == 4
    every_trial_is_whole(run.run_dir, 4)
    log = next(run.run_dir.glob("attempt_001/logs/sessions.2.log")).read_text()
    assert "restored 0 open" not in log and "restored" in log
    nothing_lives(run.run_dir)
