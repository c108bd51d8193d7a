"""A changed plan for the next attempt: applied by the real backend, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.runs import ToyRun, change_of, make_run, toy

from liverl.daemon.launch import LaunchError, start_backend, start_or_join
from liverl.daemon.takeover import read_plan
from liverl.model import ConfigChange


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    return ending(make_run(tmp_path, [toy("worker", "sleep")]))


def test_an_attempt_begins_with_the_change_and_a_running_one_refuses_it(run: ToyRun) -> None:
    run.start()
    run.until("worker", "ready")
    change, before = change_of(run), (run.run_dir / "plan.json").read_bytes()
    with pytest.raises(LaunchError, match="the configuration was not changed"):
        start_or_join(run.run_dir, resume=True, change=change)
    run.kill_backend()  # the worker goes on
    with pytest.raises(LaunchError, match="services of this run are still running"):
        start_backend(run.run_dir, resume=True, change=change)
    assert (run.run_dir / "plan.json").read_bytes() == before
    run.start()
    run.command("stop")
    run.result()

    run.backends.append(start_backend(run.run_dir, resume=True, change=change))
    run.until("worker", "ready")
    shown = run.snapshot()
    told = ConfigChange(2, "trainer.x", 1, 2, "--set")
    assert (shown.attempt, shown.total_steps, shown.changes) == (2, 8, (told,))
    assert read_plan(run.run_dir / "plan.json").changes == (told,)
    assert (run.run_dir / "config.yaml").read_text() == change.config
    texts = [event.text for event in run.events() if event.kind == "config_changed"]
    assert texts == ["configuration changed: trainer.x: 1 -> 2 (--set)"]
    starts = [json.loads(line) for line in (run.run_dir / "journal.jsonl").read_text().splitlines()]
    argvs = [record["argv"][-1] for record in starts if record["k"] == "intent"]
    assert argvs == ["sleep", "600"]
    # the next attempt keeps it
    run.command("stop")
    run.result()
    run.start(resume=True)
    run.until("worker", "ready")
    assert run.snapshot().changes == (told,)
    assert len([event for event in run.events() if event.kind == "config_changed"]) == 1
