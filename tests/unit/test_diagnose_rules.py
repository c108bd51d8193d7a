"""Symptoms of a run under way: what fires each rule, what must not, and how they begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.screens import NOW, gpu, replica, service, snapshot, trial
from kit.symptoms import lasting, proof
from msgspec.structs import replace

from liverl.diagnose.catalogue.agents import SILENT_S
from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import Diagnosis, Resolved, Rule, RunContext, Window, words
from liverl.model import (
    Cause,
    ConfigChange,
    Evidence,
    ProxyStatus,
    ReplicaSet,
    SessionsStatus,
    Snapshot,
    StalledProcess,
    StepMetrics,
    StepTrials,
    Symptom,
    TrialsStatus,
)
from liverl.observe.metrics.step_lines import parse_step_line

RECORDINGS = Path(__file__).parents[1] / "data/recordings"
A, B = "http://127.0.0.1:8000", "http://127.0.0.1:8001"


def found(now: Snapshot, before: Snapshot | None = None, **beside: Any) -> dict[str, Symptom]:
    """What the rules find at one look, before anything is held back."""
    seen = Window(now, before, lasting(now, **beside))
    all_ = [s for rule in RULES for s in rule.look(seen) if isinstance(s, Symptom)]
    return {s.id: s for s in all_}


def replicas(*items: Any, **fields: Any) -> Snapshot:
    listed = sum(r.listed for r in items)
    return snapshot(replicas=ReplicaSet(len(items), len(items), listed, items), **fields)


def trials(*steps: StepTrials, newest: tuple[Any, ...] = (), **fields: Any) -> Snapshot:
    return snapshot(trials=TrialsStatus(newest=newest, steps=steps), **fields)


def test_a_healthy_run_has_none() -> None:
    assert found(snapshot(), snapshot()) == {}


# --- replicas -------------------------------------------------------------------------------------------


def test_replica_idle() -> None:
    idle = replica(1, running=0.0, waiting=0.0, idle_for=75.0, gpus=("GPU-00000001",))
    symptom = found(replicas(replica(0), idle, gpus=(gpu(1, utilization=0.0),)))["replica_idle:r1"]
    assert (symptom.severity, symptom.since, symptom.action) == ("warning", NOW - 75, "restart r1")
    assert "75 s" in symptom.cause and symptom.title == "r1 is loaded but idle"
    assert proof(symptom) == (
        "r1: ready, 0 running, 0 waiting",
        "GPU 1: 118 GiB used, 0 % utilization",
        "r0: ready, 3 running, 0 waiting",
    )
    assert found(replicas(replica(0), replica(1, running=0.0))) == {}
    assert found(replicas(replica(0), idle, state="stopping")) == {}


def timed(index: int, answer: float, token: float, answers: float = 30.0, **fields: Any) -> Any:
    times = {"answers": answers, "seconds_per_answer": answer, "seconds_per_token": token}
    return replica(index, **times, **fields)


FAST, FAST_1 = timed(0, 0.15, 0.01), timed(1, 0.2, 0.012)
ROUTED = replace(snapshot().proxy, backends=(A, B, "http://127.0.0.1:8002"))


def test_replica_slow() -> None:
    slow = timed(1, 2.1, 0.14, running=13.0, gpus=("GPU-00000001",))
    symptom = found(replicas(FAST, slow, gpus=(gpu(1),)))["replica_slow:r1"]
    assert symptom.title == "r1 answers 14 times slower than the other replica"
    assert (symptom.severity, symptom.action) == ("warning", "restart r1")
    assert "2.10 s for an answer" in symptom.cause and "the others is 0.15 s" in symptom.cause
    assert proof(symptom) == (
        "r1: 2.10 s per answer, 140.0 ms per token, 30 answers in the last minute",
        "r0: 0.15 s per answer, 10.0 ms per token, 30 answers in the last minute",
        "r1: ready, 13 running, 0 waiting",
        "GPU 1: 118 GiB used, 97 % utilization",
    )
    three = found(replicas(FAST, FAST_1, timed(2, 0.5, 0.026), proxy=ROUTED))
    assert three["replica_slow:r2"].title == "r2 answers 2.4 times slower than the others"
    assert three.keys() == {"replica_slow:r2"}


def test_a_slow_replica_of_verl_is_restarted_by_its_trainer() -> None:
    slow, other = timed(1, 2.1, 0.14, kind="verl"), timed(0, 0.15, 0.01, kind="verl")
    symptom = found(replicas(other, slow))["replica_slow:r1"]
    assert symptom.action is None and "restart the trainer" in symptom.fix


@pytest.mark.parametrize(
    "items",
    [
        pytest.param((timed(1, 2.1, 0.14),), id="the only one"),
        pytest.param((FAST, FAST_1), id="much alike"),
        pytest.param((FAST, timed(1, 0.29, 0.019)), id="not twice as slow"),
        pytest.param((FAST, timed(1, 0.15, 0.05)), id="shorter answers"),
        pytest.param((FAST, timed(1, 6.0, 0.01)), id="longer answers"),
        pytest.param((FAST, timed(1, 2.1, 0.14, answers=7.0)), id="long tail: few answers"),
        pytest.param((timed(0, 0.15, 0.01, answers=7.0), timed(1, 2.1, 0.14)), id="few answers elsewhere"),
        pytest.param((FAST, timed(1, 2.1, 0.14, since=NOW - 59)), id="just started"),
        pytest.param(
            (timed(0, 0.15, 0.01, since=NOW - 59), timed(1, 2.1, 0.14)), id="the other just started"
        ),
        pytest.param((FAST, replica(1)), id="not measured"),
    ],
)
def test_a_replica_that_is_not_slow(items: tuple[Any, ...]) -> None:
    assert found(replicas(*items)) == {}


def test_no_replica_is_slow_while_a_process_stands_still_or_the_run_stops() -> None:
    slow = (FAST, timed(1, 2.1, 0.14))
    assert found(replicas(*slow, state="stopping")) == {}
    stopped = service("trainer", "trainer", stalled=(StalledProcess(7, "T", NOW - 20),))
    assert "replica_slow:r1" not in found(replicas(*slow, services=(stopped,)))


def test_a_slow_replica_is_told_after_a_minute_and_over_when_it_is_fast_again() -> None:
    diagnosis = Diagnosis(RULES)

    def at(second: float, *items: Any) -> list[str]:
        now = replicas(*(replace(r, since=NOW - 500) for r in items), at=NOW + second)
        return [f"{one.what} {one.symptom.id}" for one in diagnosis.update(now, RunContext())]

    slow = timed(1, 2.1, 0.14)
    assert [at(t, FAST, slow) for t in range(0, 75, 5)] == [[]] * 15
    assert at(75, FAST, slow) == ["new replica_slow:r1"]
    assert at(80, FAST, replica(1)) == [], "a pause between rollouts measures nothing"
    assert at(85, FAST, timed(1, 0.25, 0.016)) == [], "still slower than usual"
    assert at(90, FAST, timed(1, 0.2, 0.012)) == ["cleared replica_slow:r1"]
    assert at(95, FAST, slow) == []
    assert at(100, FAST, replica(1)) == []
    assert at(170, FAST, slow) == [], "one long answer is in the mean for a minute"


def test_replica_unlisted() -> None:
    waits = replica(1, listed=False, policy_version=6)
    symptom = found(replicas(replica(0), waits))["replica_unlisted:r1"]
    assert "policy version 6, the trainer has 7" in symptom.cause and symptom.action is None
    refused = found(replicas(replica(0), replica(1, listed=False)))["replica_unlisted:r1"]
    assert refused.action == "restart r1" and refused.severity == "warning"
    stale = replace(snapshot().proxy, backends=(A,))
    unread = found(snapshot(proxy=stale))["replica_unlisted:r1"]
    assert unread.action == "restart proxy" and f"the proxy routes to {A}" in proof(unread)
    for harmless in (
        replica(1, listed=False, leaving=True),
        replica(1, "starting", listed=False),
        replica(1, "stopped", listed=False, address=None),
    ):
        assert "replica_unlisted:r1" not in found(replicas(replica(0), harmless))
    booting = tuple(
        s if s.kind != "proxy" else service("proxy", "proxy", "starting") for s in snapshot().services
    )
    assert found(snapshot(services=booting, proxy=ProxyStatus())) == {}


def test_replica_unlisted_is_held_for_half_a_minute() -> None:
    clock = Clock(replicas(replica(0), replica(1, listed=False)))
    assert clock.run(28) == []
    assert [news.what for news in clock.run(4)] == ["new"]
    # A replica that joined in time is none.
    joining = Clock(replicas(replica(0), replica(1, listed=False)))
    joining.run(20)
    joining.state = snapshot()
    assert joining.run(60) == []


@pytest.mark.parametrize(("seconds", "told"), [(5, []), (12, ["new"])])
def test_a_replica_that_waited_for_the_others_is_not_late_when_it_is_added(
    seconds: int, told: list[str]
) -> None:
    """The proxy has some seconds to load the list, however long the replica was ready before it was put there."""
    adding = Clock(replicas(replica(0), replica(1, listed=False)))
    assert adding.run(20) == []
    adding.state = snapshot(proxy=replace(snapshot().proxy, backends=(A,)))
    assert [news.what for news in adding.run(seconds)] == told


def test_rules_that_take_turns_do_not_put_off_an_alert() -> None:
    turns = Clock(replicas(replica(0), replica(1, listed=False)))
    news = []
    for number in range(8):
        stale = snapshot(proxy=replace(snapshot().proxy, backends=(A,)))
        turns.state = stale if number % 2 else replicas(replica(0), replica(1, listed=False))
        news += turns.run(3)
    assert [one.what for one in news] == ["new"]


@pytest.mark.parametrize("kind", ["managed", "verl"])
@pytest.mark.parametrize("state", ["stopped", "failed", "gave_up"])
def test_replica_missing(state: str, kind: str) -> None:
    why = "exited with code 0 without a stop request"
    gone = replica(1, state, kind=kind, address=None, listed=False, why=why)
    now = replicas(replica(0, kind=kind), gone)
    symptom = found(now)["replica_missing:r1"]
    title = "r1 is missing" if state == "stopped" else "r1 is down"
    assert (symptom.severity, symptom.title, symptom.cause) == ("warning", title, why)
    assert proof(symptom) == ("1 of 2 replicas are up",)
    assert symptom.action == (None if kind == "verl" else "restart r1")
    assert symptom.fix == (
        "r1 is managed by verl; restart the trainer to restart it" if kind == "verl" else "restart r1"
    )
    assert "replica_missing:r1" in found(replace(now, state="starting")), "one of a boot may fail, too"
    both = replicas(replica(0, state, address=None, listed=False), gone)
    assert found(both)["replica_missing:r1"].severity == "critical"


@pytest.mark.parametrize("kind", ["managed", "verl"])
def test_a_replica_that_should_not_serve_is_not_missing(kind: str) -> None:
    def with_it(state: str, **fields: Any) -> Snapshot:
        return replicas(replica(0), replica(1, state, kind=kind, address=None, listed=False, **fields))

    harmless = [with_it("stopped", leaving=True), with_it("failed", leaving=True)]
    harmless += [replace(with_it("stopped"), state=state) for state in ("stopping", "done", "failed")]
    harmless += [with_it(state) for state in ("waiting", "preparing", "starting", "stopping")]
    harmless += [replace(now, state="starting") for now in harmless[-4:]]
    assert [found(now) for now in harmless] == [{}] * len(harmless)
    # Somebody stopped it.
    assert found(with_it("stopped"), unwanted=frozenset({"r1"})) == {}


def test_a_replica_that_failed_as_a_service_is_one_symptom() -> None:
    fallen = service("r1", "replica", "gave_up", why="exit 1", pid=None)
    gone = replica(1, "gave_up", address=None, listed=False)
    now = replicas(replica(0), gone, services=(*snapshot().services[:2], fallen))
    assert set(found(now)) == {"service_gave_up:r1"}


@pytest.mark.parametrize("trainer", ["stopping", "backing_off", "preparing", "stopped", "failed"])
def test_a_replica_of_verl_that_ended_with_its_trainer_is_not_missing(trainer: str) -> None:
    ended = service("trainer", "trainer", trainer, pid=None)
    rest = tuple(s for s in snapshot().services if s.kind != "trainer")
    for kind, missing in (("verl", False), ("managed", True)):
        gone = replica(1, "failed", kind=kind, address=None, listed=False)
        now = replicas(replica(0, kind=kind), gone, services=(*rest, ended))
        assert ("replica_missing:r1" in found(now)) is missing
    up = replicas(replica(0), replica(1, "failed", kind="verl"), services=rest)
    assert "replica_missing:r1" in found(up), "there is no trainer with which it could have ended"


def test_a_missing_replica_is_told_after_ten_seconds_and_over_when_it_starts_again() -> None:
    gone = replica(1, "stopped", address=None, listed=False)
    clock = Clock(replicas(replica(0), gone))
    assert clock.run(10) == []
    assert [(n.what, n.symptom.id) for n in clock.run(2)] == [("new", "replica_missing:r1")]
    clock.state = replicas(replica(0), replica(1, "starting", address=None, listed=False, restarts=1))
    assert [n.what for n in clock.run(2)] == ["cleared"]


def test_replica_late() -> None:
    restarts = replica(1, "starting", address=None, listed=False, restarts=1, why="waits for /health")
    symptom = found(replicas(replica(0), restarts))["replica_late:r1"]
    assert symptom.title == "r1 has not served since its restart"
    assert symptom.cause == "starting: waits for /health"
    for harmless in (
        replica(1, "starting", address=None, listed=False),  # its first start has its own deadline
        replica(1, "starting", address=None, listed=False, restarts=1, leaving=True),
        replica(1, restarts=1),
        replica(1, "degraded", restarts=1),
        replica(1, "stopped", address=None, listed=False, restarts=1),  # it is missing
    ):
        assert "replica_late:r1" not in found(replicas(replica(0), harmless))
    clock = Clock(replicas(replica(0), restarts))
    assert clock.run(598) == [], "within the time that a restart takes"
    assert [n.symptom.id for n in clock.run(6)] == ["replica_late:r1"]
    clock.state = replicas(replica(0), replica(1, restarts=1))
    assert [n.what for n in clock.run(2)] == ["cleared"]


def test_proxy_cooled_down() -> None:
    cold = replace(snapshot().proxy, cooled_down=(B,), failures=3)
    symptom = found(snapshot(proxy=cold))["proxy_cooled_down:r1"]
    assert symptom.severity == "warning" and symptom.action == "restart r1"
    assert "3 of 1031 requests failed so far" in proof(symptom)
    assert "the trials of r1 move to other replicas" in symptom.cause
    alone = ReplicaSet(1, 1, 1, (replica(1),))
    assert "no other replica" in found(snapshot(proxy=cold, replicas=alone))["proxy_cooled_down:r1"].cause
    both = replace(cold, cooled_down=(A, B))
    assert "no other replica" in found(snapshot(proxy=both))["proxy_cooled_down:r0"].cause
    # That a replica which has died cannot be reached is its own symptom.
    dead = ReplicaSet(2, 1, 1, (replica(0), replica(1, "backing_off", address=None)))
    assert "proxy_cooled_down:r1" not in found(snapshot(proxy=cold, replicas=dead))


# --- services -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["failed", "gave_up"])
def test_service_down(state: str) -> None:
    fallen = service(
        "r1",
        "replica",
        state,
        why="failed 6 times within 300 s; last failure: exit 1",
        since=NOW - 9,
        pid=None,
    )
    cause = Cause("r1", "RuntimeError: CUDA error", NOW, "attempt_001/logs/r1.6.log", 812)
    now = snapshot(services=(*snapshot().services[:2], fallen))
    symptom = found(now, causes={"r1": cause})[f"service_{state}:r1"]
    assert (symptom.severity, symptom.cause) == ("critical", "RuntimeError: CUDA error")
    assert (symptom.since, symptom.action) == (NOW - 9, "restart r1")
    assert proof(symptom) == (
        "attempt_001/logs/r1.6.log at byte 812: RuntimeError: CUDA error",
        "r1: failed 6 times within 300 s; last failure: exit 1",
    )
    assert found(now)[f"service_{state}:r1"].cause == fallen.why
    assert found(replace(now, state="failed"))[f"service_{state}:r1"].action is None
    ended = service("r1", "replica", "stopped", why="stopped", pid=None)
    assert found(snapshot(services=(*snapshot().services[:2], ended))) == {}


NOT_REPLACED = Cause(
    "trainer",
    "replica vllm_server_0_0 is DEAD and was not replaced within 15 s",
    NOW - 2,
    "attempt_001/logs/trainer.1.log",
    812,
    why="Its process is gone",
    fix="Read its log.",
    command="dmesg",
    patch={"verl.dead_grace": "60"},
    evidence=(Evidence("died", "attempt_001/logs/trainer.1.log", 812),),
)


def test_a_run_that_fails_without_a_failed_service_has_an_alert_that_says_why() -> None:
    symptom = found(snapshot(), failure=NOT_REPLACED)["run_failed:trainer"]
    assert (symptom.severity, symptom.title, symptom.since) == ("critical", "the run has failed", NOW - 2)
    assert symptom.cause == f"trainer: {NOT_REPLACED.text}. Its process is gone"
    resume = "liverl-tui up --resume"
    assert symptom.fix.startswith(f"Read its log; then: {resume}") and "verl.dead_grace=60" in symptom.fix
    assert (symptom.patch, symptom.guess) == (NOT_REPLACED.patch, False)
    assert proof(symptom) == ("attempt_001/logs/trainer.1.log at byte 812: died", "run: dmesg")

    bare = found(snapshot(), failure=Cause("proxy", "its socket is gone", NOW))["run_failed:proxy"]
    assert bare.fix.startswith(f"correct what the reason names; then: {resume}")
    whole = replace(NOT_REPLACED, fix="Run: liverl-tui up --resume p/n --set a=1")
    assert found(snapshot(), failure=whole)["run_failed:trainer"].fix == whole.fix
    guess = found(snapshot(), failure=replace(NOT_REPLACED, guess=True))["run_failed:trainer"]
    assert guess.guess and "--set" not in guess.fix


@pytest.mark.parametrize("state", ["failed", "gave_up"])
def test_a_run_that_fails_by_a_service_has_the_alert_of_that_service_only(state: str) -> None:
    fallen = service("trainer", "trainer", state, why="exit 1", pid=None)
    now = snapshot(services=(*snapshot().services[:2], fallen))
    assert found(now, failure=NOT_REPLACED).keys() == {f"service_{state}:trainer"}
    other = replace(fallen, name="r1", kind="replica")
    now = snapshot(services=(*snapshot().services[:2], other))
    assert found(now, failure=NOT_REPLACED).keys() == {f"service_{state}:r1", "run_failed:trainer"}


def test_service_backing_off() -> None:
    falls = service("r1", "replica", "backing_off", why="exit 1", pid=None, restarts=2)
    now = snapshot(services=(*snapshot().services[:2], falls))
    symptom = found(now)["service_backing_off:r1"]
    assert (symptom.severity, symptom.cause, symptom.action) == ("warning", "exit 1", "restart r1")
    assert "2 restarts so far" in proof(symptom)
    again = snapshot(services=(*snapshot().services[:2], service("r1", "replica", "starting")))
    assert found(again) == {}
    # One symptom as long as it goes on failing, whatever it does in between.
    clock = Clock(now)
    assert [n.what for n in clock.run(4)] == ["new"]
    for _ in range(5):
        clock.state = again
        assert clock.run(30) == []
        clock.state = now
        assert clock.run(4) == []
    clock.state = replace(again, services=(replace(falls, state="gave_up"),))
    assert {n.what + n.symptom.id for n in clock.run(2)} == {
        "clearedservice_backing_off:r1",
        "newservice_gave_up:r1",
    }


def restarted(state: str = "ready", kind: str = "replica", **fields: Any) -> Snapshot:
    name = "r1" if kind == "replica" else kind
    values = {"restarts": 1, "failed_at": NOW - 12, "failure": "killed by SIGKILL", **fields}
    values.setdefault("log", f"attempt_001/logs/{name}.2.log")
    return snapshot(services=(*snapshot().services[:2], service(name, kind, state, **values)))


def test_a_restarted_service_is_named_for_some_minutes() -> None:
    symptom = found(restarted())["service_restarted:r1"]
    assert symptom.title == "r1 failed (killed by SIGKILL); it serves again"
    assert (symptom.severity, symptom.since) == ("warning", NOW - 12)
    assert proof(symptom) == ("attempt_001/logs/r1.1.log",)
    assert "OOM killer" in symptom.cause and "restarted 1 time in" in symptom.cause
    for state in ("preparing", "starting", "degraded"):
        assert found(restarted(state))["service_restarted:r1"].title.endswith("; it is being restarted")
    assert found(restarted(failed_at=NOW - 299))
    assert "restarted 2 times" in found(restarted(restarts=2))["service_restarted:r1"].cause
    assert proof(found(restarted(log=None))["service_restarted:r1"]) == ()
    assert proof(found(restarted(log="attempt_001/logs/r1.1.log"))["service_restarted:r1"]) == ()


def test_a_restart_has_the_same_cause_under_the_next_backend() -> None:
    """Only the backend that saw the process end has read why."""
    name = "service_restarted:r1"
    oom = Cause("r1", "killed by SIGKILL, its log says nothing about it", NOW - 12, fix="Look at dmesg.")
    before = found(restarted(), causes={"r1": oom})[name]
    assert before.cause.startswith("its log says nothing about it;") and before.fix.startswith(
        "Look at dmesg"
    )
    raised = replace(before, since=NOW - 11)
    assert found(restarted(), earlier={name: raised})[name] == before
    title = found(restarted("starting"), earlier={name: raised})[name].title
    assert title == "r1 failed (killed by SIGKILL); it is being restarted"
    # another failure since, and a cause that this backend has read itself
    assert "OOM killer" in found(restarted(failed_at=NOW - 5), earlier={name: raised})[name].cause
    own = Cause("r1", "its port was taken", NOW - 12)
    assert "its port was taken" in found(restarted(), causes={"r1": own}, earlier={name: raised})[name].cause


@pytest.mark.parametrize(
    "state",
    [
        restarted(failed_at=NOW - 300),
        restarted(failed_at=None),
        replace(restarted(), state="stopping"),
        restarted("backing_off"),
        restarted("gave_up"),
        restarted("starting", "proxy", down_since=NOW - 12),
    ],
)
def test_what_is_no_restarted_service(state: Snapshot) -> None:
    assert not [name for name in found(state) if name.startswith("service_restarted")]


def test_a_restarted_service_has_no_alert_once_the_time_is_over() -> None:
    clock = Clock(restarted())
    assert [n.symptom.id for n in clock.run(4)] == ["service_restarted:r1"]
    clock.state = restarted(failed_at=NOW - 400)
    assert [n.what for n in clock.run(2)] == ["cleared"]


def test_what_is_no_part_of_the_run_any_more_has_no_alert() -> None:
    """A replica that failed to be added, and was dropped."""
    falls = service("r2", "replica", "backing_off", why="no GPU", pid=None, restarts=2)
    clock = Clock(snapshot(services=(*snapshot().services, falls)))
    assert [n.symptom.id for n in clock.run(4)] == ["service_backing_off:r2"]
    clock.state = snapshot()
    assert [(n.what, n.symptom.id) for n in clock.run(2)] == [("cleared", "service_backing_off:r2")]
    idle = replica(2, running=0.0, waiting=0.0, idle_for=75.0)
    clock = Clock(replicas(replica(0), replica(1), idle))
    assert [n.symptom.id for n in clock.run(4)] == ["replica_idle:r2"]
    clock.state = replicas(replica(0), replica(1))
    assert [(n.what, n.symptom.id) for n in clock.run(2)] == [("cleared", "replica_idle:r2")]


# --- trials ---------------------------------------------------------------------------------------------


def step(number: int, finished: int, zero: int, calling: int | None = None, total: int = 16) -> StepTrials:
    calling = finished - zero if calling is None else calling
    return StepTrials(number, total, finished, zero, 0.5, calling=calling)


def test_zero_tool_calls() -> None:
    heads = tuple(trial(i, step=8, tool_calls=0, flags=("zero_tool_calls",)) for i in range(12))
    every = found(trials(step(8, 5, 5), step(7, 16, 0), newest=(trial(90, step=8), *heads)))[
        "zero_tool_calls"
    ]
    assert every.severity == "critical" and "all 5 trials of step 8" in every.cause
    assert proof(every) == tuple(f"trials/step_0008/trial-{i:03}" for i in range(8))
    assert "model.tool_parser" in every.fix and every.patch == {}, "nobody knows what the model writes"
    half = found(trials(step(8, 16, 8)))["zero_tool_calls"]
    assert half.severity == "warning" and "8 of 16 trials" in half.cause
    # Agents that have ended without a call tell enough before their verifiers do.
    assert found(trials(step(8, 0, 4, calling=0)))["zero_tool_calls"].severity == "critical"
    # Too few to judge: the step before counts.
    assert found(trials(step(8, 3, 3), step(7, 16, 16)))["zero_tool_calls"].severity == "critical"
    assert found(trials(step(8, 3, 3))) == {}
    assert found(trials(step(8, 16, 7))) == {}
    # Others of the step are still at work, and call tools.
    assert found(trials(step(8, 4, 4, calling=9))) == {}


def wrong(writes: str | None, parser: str | None, count: int = 12) -> Symptom:
    heads = tuple(
        trial(i, step=8, tool_calls=0, flags=("zero_tool_calls",), writes=writes if i else None)
        for i in range(count)
    )
    return found(trials(step(8, 16, 12), newest=heads), tool_parser=parser)["zero_tool_calls"]


def test_zero_tool_calls_says_what_to_type() -> None:
    symptom = wrong("Qwen3-Coder XML", "hermes")
    assert symptom.title == "trials call no tool: model writes Qwen3-Coder XML, parser is hermes"
    assert symptom.patch == {"model.tool_parser": "qwen3_coder"}
    assert (
        "set model.tool_parser=qwen3_coder: liverl-tui fix" in symptom.fix
        and "model.tool_parser is hermes" in symptom.cause
    )
    assert "in 11 of them" in symptom.cause
    assert wrong("Hermes JSON", "qwen3_coder").patch == {"model.tool_parser": "hermes"}
    assert wrong("Hermes JSON", None).patch == {"model.tool_parser": "hermes"}
    unreadable = wrong("Anthropic XML", "hermes")
    assert unreadable.patch == {} and "model.model_path" in unreadable.fix
    malformed = wrong("Hermes JSON", "hermes")
    assert malformed.patch == {} and "cut off" in malformed.cause, "the parser is the right one"
    assert wrong(None, "hermes").patch == {}


def test_a_parser_is_a_guess_while_few_of_the_texts_show_the_format() -> None:
    """Each of the parsers that read the format does: the command that goes on names one."""
    assert not wrong("Qwen3-Coder XML", "hermes").guess and not wrong("Hermes JSON", "qwen3_coder").guess
    assert wrong("Qwen3-Coder XML", "hermes", count=2).guess, "one of two"


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        ("port 4000 is held by pid 7 (user x): nc", "End the process that holds port 4000 if it is yours"),
        (
            "port 4000 (infrastructure.litellm_port) is held by pid 7 (user x): nc",
            "--set infrastructure.litellm_port=0 takes any free port; or end the process that holds port 4000",
        ),
        ("the support 4000 is held by pid 7", "fix the error shown in the log of proxy"),
    ],
)
def test_a_port_that_another_process_holds_is_freed(why: str, fix: str) -> None:
    fallen = service(
        "proxy", "proxy", "gave_up", why=f"failed 2 times; last failure: {why}", pid=None, log=None
    )
    others = tuple(s for s in snapshot().services if s.name != "proxy")
    symptom = found(snapshot(services=(*others, fallen)))["service_gave_up:proxy"]
    assert why in symptom.cause and symptom.fix.startswith(fix)
    assert symptom.patch == ({"infrastructure.litellm_port": "0"} if "litellm_port" in why else {})


def test_a_trainer_that_ended_for_want_of_tokens_has_the_fix_of_its_trials() -> None:
    heads = tuple(
        trial(i, step=8, tool_calls=0, flags=("zero_tool_calls",), writes="Hermes JSON") for i in range(12)
    )
    state = trials(step(8, 16, 12), newest=heads)
    fallen = service("trainer", "trainer", "failed", why="exit 1", pid=None)
    state = replace(state, services=(*(s for s in state.services if s.kind != "trainer"), fallen))
    for signature, fix in (
        ("verl-no-tokens", "set model.tool_parser=hermes: liverl-tui fix"),
        ("cuda-oom", "look at them"),
    ):
        cause = Cause("trainer", "no tokens", NOW, id=signature, why="?", fix="look at them")
        symptom = found(state, causes={"trainer": cause}, tool_parser="qwen3_coder")["service_failed:trainer"]
        assert fix in symptom.fix and symptom.cause.startswith("no tokens. ")
        assert ("then restart trainer" in symptom.fix) == (signature != "verl-no-tokens"), (
            "the same run would fail again"
        )
        assert bool(symptom.patch) == (signature == "verl-no-tokens")


def test_trials_from_before_a_change_of_the_parser_say_nothing_about_it() -> None:
    """Until enough trials have ended with the new one: those of the replicas' restart are mixed."""
    heads = tuple(trial(i, step=8, tool_calls=0, flags=("zero_tool_calls",)) for i in range(12))
    old = trials(step(8, 16, 12), step(7, 16, 16), newest=heads)
    change = ConfigChange(1, "model.tool_parser", "hermes", "qwen3_coder", "pid 7", at=NOW - 1)
    assert "zero_tool_calls" in found(replace(old, changes=(replace(change, at=NOW - 1000),)))
    assert "zero_tool_calls" in found(replace(old, changes=(replace(change, key="model.x"),)))
    assert "zero_tool_calls" in found(replace(old, changes=(replace(change, attempt=2),)))
    changed = replace(old, changes=(change,))
    assert "zero_tool_calls" not in found(changed)
    clock = Clock(old)
    assert [n.what for n in clock.run(2)] == ["new"]
    clock.state = changed
    assert [n.what for n in clock.run(2)] == ["cleared"], "at once"
    new = tuple(replace(h, step=9, updated_at=NOW + 1) for h in heads)
    again = trials(step(9, 16, 16), step(8, 16, 12), newest=(*new, *heads))
    assert "zero_tool_calls" in found(replace(again, changes=(change,))), (
        "the new one does not read it either"
    )


