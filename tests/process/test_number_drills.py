"""Faults that show in numbers only: a trainer that hangs, metrics that are no numbers, rewards that are flat, a disk
that fills. Real runs of the embedded trainer; each is named within ten seconds of its evidence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.real import real_run
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.model import Snapshot, Symptom
from liverl_tui.text.facts import doing, remaining

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

    try:
        found = wait_until(look, seconds, f"the alert {name}")
    except AssertionError as late:
        now = run.snapshot()
        states = {s.name: (s.state, s.tree.cpu_percent) for s in now.services}
        seen = (now.phase, now.step_seconds, now.trials.steps[:1], states, [s.id for s in now.symptoms])
        raise AssertionError(f"{late}; the run: {seen}") from None
    assert found is not None
    return found


def alerts(run: ToyRun) -> set[str]:
    """The ids of all alerts of the run so far."""
    return {str(e.data["id"]) for e in run.events() if e.kind == "symptom" and e.data["what"] == "new"}


@pytest.mark.slow
@pytest.mark.stack
def test_a_trainer_that_hangs_is_named_with_its_step_and_py_spy_and_loses_its_eta(make: Make) -> None:
    """The evidence is complete once the silence has lasted for the limit: ``max(20 s, 3 x median step)``. A step of
    this run takes about a second, so that the limit is 20 s."""
    run = make("embedded.faults.hang_at_step=5")
    run.start()
    pid = run.until("trainer", "ready", 120).pid
    log = run.run_dir / "attempt_001/logs/trainer.1.log"
    wait_until(lambda: "fault: hang at step 5" in log.read_text(), what="the hang")
    before = run.snapshot()
    assert before.step_seconds is not None and before.step_seconds < 20 / 3
    now, alert = named(run, "trainer_stalled:trainer")
    hung_at = log.stat().st_mtime
    evidence_at = hung_at + 20.0
    assert -1.0 < time.time() - evidence_at < NAMED_S
    assert alert.severity == "critical" and alert.title.endswith("step 5/50: rollout 8/8 trials")
    assert f"trainer (pid {pid})" in alert.cause
    assert alert.since is not None and 0.0 <= alert.since - hung_at + 1.0 < 6.0, "it is sampled every 2 s"
    assert remaining(now) is None and doing(now).startswith("stalled for ")
    assert alerts(run) - CHANCE == {"trainer_stalled:trainer"}
    # Its stacks, by py-spy or by faulthandler, may come a little later. A task that awaits is on no stack.
    wait_until(lambda: "stacks; then restart trainer" in named(run, alert.id)[1].fix, what="what to do")
    hangs = named(run, alert.id)[1].evidence[0].text
    assert hangs.startswith(f"trainer (pid {pid}) hangs in ") and "select (selectors.py:" in hangs
    assert any(path.name.endswith(f".stalled.{pid}.txt") for path in (log.parent.parent / "stacks").iterdir())


def written_at(run: ToyRun, step: int) -> float:
    """When a step was written, to 20 ms: the backend adds its event as it reads it."""
    return next(e.data["by"] for e in run.events() if e.kind == "step" and e.data["step"] == step)


def new_at(run: ToyRun, name: str) -> float:
    """When an alert was first told."""
    return next(e.at for e in run.events() if e.kind == "symptom" and e.data["id"] == name)


@pytest.mark.stack
def test_a_loss_that_is_nan_is_named_with_its_first_step(make: Make) -> None:
    run = make("embedded.faults.nan_at_step=3", "embedded.turn_latency=0.1")
    run.start()
    now, alert = named(run, "metrics_not_finite", 120)
    assert alert.severity == "critical" and "since step 3" in alert.title
    assert {e.text for e in alert.evidence} >= {
        "actor/loss: nan since step 3",
        "actor/grad_norm: nan since step 3",
    }
    assert "look at the rewards of step 3" in alert.fix and "its checkpoints can be used" in alert.fix
    assert now.metrics is not None and now.metrics.not_finite["actor/loss"] == "nan"
    assert -1.0 < new_at(run, "metrics_not_finite") - written_at(run, 3) < NAMED_S
    assert "step 3/50: " in next(e.text for e in run.events() if e.kind == "step" and e.data["step"] == 3)
    log = (run.run_dir / "attempt_001/logs/trainer.1.log").read_text()
    assert "WARN: grad_norm is not finite: nan" in log


@pytest.mark.slow
@pytest.mark.stack
def test_a_flat_reward_is_named_after_five_steps(make: Make) -> None:
    """Tools that do nothing: every trial fails, as where a verifier or a sandbox is broken."""
    run = make("embedded.faults.tool_executor=empty", "embedded.turn_latency=0.05")
    run.start()
    _, alert = named(run, "reward_flat", 120)
    assert alert.severity == "warning" and alert.title.startswith("the reward is flat at 0 for ")
    assert "from the first step on" in alert.cause and "infrastructure" in alert.fix
    assert -1.0 < new_at(run, "reward_flat") - written_at(run, 5) < NAMED_S
    assert alerts(run) - CHANCE == {"reward_flat"}


STEPS = """
import json, os, time
with open(os.path.join(os.environ["LIVERL_RUN_DIR"], "metrics.jsonl"), "a") as file:
    for step in range(1, 100):
        reward = 0.5 if step == 1 else 0.25
        print(json.dumps({"step": step, "data": {"critic/score/mean": reward}}), file=file, flush=True)
        print("step", step, flush=True)
        time.sleep(0.5)
"""


def test_a_flat_reward_of_a_script_without_trials_is_named(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    trainer = toy("trainer", argv=(sys.executable, "-c", STEPS), kind="trainer", ends_run=True)
    run = ending(make_run(tmp_path, [trainer]))
    run.start()
    now, alert = named(run, "reward_flat")
    assert not now.trials.total and alert.title.startswith("the reward is flat at 0.25 for ")
    assert -1.0 < new_at(run, "reward_flat") - written_at(run, 6) < NAMED_S
    assert alerts(run) == {"reward_flat"}


@pytest.mark.slow
def test_a_disk_that_fills_is_named_with_the_time_that_is_left(tmp_path: Path) -> None:
    """A small file system of its own, filled by another program."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare, to mount a small tmpfs")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a kernel that lets root have a mount namespace")
    inside = Path(__file__).with_name("disk_inside.py")
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, str(inside), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


WORKS = """
import json, os, time
def step(number):
    with open(os.path.join(os.environ["LIVERL_RUN_DIR"], "metrics.jsonl"), "a") as file:
        print(json.dumps({"step": number, "data": {"timing_s/step": 0.2}}), file=file)
for number in range(1, 5):
    time.sleep(0.2)
    step(number)
print("update_actor", flush=True)
until = time.monotonic() + 40
while time.monotonic() < until:
    sum(range(100_000))
step(5)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_long_update_that_computes_is_no_stall_but_the_wait_behind_it_is(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    trainer = toy("trainer", argv=(sys.executable, "-c", WORKS), kind="trainer", ends_run=True)
    run = ending(make_run(tmp_path, [trainer]))
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) == 5, what="the end of the long update")
    assert alerts(run) == set()
    _, alert = named(run, "trainer_stalled:trainer")
    assert -1.0 < new_at(run, alert.id) - written_at(run, 5) - 20.0 < NAMED_S
