"""Whole runs of the command ``liverl-tui up --no-ui --profile cpu-verl``: real Ray, real verl, real LiteLLM.

The two replicas are LiveRL's own (no vLLM on a CPU); the faults that delay or break one of them are simulated by
them, what Ray and verl make of it is not. LIVERL_TEST_VERL_PYTHON names a Python with verl 0.9.1; without it the run
builds the profile's own environment (1.7 GB) into the cache. Each run takes two to six minutes on two cores:
``pytest -m slow tests/stack/test_verl_run.py``.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.processes import stop_process
from kit.raykit import Cluster
from kit.real import ask_replica, records, replica_token, trial_dirs
from kit.runs import ToyRun
from kit.verl_runs import (
    PYTHON,
    RUN,
    Launch,
    directory_is_gone,
    finished,
    nothing_lives,
    ray_directory,
    result_of,
)
from kit.waiting import wait_until

from liverl.control import blocking
from liverl.control.messages import ControlError
from liverl.model import Snapshot
from liverl.observe.boot.replica_stages import READ
from liverl.observe.metrics.steps import MetricsReader
from liverl.procs import procfs
from liverl.rundir.layout import read_backend

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]

LITELLM = "proxy.trials_through=litellm"  # the records of LiteLLM name the replica of each request
LATE = 60.0  # seconds by which replica 1 is late
# Seconds for actors to be alive, from the trainer's start until Ray lists them and again from there: verl took 65
# to 170 for the first part on two cores.
PENDING = 180


class Watch:
    """What can only be seen while a run lives."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.activities: dict[str, set[str]] = {}
        self.listed: list[tuple[str, str]] = []  # (alias, address), where the config had the most
        self.actor_calls: dict[str, float] = {}  # by replica: the counter's highest value
        self.reads: Counter[str] = Counter()  # by replica: how often the counter was read
        self._scraped = 0.0

    def __call__(self) -> None:
        try:
            snapshot = blocking.snapshot(self.run_dir)
        except (ControlError, OSError):
            return  # not there yet, or gone
        for replica in snapshot.replicas.items:
            if replica.activity:
                self.activities.setdefault(replica.name, set()).add(replica.activity)
        self._read_config()
        if time.monotonic() - self._scraped > 2:
            self._scraped = time.monotonic()
            self._scrape(snapshot)

    def _read_config(self) -> None:
        path = self.run_dir / "proxy" / "litellm.yaml"
        if path.exists():
            models = yaml.safe_load(path.read_text())["model_list"]
            rows = [
                (m["model_name"], m["litellm_params"]["api_base"].removesuffix("/v1").rstrip("/"))
                for m in models
            ]
            self.listed = max(self.listed, rows, key=len)

    def _scrape(self, snapshot: Snapshot) -> None:
        for replica in snapshot.replicas.items:
            if not replica.address or not replica.listed:
                continue
            try:
                token = replica_token(self.run_dir)
                _, text = ask_replica(f"{replica.address}/metrics", token, timeout=5)
            except OSError:
                continue  # it ends with the trainer
            (line,) = [row for row in text.splitlines() if row.startswith("liverl:actor_generate_total{")]
            value = float(line.rpartition(" ")[2])
            self.actor_calls[replica.name] = max(value, self.actor_calls.get(replica.name, 0.0))
            self.reads[replica.name] += 1


def healthy_at(run: ToyRun) -> dict[int, float]:
    """By rank, when the run told that its replica answers /health."""
    found: dict[int, float] = {}
    for event in run.events():
        for rank in (0, 1):
            if event.kind == "discovery" and event.text.startswith(f"replica {rank} is healthy"):
                found.setdefault(rank, event.at)
    return found


def by_step(run_dir: Path) -> dict[str, list[Path]]:
    steps: dict[str, list[Path]] = {}
    for trial in trial_dirs(run_dir):
        steps.setdefault(trial.parent.name, []).append(trial)
    return steps