def proxy(state: str, **fields: Any) -> tuple[Any, ...]:
    down = {"down_since": NOW - 12.7, "failure": "killed by SIGKILL", **fields}
    return tuple(s if s.kind != "proxy" else replace(s, state=state, **down) for s in snapshot().services)


@pytest.mark.parametrize("state", ["stopping", "preparing", "starting", "backing_off", "waiting"])
def test_proxy_down(state: str) -> None:
    stalled = snapshot(trials=TrialsStatus(16, 16), services=proxy(state))
    symptom = found(stalled)["proxy_down:proxy"]
    assert symptom.title == "proxy is down: 16 trials wait; killed by SIGKILL"
    assert (symptom.severity, symptom.since) == ("critical", NOW - 12.7)
    assert symptom.cause.startswith("by somebody or by the kernel's OOM killer. It is "), (
        "the title says the signal"
    )
    assert symptom.action == ("restart proxy" if state == "backing_off" else None)
    killer = found(stalled, oom="oom_kill in F has risen to 3")["proxy_down:proxy"]
    assert "by the kernel's OOM killer (oom_kill in F has risen to 3)" in killer.cause
    assert "SIGKILL" not in found(snapshot(services=proxy(state, failure="exit 1")))["proxy_down:proxy"].cause
    assert found(replace(stalled, trials=TrialsStatus()))["proxy_down:proxy"].title.startswith(
        "proxy is down; "
    )
    assert found(snapshot(services=proxy(state), state="stopping")).get("proxy_down:proxy") is None
    never = found(snapshot(services=proxy(state, down_since=None)))
    assert "proxy_down:proxy" not in never, "it has not served before"


