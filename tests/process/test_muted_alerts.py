"""Alerts of what a real backend reads in a trainer's log, one of them muted; a second backend knows what was told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.plan.spec import Settings
from liverl.rundir.layout import RunDir

METRICS = Path(__file__).parents[1] / "data/learning/truncation-rises.log"
MUTED = "truncated_share"
PRINTS = (
    f"import sys, time; sys.stdout.write(open({str(METRICS)!r}).read()); sys.stdout.flush(); time.sleep(600)"
)


def test_what_is_muted_is_listed_and_told_once(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> None:
    trainer = toy("trainer", kind="trainer", argv=(sys.executable, "-c", PRINTS))
    settings = Settings(scan_interval=0.3, stuck_after=5.0, mute=(MUTED,))
    run = ending(make_run(tmp_path, [trainer], settings=settings))
    run.start()

    def learned() -> bool:
        now = run.snapshot()
        told = {one.id for one in now.symptoms}
        return {"length_explodes", "gradient_grows", "steps_slow_down"} <= told and len(now.muted) == 1

    wait_until(learned, what="the alerts")
    (only,) = run.snapshot().muted
    assert only.id == MUTED and MUTED not in {one.id for one in run.snapshot().symptoms}
    wait_until(lambda: (last := RunDir(run.run_dir).read_snapshot()) and last.muted, what="snapshot.json")
    run.kill_backend()
    run.start()
    wait_until(learned, what="the alerts again")
    events = run.events()
    assert [e.data["id"] for e in events if e.kind == "symptom_muted"] == [MUTED]
    assert MUTED not in {e.data["id"] for e in events if e.kind == "symptom"}
