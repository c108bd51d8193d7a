"""Faults that show in numbers only: a trainer that hangs, metrics that are no numbers, rewards that are flat, a disk
that fills. Real runs of the embedded trainer; each is named within ten seconds of its evidence."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.real import real_run
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.model import Snapshot, Symptom
from liverl_tui.text.facts import doing, remaining

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

Make = Callable[..., ToyRun]
CHANCE = {"rewards_equal"}  # of eight trials of a policy that has learned nothing
NAMED_S = 10.0  # seconds from its evidence until a fault is named


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    sets = ("proxy.trials_through=sessions", "training.total_steps=50")
    return lambda *more: ending(real_run(tmp_path, *sets, *more))


def named(run: ToyRun, name: str, seconds: float = 90.0) -> tuple[Snapshot, Symptom]:
    """Wait for an alert; the state of the run in which it stands, and the alert."""

    def look() -> tuple[Snapshot, Symptom] | None:
        now = run.snapshot()
        found = next((s for s in now.symptoms if s.id == name), None)
        return (now, found) if found is not None else None

    found = wait_until(look, seconds, f"the alert {name}")
    assert found is not None
    return found


def alerts(run: ToyRun) -> set[str]:
    """The ids of all alerts of the run so far."""
    return {str(e.data["id"]) for e in run.events() if e.kind == "symptom" and e.data["what"] == "new"}


def test_a_trainer_that_hangs_is_named_with_its_step_and_py_spy_and_loses_its_eta(make: Make) -> None:
    """The evidence is complete once the silence has lasted for the limit: ``max(20 s, 3 x median step)``. A step of
    this run takes about a second, so that the limit is 20 s."""
    run = make("embedded.faults.hang_at_step=5")
    run.start()
    pid = run.until("trainer", "ready", 120).pid
    log = run.run_dir / "attempt_001/logs/trainer.1.log"
    wait_until(lambda: "fault: hang at step 5" in log.read_text(), 120, "the hang")
    before = run.snapshot()
    assert before.step_seconds is not None and before.step_seconds < 20 / 3
    now, alert = named(run, "trainer_stalled:trainer")
    hung_at = log.stat().st_mtime
    evidence_at = hung_at + 20.0
    assert -1.0 < time.time() - evidence_at < NAMED_S
    assert alert.severity == "critical" and alert.title.endswith("step 5/50: rollout 8/8 trials")
    assert f"trainer (pid {pid})" in alert.cause and f"py-spy dump --pid {pid}" in alert.fix
    assert alert.since is not None and 0.0 <= alert.since - hung_at + 1.0 < 6.0, "it is sampled every 2 s"
    assert remaining(now) is None and doing(now).startswith("stalled for ")
    assert alerts(run) - CHANCE == {"trainer_stalled:trainer"}