def test_a_proxy_that_is_not_started_again_has_one_alert() -> None:
    assert set(found(snapshot(services=proxy("gave_up")))) >= {"service_gave_up:proxy"}
    assert "proxy_down:proxy" not in found(snapshot(services=proxy("gave_up")))


def test_sessions_that_carry_the_trials_are_down_and_then_litellm_stops_no_trial() -> None:
    (one,) = (s for s in proxy("starting") if s.kind == "proxy")
    down = replace(one, name="sessions", kind="sessions")
    state = snapshot(services=(*snapshot().services, down), sessions=SessionsStatus(), carrier="sessions")
    symptom = found(state)["proxy_down:sessions"]
    assert symptom.title.startswith("sessions is down: ")
    assert state.carrier_down is down
    other = snapshot(services=proxy("starting"), sessions=SessionsStatus(), carrier="sessions")
    assert "proxy_down:proxy" not in found(other) and other.carrier_down is None


def test_proxy_down_is_over_when_it_serves() -> None:
    clock = Clock(snapshot(services=proxy("starting")))
    assert [n.what for n in clock.run(2)] == ["new"]
    clock.state = snapshot()
    assert [n.what for n in clock.run(2)] == ["cleared"]


def test_zero_tool_calls_gets_worse_and_is_told_again() -> None:
    clock = Clock(trials(step(8, 16, 9)))
    assert [n.what for n in clock.run(2)] == ["new"]
    clock.state = trials(step(9, 16, 16))
    (news,) = clock.run(2)
    assert news.what == "worse" and words(news, clock.at)[1] == "error"
    since = news.symptom.since
    clock.state = trials(step(10, 16, 7))
    assert clock.run(40) == []
    clock.state = trials(step(11, 16, 9))
    assert clock.run(40) == [] and clock.diagnosis.symptoms[0].since == since
    clock.state = trials(step(12, 16, 0))
    (news,) = clock.run(80)
    assert news.what == "cleared"


