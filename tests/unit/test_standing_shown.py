"""How a service of which a process is stopped by a signal or a debugger is shown: not as one that works."""

from __future__ import annotations

import pytest
from kit.screens import NOW, replica, service, snapshot
from msgspec.structs import replace

from liverl.model import ReplicaSet, Snapshot, StalledProcess
from liverl_tui.cli.status_table import render
from liverl_tui.text.facts import ready_words, remaining
from liverl_tui.text.status_label import SnapshotIndex, engine_now, of_replica, of_service
from liverl_tui.widgets.header.stages import stages
from liverl_tui.widgets.service.text import About, detail_rows


def stopped(name: str, state: str = "T", pid: int | None = None) -> Snapshot:
    """A run of two replicas; of this service a process is stopped for 23 s."""
    services = []
    for one in (service("trainer", "trainer"), service("r0", "replica"), service("r1", "replica")):
        if one.name == name:
            process = StalledProcess(one.pid if pid is None else pid, state, NOW - 23)  # type: ignore[arg-type]
            one = service(name, one.kind, stalled=(process,))
        services.append(one)
    replicas = ReplicaSet(2, 2, 2, (replica(0, seconds_per_answer=0.21), replica(1, seconds_per_answer=0.21)))
    return snapshot(
        services=tuple(services), replicas=replicas, total_steps=20, step=7, step_seconds=10.0, at=NOW
    )


def test_a_stopped_replica_is_no_green_one_with_figures_of_before() -> None:
    """For 23 s it was ``ready`` in green, with 235 tok/s, and 2 of 2 were ready."""
    run = stopped("r1")
    index = SnapshotIndex(run)
    label = of_replica(run.replicas.items[1], index, NOW)
    assert (label.text, label.style, label.problem) == ("▲ stopped by a signal 23s", "warn", True)
    engine = engine_now(run.replicas.items[1], index.services["r1"], NOW)
    assert (engine.tokens_per_s, engine.seconds_per_answer, engine.running) == (None, None, None)
    assert (engine.policy_version, engine.generation_tokens_total) == (7, 912_000.0), "these stay true"
    other = run.replicas.items[0]
    assert engine_now(other, index.services["r0"], NOW) is other.engine
    assert of_replica(other, index, NOW).style == "ok"
    assert ready_words(run) == "1 of 2 ready"
    stage = next(stage for stage in stages(run, NOW) if stage.name == "replicas")
    assert not stage.done and stage.share == "1/2" and stage.label == label
    row = [line for line in render(run, width=140).splitlines() if line.startswith("▲ r1")][-1]
    assert "stopped by a signal 23s" in row and "v7" in row
    assert "1.2" not in row and "0.21" not in row


@pytest.mark.parametrize(
    ("state", "pid", "words"),
    [
        ("T", None, "stopped by a signal 23s"),
        ("t", None, "in a debugger 23s"),
        ("T", 7, "a process is stopped by a signal 23s"),
    ],
)
def test_a_stopped_trainer_is_not_ready_and_has_no_estimate(state: str, pid: int | None, words: str) -> None:
    run = stopped("trainer", state, pid)
    label = of_service(run.services[0], NOW)
    assert (label.glyph, label.words, label.style) == ("▲", words, "warn")
    assert not next(stage for stage in stages(run, NOW) if stage.name == "trainer").done
    assert any(line.startswith("▲ trainer") and words in line for line in render(run, width=140).splitlines())
    assert remaining(run) is None


def page(run: Snapshot, name: str) -> str:
    """The page of a service."""
    found = next(one for one in run.services if one.name == name)
    return "\n".join(row.text for row in detail_rows(About(name, NOW, run, found), 120))


@pytest.mark.parametrize("state", ["ready", "degraded"])
def test_the_page_of_a_stopped_replica_says_since_when_and_promises_no_new_trials(state: str) -> None:
    """It said "stopped by a signal 12s for 9m", "why ready" and "yes, it gets new trials"."""
    run = stopped("r1")
    why = "ready" if state == "ready" else "its ready probe failed"
    services = [replace(one, why=why, state=state if one.name == "r1" else one.state) for one in run.services]
    run = replace(run, services=tuple(services))
    words = {line[:16].strip(): line[16:].strip() for line in page(run, "r1").splitlines()}
    assert words["state"] == "▲ stopped by a signal 23s"
    assert words.get("why") == (None if state == "ready" else why), (
        "of a degraded one it says more than the state"
    )
    assert words["in the proxy"] == "yes, new trials that it gets hang until it is continued"
    assert "▲ stopped by a signal 23s" in page(stopped("r1"), "r1")
    other = page(run, "r0")
    assert "● ready for 1m" in other and "yes, it gets new trials" in other
    worker = page(stopped("r1", pid=7), "r1")
    assert "yes, new trials that it gets may hang until it is continued" in worker


def test_while_a_replica_is_stopped_there_is_no_estimate_of_the_rest() -> None:
    assert remaining(stopped("r1")) is None
    assert remaining(stopped("")) == 130.0
    waits = stopped("r1", "D")
    assert remaining(waits) == 130.0, "a short wait for a disk is no stop"
    assert of_replica(waits.replicas.items[1], SnapshotIndex(waits), NOW).style == "ok"
