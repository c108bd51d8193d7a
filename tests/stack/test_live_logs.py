"""Runs that go on and fail: what their logs and the proxy's list say is named within ten seconds, on real services."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kit.real import LASTING, ask_replica, real_run, replica_token
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.model import Event, Symptom

pytestmark = [pytest.mark.stack]

Make = Callable[..., ToyRun]
SOON_S = 10.0  # seconds from the evidence to its alert
AGAIN_S = 6.0  # seconds in which an alert that stands is not raised again


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *sets: ending(real_run(tmp_path, *LASTING, *sets))


def alerts(run: ToyRun) -> list[Event]:
    """The alerts raised so far, in the run's file of events."""
    events = [json.loads(line) for line in (run.run_dir / "events.jsonl").read_text().splitlines()]
    kept = [event for event in events if event["kind"] == "symptom" and event["data"]["what"] == "new"]
    return [Event(**event) for event in kept]


def raised(run: ToyRun, symptom_id: str, since: float) -> Symptom:
    """The alert, raised within ``SOON_S`` after the Unix time ``since``."""
    found = wait_until(
        lambda: next((a for a in alerts(run) if a.data["id"] == symptom_id), None), what=symptom_id
    )
    assert found is not None
    assert found.at - since <= SOON_S, f"after {found.at - since:.1f} s"
    symptom = wait_until(
        lambda: next((s for s in run.snapshot().symptoms if s.id == symptom_id), None), what=symptom_id
    )
    assert symptom is not None
    return symptom


def started(run: ToyRun) -> ToyRun:
    """The run, when it trains."""
    run.start()
    run.until("trainer", "ready", 300)
    wait_until(lambda: (run.snapshot().step or 0) >= 2, what="two steps")
    return run


def from_logs(run: ToyRun) -> list[str]:
    return [a.data["id"] for a in alerts(run) if a.data["id"].startswith(("log:", "responses_", "replica_"))]


def ask_proxy(run: ToyRun, model: str, trial: str) -> int:
    """The status of one request to the proxy with the agents' key."""
    key = (run.run_dir / "secrets" / "run_key").read_text().strip()
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
    address = run.snapshot().proxy.address
    headers = {"Authorization": f"Bearer {key}.{trial}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@contextmanager
def repeatedly(ask: Callable[[], None]) -> Iterator[None]:
    """Calls ``ask`` again and again in a thread, as an agent that tries again."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.1):
            ask()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(70)


@pytest.mark.slow
def test_agents_that_ask_for_a_wrong_model(make: Make) -> None:
    run = started(make())
    assert from_logs(run) == [], "nothing of a start"
    asked = iter(range(10**6))
    begin = time.time()
    with repeatedly(lambda: (ask_proxy(run, "gpt-4", f"t{next(asked)}"), None)[1]):
        symptom = raised(run, "model_unknown", begin)
    assert "gpt-4" in symptom.title and "policy" in symptom.fix
    assert not [one for one in from_logs(run) if "litellm-no-healthy" in one], "one alert for one cause"


@pytest.mark.slow
def test_agents_that_ask_a_replica_for_a_wrong_model(make: Make) -> None:
    run = started(make("embedded.turn_latency=0.3"))
    replica = next(r for r in run.snapshot().replicas.items if r.name == "replica-0")
    token, body = (
        replica_token(run.run_dir),
        {"model": "nope", "messages": [{"role": "user", "content": "hi"}]},
    )

    def ask() -> None:
        for _ in range(20):
            assert ask_replica(f"{replica.address}/v1/chat/completions", token, body=body)[0] == 404

    begin = time.time()
    with repeatedly(ask):
        symptom = raised(run, "log:vllm-unknown-model-asked:replica-0", begin)
    assert symptom.title == "replica-0: A request asks for the model nope, which is not served"
    place = symptom.evidence[0]
    assert place.log == "attempt_001/logs/replica-0.1.log" and place.offset is not None
    assert b"The model `nope` does not exist" in (run.run_dir / place.log).read_bytes()[place.offset :]
    # Another backend takes over: the alert goes on, and is not raised again.
    wait_until(lambda: symptom.id in (run.run_dir / "snapshot.json").read_text(), what="the alert on disk")
    run.kill_backend()
    run.start()
    wait_until(
        lambda: symptom.id in {s.id for s in run.snapshot().symptoms}, what="the alert after a restart"
    )
    time_over = time.monotonic() + AGAIN_S
    wait_until(lambda: time.monotonic() > time_over or len(from_logs(run)) > 1)
    assert from_logs(run) == ["log:vllm-unknown-model-asked:replica-0"]


@pytest.mark.slow
def test_conversations_that_are_too_long(make: Make) -> None:
    run = started(make("embedded.turn_latency=0.5"))
    key = (run.run_dir / "secrets" / "run_key").read_text().strip()
    long = {"model": "policy", "messages": [{"role": "user", "content": "word " * 20_000}]}
    address = run.snapshot().proxy.address

    def ask() -> None:
        for _ in range(10):
            assert ask_replica(f"{address}/v1/chat/completions", f"{key}.t1", body=long)[0] == 400

    begin = time.time()
    with repeatedly(ask):
        symptom = raised(run, "log:vllm-context-exceeded:proxy", begin)
    assert "32768" in symptom.title and "vllm.max_model_length" in symptom.fix
    assert from_logs(run) == [symptom.id], "nothing of the replicas, which answer the same requests"


@pytest.mark.slow
def test_a_list_of_replicas_that_something_else_has_changed(make: Make) -> None:
    run = started(make("embedded.turn_latency=0.3"))
    proxy, file = run.service("proxy"), run.run_dir / "proxy" / "litellm.yaml"
    first, second = run.snapshot().replicas.items
    routes = yaml.safe_load(file.read_text())
    routes["model_list"] = [
        m for m in routes["model_list"] if m["model_info"]["liverl_backend"] == first.address
    ]
    file.write_text(yaml.safe_dump(routes))
    begin = time.time()
    assert proxy.pid is not None
    os.kill(proxy.pid, signal.SIGHUP)
    log = run.run_dir / "attempt_001" / "logs" / "proxy.1.log"
    both = f"liverl-proxy: replicas: {first.address}, {second.address}"
    wait_until(
        lambda: f"liverl-proxy: replicas: {first.address}\n" in log.read_text(), what="the changed list"
    )
    wait_until(lambda: both in log.read_text(), what="the whole list")
    events = [json.loads(line) for line in (run.run_dir / "events.jsonl").read_text().splitlines()]
    (event,) = [e for e in events if e["kind"] == "routes"]
    assert event["text"].startswith("proxy/litellm.yaml was changed by another program")
    assert event["at"] - begin <= SOON_S