def test_rewards_equal() -> None:
    def now(reward: float, mean: float | None = None, *, zero: int = 0, odd: float | None = None) -> Snapshot:
        heads = tuple(trial(i, reward=reward) for i in range(7))
        heads = (*heads, trial(7, reward=reward if odd is None else odd))
        steps = StepTrials(7, 8, 8, zero, reward if mean is None else mean, calling=8 - zero)
        return trials(steps, newest=heads)

    low = found(now(0.0))["rewards_equal"]
    assert low.severity == "warning" and "step 7" in low.cause and len(proof(low)) == 8
    assert found(now(1.0))["rewards_equal"].severity == "info"
    assert found(now(1.0, odd=0.0, mean=0.9)) == {}
    assert found(now(1.0, mean=0.75)) == {}, "a large step's older trials were different"
    assert "rewards_equal" not in found(now(0.0, zero=8)), "no tool call is the cause"
    assert found(replace(now(0.0), step=6)) == {}, "the step goes on"
    running = replace(now(0.0).trials.steps[0], finished=7)
    assert found(trials(running, newest=now(0.0).trials.newest)) == {}


def test_trials_unattributed() -> None:
    before = snapshot()
    now = snapshot(proxy=replace(before.proxy, unattributed=2))
    symptom = found(now, before)["trials_unattributed"]
    assert symptom.severity == "info" and "2 requests" in symptom.cause
    assert found(now, now) == {} and found(now) == {}
    swapped = replace(before.proxy, generation=2, unattributed=9)
    assert found(snapshot(proxy=swapped), now) == {}