def told(trial: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((trial / "result.json").read_text())
    return found


def test_four_steps_with_a_replica_that_is_a_minute_late(launch: Launch) -> None:
    run = ToyRun(launch.run_dir("late"))
    watch = Watch(run.run_dir)
    late = f"verl.faults.late_replica.seconds={LATE:g}"
    # Taking new weights lasts a fraction of a second: with the default of one second half of them go unseen.
    sets = (LITELLM, "training.total_steps=4", late, "observe.replicas_interval=0.3")
    process = launch.up("late", *sets)
    assert finished(process, watch) == 0, launch.output("late").read_text()[-3000:]
    result = result_of(run.run_dir)
    assert (result.state, result.exit_code, result.steps, result.cause) == ("done", 0, 4, None)

    healthy = healthy_at(run)
    # Its actor sleeps before it listens; the other one took 5 of those seconds until it was seen to serve.
    assert healthy[1] - healthy[0] > LATE - 15
    started = next(e.at for e in run.events() if e.service == "proxy" and e.text == "process started")
    assert started >= healthy[1], "the proxy's process starts when all replicas are there"

    addresses = {address for _, address in watch.listed}
    assert len(addresses) == 2
    per_alias: dict[str, list[str]] = {}
    for alias, address in watch.listed:
        per_alias.setdefault(alias, []).append(address)
    assert all(sorted(listed) == sorted(addresses) for listed in per_alias.values()), "once per backend"

    steps = by_step(run.run_dir)
    assert sorted(steps) == [f"step_{number:04d}" for number in (1, 2, 3, 4)]
    for step, trials in steps.items():
        calls = [record for trial in trials for record in records(trial)]
        assert len(trials) == 8 * 4 and all(records(trial) for trial in trials)
        assert all(call["success"] for call in calls)
        assert {call["replica"].rstrip("/") for call in calls} == addresses, f"{step}: both take requests"
        assert [told(trial)["exception_info"] for trial in trials] == [None] * len(trials)
    # A trial tries again after a refused or broken connection and after nothing else that could happen here.
    assert sum(told(trial)["retries"] for trial in steps["step_0001"]) == 0
    # No call went past the proxy.
    assert watch.actor_calls == {"vllm_server_0_0": 0.0, "vllm_server_1_0": 0.0}
    assert min(watch.reads.values()) > 3
    for name, seen in watch.activities.items():
        assert {"asleep", "updating", "serving"} <= seen, f"{name}: {seen}"
    assert len(watch.activities) == 2
    nothing_lives(run.run_dir)
    directory_is_gone(run.run_dir)


def test_a_trainer_that_dies_at_step_three_goes_on_there(launch: Launch) -> None:
    run_dir = launch.run_dir("kill")
    sets = ("training.total_steps=6", "training.save_freq=2", "verl.faults.crash_at_step=3")
    assert finished(launch.up("kill", *sets)) == 1, launch.output("kill").read_text()[-3000:]
    first = result_of(run_dir)
    assert (first.state, first.attempt) == ("failed", 1)
    assert first.cause is not None and first.cause.service == "trainer"
    # what the worker that ended itself wrote, and not a tool call that some turn got wrong
    assert "the first error was: fault: this worker exits at step 3" in first.cause.text
    assert [metrics.step for metrics in MetricsReader.of_run(run_dir).poll()] == [1, 2]
    nothing_lives(run_dir)

    assert finished(launch.resume("kill")) == 0, launch.output("kill").read_text()[-3000:]
    second = result_of(run_dir)
    assert (second.state, second.exit_code, second.attempt) == ("done", 0, 2)
    assert [metrics.step for metrics in MetricsReader.of_run(run_dir).poll()] == [1, 2, 3, 4, 5, 6]
    (own,) = (run_dir / "attempt_002").glob("metrics.verl*.jsonl")
    assert [json.loads(line)["step"] for line in own.read_text().splitlines()] == [3, 4, 5, 6]
    nothing_lives(run_dir)
    directory_is_gone(run_dir)


def test_a_backend_that_is_killed_takes_over_a_run_that_is_older_than_its_limits(launch: Launch) -> None:
    """What stands in the first lines of a log of hours is not read again; the length of the log is simulated."""
    limit = 30
    run = ToyRun(launch.run_dir("old"))
    process = launch.up("old", "training.total_steps=8", f"verl.address_deadline={limit}")

    def stepped(number: int) -> bool:
        try:
            return (run.snapshot().step or 0) >= number
        except (ControlError, OSError):
            assert process.poll() is None, launch.output("old").read_text()[-3000:]
            return False

    wait_until(lambda: stepped(2), RUN, "two steps")
    before = run.service("trainer")
    up = max(healthy_at(run).values())
    wait_until(lambda: run.snapshot().at > up + limit, 2 * limit, "replicas that are older than the limit")
    assert before.log is not None
    with (run.run_dir / before.log).open("ab") as log:
        log.write(b"(TaskRunner pid=1) what verl says in hours\n" * (READ // 32))
    backend = read_backend(run.run_dir)
    assert backend is not None
    os.kill(backend.pid, signal.SIGKILL)
    process.wait(60)  # the command says that its backend has gone
    run.start()
    assert run.result(RUN).exit_code == 0
    result = result_of(run.run_dir)
    assert (result.state, result.steps, result.attempt) == ("done", 8, 1)
    assert [metrics.step for metrics in MetricsReader.of_run(run.run_dir).poll()] == [*range(1, 9)]
    events = run.events()
    adopted = next(e for e in events if e.kind == "adopting")
    assert any(e.kind == "step" and e.seq > adopted.seq for e in events), "it trained on under the new one"
    assert not [e for e in events if e.seq > adopted.seq and e.text.startswith("preparing")]
    nothing_lives(run.run_dir)


def test_a_parser_that_reads_no_call_is_told_before_the_next_step(launch: Launch) -> None:
    run = ToyRun(launch.run_dir("hermes"))
    # A model that the run itself makes: of one that is there, its chat template would be looked at, and `up` refuse.
    unseen = f"model.model_path=smoke:{launch.state / 'unseen'}"
    sets = ("model.tool_parser=hermes", "training.total_steps=2", unseen)
    assert finished(launch.up("hermes", *sets)) == 0, launch.output("hermes").read_text()[-3000:]
    events = run.events()
    told = next(e for e in events if e.kind == "symptom" and e.text.startswith("trials call no tool"))
    # From the trials' files, not from verl's metrics; a first step that is over in seconds may be told before it.
    _, second = (e for e in events if e.kind == "step")
    assert told.level == "error" and told.seq < second.seq
    result = result_of(run.run_dir)
    assert result.state == "done" and "; but trials call no tool: model writes" in result.summary
    calls = [record for trial in trial_dirs(run.run_dir) for record in records(trial)]
    messages = [call["response_body"]["choices"][0]["message"] for call in calls]
    assert messages and not any(message.get("tool_calls") for message in messages)
    assert any("<function=" in message["content"] for message in messages), "the model does call"
    nothing_lives(run.run_dir)


def symptoms(run: ToyRun) -> dict[str, str]:
    """By id, what was told of it last: new, worse or cleared."""
    if not (run.run_dir / "events.jsonl").exists():
        return {}
    return {e.data["id"]: e.data["what"] for e in run.events() if e.kind == "symptom"}


def test_agents_that_are_stopped_are_told_until_they_go_on(launch: Launch) -> None:
    run = ToyRun(launch.run_dir("hang"))
    # Their time limits go on while they stand still: trials that all end by them would end the run.
    limits = ("harbor_agent.max_timeout_sec=900", "harbor_agent.override_timeout_sec=900")
    process = launch.up("hang", "training.total_steps=40", *limits)

    def in_rollout() -> bool:
        assert process.poll() is None, launch.output("hang").read_text()[-3000:]
        try:
            trials = blocking.snapshot(run.run_dir).trials
        except (ControlError, OSError):
            return False
        return bool(trials.steps) and trials.steps[0].step > 1 and trials.running >= 12

    wait_until(in_rollout, RUN, "trials that run")
    workers = [pid for pid in procfs.scan() if "ray::AgentLoopWorker" in procfs.command_line(pid)]
    mine = [pid for pid in workers if pid in run.tagged()]
    assert mine, f"of {workers} none has the run's tag"
    for pid in mine:
        stop_process(pid)
    wait_until(lambda: symptoms(run).get("process_stopped:ray") == "new", what="the symptom")
    for pid in mine:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: symptoms(run)["process_stopped:ray"] == "cleared", what="its end")
    steps = len([e for e in run.events() if e.kind == "step"])
    wait_until(lambda: len([e for e in run.events() if e.kind == "step"]) > steps + 1, what="two more steps")
    process.send_signal(signal.SIGINT)
    assert finished(process) == 5, "stopped"
    nothing_lives(run.run_dir)


def test_what_verl_measures_of_itself_is_judged(launch: Launch) -> None:
    run = ToyRun(launch.run_dir("odd"))
    # The trainer computes with another activation function than the engine, and learns nothing.
    odd = "{actor_rollout_ref.actor.optim.lr: 0, +actor_rollout_ref.model.override_config.hidden_act: relu}"
    assert finished(launch.up("odd", "training.total_steps=4", f"trainer.overrides={odd}")) == 0
    assert {"learning_rate_zero", "rollout_mismatch"} <= symptoms(run).keys()
    assert result_of(run.run_dir).summary.endswith("; but the policy does not learn")
    nothing_lives(run.run_dir)


@pytest.mark.skipif(not PYTHON, reason="the workers of a Ray that runs already need a Python with verl")
@pytest.mark.parametrize("token", ["in a file", "in a variable"])
def test_on_a_ray_that_runs_already(launch: Launch, token: str) -> None:
    folder = launch.state / "cluster"
    folder.mkdir()
    cluster = Cluster(folder, PYTHON, cpus=9, gpus=2, store=512 << 20)
    try:
        cluster.wait()
        there = (
            f"ray.address={cluster.address}",
            f"ray.dashboard_address={cluster.api.removeprefix('http://')}",
        )
        env: dict[str, str] = {}
        if token == "in a variable":  # as in the pods of KubeRay
            env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": cluster.token.read_text()}
        else:
            there = (*there, f"ray.auth_token_file={cluster.token}")
        run = ToyRun(launch.run_dir("guest"))
        guest = launch.up("guest", LITELLM, "training.total_steps=2", *there, env=env)
        events = run.run_dir / "events.jsonl"
        wait_until(
            lambda: guest.poll() is not None or (events.exists() and len(healthy_at(run)) == 2),
            RUN,
            "its replicas",
        )
        assert guest.poll() is None, launch.output("guest").read_text()[-3000:]
        # Two verl jobs would share one data plane.
        assert finished(launch.up("second", *there, env=env)) == 3
        refused = launch.output("second").read_text()
        assert "the cluster already has a TransferQueueController" in refused
        assert not launch.run_dir("second").exists()

        assert finished(guest) == 0, launch.output("guest").read_text()[-3000:]
        assert result_of(run.run_dir).steps == 2
        assert len({call["replica"] for trial in trial_dirs(run.run_dir) for call in records(trial)}) == 2
        nothing_lives(run.run_dir)
        if env:
            assert not any(
                env["RAY_AUTH_TOKEN"] in path.read_text(errors="replace")
                for path in run.run_dir.rglob("*")
                if path.is_file() and path.suffix in (".json", ".jsonl", ".yaml", ".log", ".md")
            ), "the token is in a file of the run"
        cluster.wait()  # it goes on
    finally:
        cluster.end()


FAILURES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pending": (
        ("verl.faults.pending_replica=1", f"verl.actor_deadline={PENDING}"),
        (
            *("vllm_server_1_0 has been PENDING_CREATION", f"limit {PENDING} s"),
            "waiting for resources {liverl_nobody_has_this: 1}; no node has more than {liverl_nobody_has_this: 0}",
        ),
    ),
    "mute": (
        ("verl.faults.mute_replica=1", "verl.address_deadline=45"),
        (
            "vllm_server_1_0 is ALIVE, but the actor has not reported its address",
            "limit 45 s",
            "port is None",
        ),
    ),
    "dead": (
        ("verl.faults.dead_replica=1",),
        # Told of the replica after 15 s, or by verl, which may give up before.
        ("The actor is dead because its worker process has died", "Worker exit type: SYSTEM_ERROR"),
    ),
}


@pytest.mark.parametrize("fault", FAILURES)
def test_a_replica_that_never_serves_fails_the_run_in_rays_words(launch: Launch, fault: str) -> None:
    sets, words = FAILURES[fault]
    run_dir = launch.run_dir(fault)
    assert finished(launch.up(fault, *sets)) == 1, launch.output(fault).read_text()[-3000:]
    result = result_of(run_dir)
    assert (result.state, result.exit_code, result.steps) == ("failed", 1, 0)
    assert result.cause is not None
    for word in words:
        assert word in result.cause.text
    assert result.cause.text[:80] in launch.output(fault).read_text(), "the command says it too"
    nothing_lives(run_dir)
    own = ray_directory(run_dir)
    assert own is not None and Path(own, "session_latest", "logs").is_dir(), "what Ray said can be read"
    assert not trial_dirs(run_dir), "no trial begins before all replicas are there"
