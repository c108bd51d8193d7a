"""The rules for sandboxes: what fires each, and what must not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from kit.screens import NOW, snapshot, trial
from kit.symptoms import proof

from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import (
    SandboxesStatus,
    SandboxOom,
    SandboxStatus,
    SandboxTrouble,
    Snapshot,
    StepTrials,
    Symptom,
    TrialHead,
    TrialsStatus,
)

AWAY, LEFT, OOM, SETUP = "sandboxes_unreachable", "sandboxes_left", "sandbox_oom", "trials_fail_in_setup"
NETWORKS, GONE = "sandbox_networks_used_up", "sandboxes_address_gone"
BUILD = "sandbox_build_failed"
OURS = (AWAY, LEFT, OOM, SETUP, NETWORKS, GONE, BUILD, "trials_failed")


def found(now: Snapshot) -> dict[str, Symptom]:
    seen = Window(now, now, RunContext())
    all_of = {s.id: s for rule in RULES for s in rule.look(seen) if isinstance(s, Symptom)}
    return {name: all_of[name] for name in OURS if name in all_of}


def row(number: int, **more: Any) -> SandboxStatus:
    return SandboxStatus(
        f"c{number}", f"t-{number}__env-main-1", f"t-{number}", "attempt_001", "running", **more
    )


def test_no_sandboxes_and_healthy_ones_are_no_alert() -> None:
    assert found(snapshot()) == {}
    assert found(snapshot(sandboxes=SandboxesStatus(running=2, rows=(row(1), row(2, kept=True))))) == {}


@pytest.mark.parametrize(
    ("server", "at"), [("", ": docker info"), ("tcp://d:2376", ": DOCKER_HOST=tcp://d:2376 docker info"),
                       ("far", ": DOCKER_CONTEXT=far docker info"), ("a b", ": docker info")],
)  # fmt: skip
def test_a_daemon_that_does_not_answer(server: str, at: str) -> None:
    gone = SandboxesStatus(reachable=False, why="Docker: no answer", since=NOW - 20, running=4, server=server)
    (alert,) = found(snapshot(sandboxes=gone)).values()
    assert (alert.id, alert.severity, alert.since) == (AWAY, "critical", NOW - 20)
    assert at in alert.fix and "4 sandboxes" in alert.cause and proof(alert) == ("Docker: no answer",)
    assert len(alert.title) <= 60
    assert found(snapshot(state="stopped", sandboxes=gone)) == {}


def test_sandboxes_that_are_left_are_named_with_their_trials() -> None:
    rows = (
        row(1, left=True, path="trials/step_0001/t-1", since=NOW - 60),
        row(2, left=True, since=NOW),
        row(3),
    )
    (alert,) = found(snapshot(sandboxes=SandboxesStatus(running=3, left=2, rows=rows))).values()
    assert (alert.id, alert.since) == (LEFT, NOW - 60) and alert.title == "2 sandboxes without a living trial"
    assert proof(alert) == (
        "trials/step_0001/t-1: container c1 (t-1__env-main-1), running", "t-2: container c2 (t-2__env-main-1), running",
    )  # fmt: skip


def test_memory_that_is_used_up() -> None:
    ooms = (SandboxOom("c1", "t-1", NOW - 5, "trials/t-1"), SandboxOom("c2", "t-2", NOW - 9))
    (alert,) = found(snapshot(sandboxes=SandboxesStatus(ooms=ooms))).values()
    assert alert.id == OOM and alert.title == "memory used up in 2 sandboxes"
    assert proof(alert) == ("trials/t-1: container c1", "t-2: container c2") and alert.since == NOW - 9


def step(finished: int, in_setup: int, elsewhere: int = 0, number: int = 3) -> StepTrials:
    kinds = {"EnvironmentStartTimeoutError": in_setup, "AgentTimeoutError": elsewhere}
    failures = {kind: count for kind, count in kinds.items() if count}
    phases = {"setup": in_setup, "agent": elsewhere}
    return StepTrials(
        number, finished, finished, 0, None, failures=failures,
        failed_in={phase: count for phase, count in phases.items() if count},
    )  # fmt: skip


def trials(*steps: StepTrials) -> Snapshot:
    heads = tuple(
        trial(
            number, step=3, state="finished", phase="setup", error="EnvironmentStartTimeoutError",
            failure="EnvironmentStartTimeoutError: no image",
        )
        for number in range(4)
    )  # fmt: skip
    return snapshot(trials=TrialsStatus(newest=heads, steps=steps))


@pytest.mark.parametrize(
    ("steps", "alerts"),
    [
        ((step(4, 4),), {SETUP}),
        ((step(3, 3),), set()),  # too few to judge
        ((step(8, 7),), {"trials_failed"}), ((step(8, 7, 1),), {"trials_failed"}),
        ((step(0, 0, number=5), step(0, 0, number=4), step(4, 4)), set()),
        ((step(4, 0, number=4), step(4, 4)), {SETUP}),  # the one before
    ],
)  # fmt: skip
def test_steps_whose_trials_never_reach_their_agent(steps: tuple[StepTrials, ...], alerts: set[str]) -> None:
    assert set(found(trials(*steps))) == alerts


def test_a_step_without_agents_says_why() -> None:
    alert = found(trials(step(4, 4)))[SETUP]
    assert alert.severity == "critical" and "no image" in alert.cause and len(alert.title) <= 60
    assert len(proof(alert)) == 4


WORDS = "RUN pip install foo: /bin/sh: 1: pip: not found (exit code 127)"


def unbuilt(number: int, **more: Any) -> TrialHead:
    known = {
        "step": 3,
        "state": "finished",
        "phase": "setup",
        "error": "SandboxBuildError",
        "sandbox_error": WORDS,
    }
    return trial(number, **{**known, "failure": f"SandboxBuildError: {WORDS}", **more})


def with_heads(*heads: TrialHead, steps: tuple[StepTrials, ...] = (step(0, 0),)) -> dict[str, Symptom]:
    return found(snapshot(trials=TrialsStatus(newest=heads, steps=steps)))


def test_one_trial_tells_that_an_image_cannot_be_built() -> None:
    """Also one that is run again, before its step has ended."""
    (alert,) = with_heads(unbuilt(1, earlier=True, task="fix-cfg")).values()
    assert (alert.id, alert.severity) == (BUILD, "warning") and len(alert.title) <= 60
    assert WORDS in alert.cause and "fix-cfg" in alert.cause and "environment/Dockerfile" in alert.fix
    assert proof(alert) == (f"{unbuilt(1).path}: {WORDS}",)
    many = with_heads(unbuilt(1, task="a"), unbuilt(2, task="b"), unbuilt(3, task="b"))[BUILD]
    assert many.title == "the image of 2 tasks cannot be built" and "3 trials, 3 times" in many.cause


def test_a_step_of_unbuilt_images_is_told_once_and_only_while_it_is_recent() -> None:
    whole = with_heads(*map(unbuilt, range(4)), steps=(step(4, 4),))
    assert set(whole) == {BUILD} and whole[BUILD].severity == "critical"
    other = unbuilt(0, error="SandboxStartError", sandbox_error="docker compose up: no space left on device")
    mixed = with_heads(other, *map(unbuilt, range(1, 4)), steps=(step(4, 4),))
    assert set(mixed) == {BUILD, SETUP} and "RUN pip" in mixed[SETUP].cause
    later = tuple(step(0, 0, number=number) for number in (5, 4))
    assert with_heads(*map(unbuilt, range(4)), steps=(*later, step(4, 4))) == {}
    assert set(with_heads(msgspec.structs.replace(unbuilt(1), step=None))) == {BUILD}, "of a validation"


@pytest.mark.parametrize(
    "kind", ["image_pull", "config", "unschedulable", "crash", "deadline", "evicted", "node_gone"]
)
def test_pods_in_trouble_are_named(kind: str) -> None:
    trouble = SandboxTrouble(
        kind, "p-1", "t-1", NOW - 5, "node-1", "Reason", "words of the API", "trials/t-1"
    )
    status = SandboxesStatus("kubernetes", troubles=(trouble,), kubectl="kubectl -n rl")
    window = Window(snapshot(sandboxes=status), snapshot(), RunContext())
    (alert,) = [
        s for rule in RULES for s in rule.look(window) if isinstance(s, Symptom) and s.id.startswith("pods_")
    ]
    assert alert.id == f"pods_{kind}" and len(alert.title) <= 60
    assert proof(alert) == ("trials/t-1: pod p-1 on node-1, Reason: words of the API",)


def test_pods_that_start_slowly_and_a_kubeconfig_that_others_read() -> None:
    pods = (row(1, phase="Pending"), row(2, phase="Pending"))
    pods = tuple(
        msgspec.structs.replace(p, state="created", since=NOW - 90 * n * n) for n, p in enumerate(pods, 1)
    )
    for start, names in ((1.0, {"t-2__env-main-1"}), (200.0, set())):
        status = SandboxesStatus("kubernetes", rows=pods, start_s=start, readable="/k", kubectl="kubectl")
        window = Window(snapshot(sandboxes=status), snapshot(), RunContext())
        alerts = {s.id: s for rule in RULES for s in rule.look(window) if isinstance(s, Symptom)}
        assert alerts["kubeconfig_readable"].fix == "let nobody else read it: chmod 600 /k"
        assert ("pods_slow_start" in alerts) == bool(names)


@pytest.mark.parametrize(
    ("free", "state", "alerts"),
    [(0, "running", True), (1, "running", False), (None, "running", False), (0, "stopped", False)],
)
def test_networks_that_are_used_up(free: int | None, state: Any, alerts: bool) -> None:
    status = SandboxesStatus(running=2, networks=2, networks_free=free, server="tcp://d:1")
    told = found(snapshot(state=state, sandboxes=status))
    assert set(told) == ({NETWORKS} if alerts else set())
    if alerts:
        alert = told[NETWORKS]
        assert "2 networks of them by this run" in alert.cause and "prune" not in alert.fix
        assert "--default-address-pool" in alert.fix and proof(alert) == (
            "DOCKER_HOST=tcp://d:1 docker network ls",
        )
    away = SandboxesStatus(reachable=False, why="no answer", networks_free=0)
    assert NETWORKS not in found(snapshot(sandboxes=away)), "nobody knows how many there are now"


@pytest.mark.parametrize(
    ("gone", "state", "alerts"),
    [("172.17.0.1", "running", True), ("", "running", False), ("172.17.0.1", "done", False)],
)
def test_an_address_that_is_gone_is_named(gone: str, state: Any, alerts: bool) -> None:
    told = found(snapshot(state=state, sandboxes=SandboxesStatus(address_gone=gone)))
    assert set(told) == ({GONE} if alerts else set())
    if alerts:
        assert (
            gone in told[GONE].title and len(told[GONE].title) <= 60 and f"--bip {gone}/16" in told[GONE].fix
        )