def test_requests_that_can_never_be_answered() -> None:
    before = snapshot()
    now = snapshot(proxy=replace(before.proxy, unknown=3, unknown_models=("gpt-4o", "sonnet"), refused=2))
    symptoms = found(now, before, aliases=("claude-*", "policy"))
    unknown, refused = symptoms["model_unknown"], symptoms["key_refused"]
    assert unknown.title == "agents request 'gpt-4o', which is not served"
    assert "3 requests so far asked for 'gpt-4o', 'sonnet'" in unknown.cause
    assert unknown.fix == "set the agents' model name to one of: claude-*, policy"
    assert "2 requests" in refused.cause and "secrets/run_key" in refused.fix
    assert {unknown.severity, refused.severity} == {"warning"}
    assert found(now, now) == {} and found(now) == {}, "no more of them come"


def test_a_proxy_without_descriptors_is_the_cause_not_its_replicas() -> None:
    before = snapshot()
    full = replace(before.proxy, descriptors=973, descriptor_limit=1024, turned_away=7, dropped=2)
    (symptom, *_) = found(snapshot(proxy=full), snapshot(proxy=replace(full, dropped=2))).values()
    assert symptom.id == "proxy_descriptors" and symptom.severity == "critical"
    assert symptom.title == "the proxy has no file descriptors left" and "LimitNOFILE" in symptom.fix
    assert proof(symptom)[:2] == (
        "open files and connections: 973 of 1,024",
        "refused so far because none was left: 7",
    )
    assert not found(snapshot(proxy=replace(full, descriptors=972)), snapshot(proxy=full))
    unknown = replace(before.proxy, turned_away=1)
    assert "unknown of unknown" in proof(found(snapshot(proxy=unknown), before)["proxy_descriptors"])[0]
    # What looks like failures of replicas is not blamed on them.
    cold = replace(full, cooled_down=("http://127.0.0.1:4001/v1",))
    idle = replicas(replica(0), replica(1, idle_for=50.0))
    now = replace(idle, proxy=cold)
    assert set(found(now, replace(idle, proxy=full))) == {"proxy_descriptors"}
    assert "replica_idle:r1" in found(
        replace(now, proxy=replace(cold, descriptors=9)), replace(now, proxy=cold)
    )
    assert "proxy_descriptors" not in found(snapshot(proxy=full, state="stopping"), before)


def test_what_the_proxy_closed_refused_and_lost() -> None:
    before = snapshot()
    why = "cannot write a trajectory record: No space left on device"
    proxy = replace(before.proxy, dropped=5, too_large=2, unrecorded=1, record_error=why)
    symptoms = found(snapshot(proxy=proxy), before)
    assert set(symptoms) == {"proxy_clients", "request_too_large", "records_lost"}
    assert "5 connections so far" in symptoms["proxy_clients"].cause
    assert symptoms["proxy_clients"].severity == "info"
    assert "2 requests so far" in symptoms["request_too_large"].cause
    assert "proxy.max_body_bytes" in symptoms["request_too_large"].fix
    assert (
        proof(symptoms["records_lost"]) == (why,) and "1 request so far was" in symptoms["records_lost"].cause
    )
    assert found(snapshot(proxy=proxy), snapshot(proxy=proxy)) == {}
    assert found(snapshot(proxy=proxy)) == {}, "nothing is known of before"
    silent = replace(proxy, record_error=None)
    assert proof(found(snapshot(proxy=silent), before)["records_lost"]) == (
        "the error is in the proxy's log",
    )


# --- the agents -----------------------------------------------------------------------------------------


def test_agents_silent() -> None:
    step = StepTrials(8, total=32, finished=8, zero_tool_calls=0, mean_reward=0.5)
    idle = (replica(0, running=0.0, waiting=0.0), replica(1, running=0.0, waiting=0.0))
    heads = tuple(trial(n, step=8, state="running", updated_at=NOW) for n in range(24))
    before = replicas(*idle, step=7, trials=TrialsStatus(newest=heads, steps=(step,)))
    symptom = found(before, before)["agents_silent"]
    assert "24 of 32 trials of step 8 are running" in symptom.cause and "2 replicas are idle" in symptom.cause
    assert symptom.severity == "warning" and len(proof(symptom)) == 8
    assert found(before) == {}, "nothing to compare with"
    asked = replace(before, proxy=replace(before.proxy, requests=(before.proxy.requests or 0) + 1))
    for harmless in (
        asked,
        replace(before, step=8),  # that step is over: its trials are nobody's
        replace(
            before, trials=TrialsStatus(newest=heads, steps=(replace(step, finished=25),))
        ),  # the long tail
        replace(before, replicas=replicas(idle[0], replica(1)).replicas),
        replace(before, replicas=replicas(replica(0, running=0.0, waiting=1.0)).replicas),
        replace(before, replicas=replicas(replica(0, "starting", running=0.0, waiting=0.0)).replicas),
        replace(before, state="stopping"),
        # the trainer trains, and some trials of this step belong to an attempt that was cut off
        replace(before, replicas=replicas(*(replace(r, activity="asleep") for r in idle)).replicas),
        replace(before, started_at=NOW + 1),
    ):
        assert "agents_silent" not in found(harmless, before)


def test_agents_that_are_silent_for_a_moment_are_no_news() -> None:
    step = StepTrials(8, total=32, finished=8, zero_tool_calls=0, mean_reward=0.5)
    heads = tuple(trial(n, step=8, state="running", updated_at=NOW) for n in range(24))
    idle = replica(0, running=0.0, waiting=0.0)
    diagnosis = Diagnosis(RULES)

    def look(at: float, **fields: Any) -> list[str]:
        now = replicas(idle, step=7, trials=TrialsStatus(newest=heads, steps=(step,)), at=at, **fields)
        return [news.symptom.id for news in diagnosis.update(now, RunContext()) if news.what == "new"]

    told = [at for at in range(0, 400, 10) if "agents_silent" in look(NOW + at)]
    assert len(told) == 1 and SILENT_S <= told[0] <= SILENT_S + 20
    assert not any("agents_silent" in look(NOW + 1000 + at) for at in range(0, 100, 10))


def test_trials_do_not_begin() -> None:
    def woken(index: int, ago: float, activity: str = "updating") -> Any:
        return replica(index, running=0.0, waiting=0.0, activity=activity, activity_since=NOW - ago)

    now = replicas(woken(0, 300.0), woken(1, 200.0), at=NOW)
    symptom = found(now)["trials_do_not_begin"]
    assert (
        "for 200 s 2 replicas have been receiving new weights" in symptom.cause and symptom.since == NOW - 200
    )
    for harmless in (
        replicas(woken(0, 300.0), woken(1, 30.0), at=NOW),
        replicas(woken(0, 300.0), woken(1, 300.0, "asleep"), at=NOW),  # the trainer trains
        replicas(woken(0, 300.0), woken(1, 300.0, "serving"), at=NOW),
        replicas(replica(0, running=0.0), at=NOW),  # nobody puts it to sleep
    ):
        assert "trials_do_not_begin" not in found(harmless)


# --- what is learned from -------------------------------------------------------------------------------


def measured(step: int = 7, **values: float) -> Snapshot:
    return snapshot(metrics=StepMetrics(step, {k.replace("__", "/"): v for k, v in values.items()}))


def test_rollout_mismatch() -> None:
    usual = {
        "training__rollout_probs_diff_mean": 0.004,
        "training__rollout_actor_probs_pearson_corr": 0.999,
        "rollout_corr__kl": 3e-4,
    }
    assert found(measured(**usual)) == {}
    off = found(measured(**{**usual, "training__rollout_probs_diff_mean": 0.02}))["rollout_mismatch"]
    assert off.severity == "warning" and "disable_cascade_attn" in off.fix
    assert proof(off) == ("training/rollout_probs_diff_mean 0.02, above 0.01",)
    assert "rollout_mismatch" in found(measured(**{**usual, "rollout_corr__kl": -0.02}))
    corrupt = {"training__rollout_probs_diff_mean": 0.004, "training__rollout_actor_probs_pearson_corr": 0.75}
    assert found(measured(**corrupt))["rollout_mismatch"].severity == "critical"
    noise = {**corrupt, "training__rollout_probs_diff_mean": 2e-4}
    assert found(measured(**noise)) == {}, "all probabilities are nearly 1"
    hopper = replace(measured(training__rollout_probs_diff_mean=0.02), gpus=(gpu(0),))
    assert "disable_cascade_attn" not in found(hopper)["rollout_mismatch"].fix
    ampere = replace(hopper, gpus=(gpu(0), gpu(1, name="NVIDIA A100-SXM4-80GB")))
    assert "disable_cascade_attn" in found(ampere)["rollout_mismatch"].fix


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("h200_run/trainer.log", 6),
        ("h200/verl.log", 6),
        ("h200_run/standalone.log", 4),
        ("verl_cpu/run6steps.stdout.log", 6),
    ],
)
def test_what_healthy_runs_on_gpus_measured_is_no_symptom(name: str, least: int) -> None:
    steps = 0
    for line in (RECORDINGS / name).read_text(errors="replace").splitlines():
        metrics = parse_step_line(line)
        if metrics is not None:
            steps += 1
            assert found(snapshot(metrics=metrics, total_steps=100)) == {}
    assert steps >= least


def test_learning_rate_zero() -> None:
    assert found(measured(actor__lr=0.0))["learning_rate_zero"].severity == "critical"
    assert found(measured(actor__lr=1e-6)) == {}
    assert found(measured(1, actor__lr=0.0)) == {}, "a warm-up"
    last = measured(20, actor__lr=0.0)
    assert last.total_steps == 20 and found(last) == {}, "a decay's end"
    assert found(replace(measured(actor__lr=0.0), total_steps=None)) == {}, "it may be the last one"


def test_trajectories_dropped() -> None:
    """simulated: the filter is Harbor's"""
    share = {"trajectory_filter__invalid_ratio": 0.25, "trajectory_filter__reason__env_setup_failed": 14.0}
    symptom = found(measured(**share))["trajectories_dropped"]
    assert (
        proof(symptom) == ("env_setup_failed: 14",) and "25% of the trajectories of step 7" in symptom.cause
    )
    assert found(measured(trajectory_filter__invalid_ratio=0.1)) == {}


# --- over time ------------------------------------------------------------------------------------------


class Clock:
    """Looks at ``state`` every two seconds."""

    def __init__(
        self, state: Snapshot, rules: tuple[Rule, ...] = RULES, known: tuple[Symptom, ...] = ()
    ) -> None:
        self.state, self.at = state, NOW
        self.beside = RunContext()
        self.diagnosis = Diagnosis(rules, known)

    def run(self, seconds: float) -> list[Any]:
        news: list[Any] = []
        for _ in range(round(seconds / 2)):
            self.at += 2.0
            news += self.diagnosis.update(replace(self.state, at=self.at), self.beside)
        return news


def bad(severity: str = "warning") -> Symptom:
    return Symptom(id="bad", severity=severity, title="it is bad", cause="why", fix="mend it")  # type: ignore[arg-type]


def while_step(seen: Window) -> Iterator[Symptom | Resolved]:
    """Bad while the step is odd, certainly over at step 0."""
    if seen.now.step == 0:
        yield Resolved("bad")
    elif seen.now.step is not None and seen.now.step % 2:
        yield bad()


def at_step(number: int) -> Snapshot:
    return snapshot(step=number)


def test_a_symptom_begins_once_lingers_and_ends_once() -> None:
    clock = Clock(at_step(1), (Rule(while_step, linger=30),))
    (news,) = clock.run(60)
    assert (news.what, news.symptom.since) == ("new", NOW + 2)
    assert words(news, clock.at) == ("it is bad: why", "warning")
    clock.state = at_step(2)
    assert clock.run(28) == [] and clock.diagnosis.symptoms
    clock.state = at_step(1)
    assert clock.run(10) == [] and clock.diagnosis.symptoms[0].since == NOW + 2
    clock.state = at_step(2)
    (news,) = clock.run(60)
    assert news.what == "cleared" and clock.diagnosis.symptoms == ()
    assert words(news, NOW + 132)[0] == 'resolved after 2m10s: "it is bad"'
    clock.state = at_step(1)
    assert [n.what for n in clock.run(2)] == ["new"]
    clock.state = at_step(0)
    assert [n.what for n in clock.run(2)] == ["cleared"]


def test_what_does_not_last_is_never_told() -> None:
    clock = Clock(at_step(1), (Rule(while_step, hold=30),))
    for _ in range(10):
        clock.state = at_step(1)
        assert clock.run(20) == []
        clock.state = at_step(2)
        assert clock.run(2) == []
    assert clock.diagnosis.symptoms == ()


def test_what_an_earlier_backend_told_is_not_told_again() -> None:
    earlier = (replace(bad(), since=NOW - 500),)
    clock = Clock(at_step(1), (Rule(while_step, hold=30),), earlier)
    assert clock.run(60) == []
    assert clock.diagnosis.symptoms[0].since == NOW - 500
    clock.state = at_step(2)
    assert [n.what for n in clock.run(60)] == ["cleared"]
    # One that has gone meanwhile is told to have ended.
    gone = Clock(at_step(2), (Rule(while_step),), earlier)
    assert [n.what for n in gone.run(90)] == ["cleared"]


def test_the_most_severe_comes_first() -> None:
    def three(seen: Window) -> Iterator[Symptom | Resolved]:
        for number, severity in enumerate(("info", "critical", "warning")):
            yield replace(bad(severity), id=f"{severity}:{number}")

    clock = Clock(snapshot(), (Rule(three),))
    clock.run(2)
    assert [s.severity for s in clock.diagnosis.symptoms] == ["critical", "warning", "info"]


def test_an_idle_replica_is_one_symptom_over_many_steps_until_it_works() -> None:
    idle = replicas(replica(0), replica(1, running=0.0, idle_for=60.0))
    between = replicas(replica(0, running=0.0), replica(1, running=0.0))
    clock = Clock(idle)
    assert [n.what for n in clock.run(20)] == ["new"]
    clock.state = between
    assert clock.run(120) == []
    clock.state = idle
    assert clock.run(20) == []
    clock.state = snapshot()
    assert [n.what for n in clock.run(2)] == ["cleared"]
    clock.state = idle
    clock.run(4)
    clock.state = replicas(replica(0))
    assert [n.what for n in clock.run(2)] == ["cleared"], "it was removed"


# --- processes that stand still -------------------------------------------------------------------------


def standing(name: str, *stalled: StalledProcess, **fields: Any) -> Snapshot:
    """The usual run, in which these processes of a service stand still."""
    base = snapshot(**fields)
    services = tuple(replace(s, stalled=stalled) if s.name == name else s for s in base.services)
    assert services != base.services
    return replace(base, services=services)


def test_process_stopped() -> None:
    one = found(standing("trainer", StalledProcess(77, "T", NOW - 3)))["process_stopped:trainer"]
    assert one.cause == "pid 77 of trainer is stopped (state T), by a signal such as SIGSTOP or Ctrl-Z"
    assert (one.fix, one.severity, one.since) == ("kill -CONT 77", "critical", NOW - 3)
    two = (StalledProcess(77, "T", NOW - 3), StalledProcess(78, "t", NOW - 9))
    more = found(standing("r0", *two))["process_stopped:r0"]
    assert "pids 77, 78 of r0 are stopped (state T, t)" in more.cause and more.fix == "kill -CONT 77 78"
    assert (more.severity, more.since) == ("warning", NOW - 9)
    base = standing("trainer", *two)
    served = tuple(replace(r, pid=two[0].pid) if r.name == "r0" else r for r in base.replicas.items)
    actor = found(replace(base, replicas=replace(base.replicas, items=served)))["process_stopped:trainer"]
    assert actor.title == f"pids {two[0].pid} (r0), {two[1].pid} of trainer are stopped by a signal"
    assert actor.fix == f"kill -CONT {two[0].pid} {two[1].pid}"
    traced = found(standing("proxy", two[1]))["process_stopped:proxy"]
    assert "by a debugger" in traced.title and "TracerPid /proc/78/status" in traced.fix
    assert found(standing("trainer", two[0], state="stopped")) == {}


def test_a_stopped_keeper_is_named() -> None:
    base = snapshot()
    backend = replace(base.backend, keeper_stalled=StalledProcess(9, "T", NOW))
    symptom = found(replace(base, backend=backend))["process_stopped:keeper"]
    assert "no service can be started" in symptom.cause and symptom.fix == "kill -CONT 9"
    waits = replace(base.backend, keeper_stalled=StalledProcess(9, "D", NOW - 60))
    assert set(found(replace(base, backend=waits))) == {"process_blocked:keeper"}


def test_process_blocked_only_after_a_minute() -> None:
    def seen(seconds: float) -> dict[str, Symptom]:
        return found(standing("trainer", StalledProcess(77, "D", NOW - seconds)))

    assert seen(59.0) == {}
    symptom = seen(60.0)["process_blocked:trainer"]
    assert "pid 77 of trainer has been in an uninterruptible wait (state D) for 60 s" in symptom.cause


@pytest.mark.parametrize(
    ("stalled", "blamed"),
    [
        (StalledProcess(77, "T", NOW), False),
        (StalledProcess(77, "D", NOW - 10.0), False),
        (StalledProcess(77, "D", NOW - 1.0), True),
    ],
)
@pytest.mark.parametrize("name", ["r0", "trainer", "proxy"])
def test_no_replica_is_idle_while_another_process_stands_still(
    name: str, stalled: StalledProcess, blamed: bool
) -> None:
    idle = replica(1, running=0.0, idle_for=75.0)
    now = standing(name, stalled, replicas=replicas(replica(0), idle).replicas)
    assert ("replica_idle:r1" in found(now)) == blamed
    clock = Clock(replace(now, services=snapshot().services))
    assert [n.symptom.id for n in clock.run(4)] == ["replica_idle:r1"]
    clock.state = now
    cleared = [n.symptom.id for n in clock.run(2) if n.what == "cleared"]
    assert cleared == ([] if blamed else ["replica_idle:r1"])


def test_the_agents_are_not_blamed_while_a_process_stands_still() -> None:
    heads = tuple(trial(n, step=8, state="running", updated_at=NOW) for n in range(24))
    step = StepTrials(8, total=32, finished=8, zero_tool_calls=0, mean_reward=0.5)
    idle = (replica(0, running=0.0, waiting=0.0), replica(1, running=0.0, waiting=0.0))
    before = replicas(*idle, step=7, trials=TrialsStatus(newest=heads, steps=(step,)))
    assert "agents_silent" in found(before, before)
    services = tuple(replace(s, stalled=(StalledProcess(7, "T", NOW),)) for s in before.services)
    assert "agents_silent" not in found(replace(before, services=services), before)
