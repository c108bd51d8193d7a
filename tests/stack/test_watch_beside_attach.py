"""``watch`` beside ``attach`` on the default run, with the real LiteLLM: an inference engine and a trainer for CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.beside import attached, told, up, watched
from kit.runs import ToyRun
from kit.waiting import wait_until

# The same is asked of a launch script in each gate: tests/process/test_watch_beside_attach.py.
pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.timeout(900)]
START = 600.0  # seconds: the first run on a host builds LiteLLM's environment


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for record in (tmp_path / "runs").glob("*/*/backend.json"):
        ToyRun(record.parent).end()


def test_the_default_run(folder: Path) -> None:
    """It is watched from the folder of its runs. Its servers refuse who has no key, so that their load is not known."""
    # Half of the default's tasks, and a model that takes its time: what it does costs the other tests nothing then.
    sets = ("training.total_steps=500", "infrastructure.litellm_port=0", "embedded.turn_latency=0.1")
    sets += ("training.train_batch_size=2", "training.train_prompt_mini_batch_size=2")
    words = [word for one in sets for word in ("--set", one)]
    process, run = up(folder, *words), folder / "runs/liverl/exp"
    try:
        wait_until((run / "control.sock").exists, what="the run")
        wait_until(lambda: (ToyRun(run).snapshot().step or 0) >= 2, START, "two steps")
        theirs = watched(folder / "runs")
        ours = attached(run)  # a moment later: what is over has not changed
        assert theirs["state"] == ours["state"] == "running" and theirs["step"] <= ours["step"]
        before, now = told(theirs), told(ours)
        done = [step for step in before["steps"] if step["step"] < theirs["step"]]
        assert done and all(step in now["steps"] for step in done)
        assert before["alerts"] == now["alerts"]
        at = lambda d: {(one["address"], one["state"]) for one in d["replicas"]["items"]}  # noqa: E731
        assert at(theirs) == at(ours) and len(at(ours)) == 2
        assert [one["name"] for one in theirs["services"] if one["kind"] == "trainer"] == ["trainer"]
    finally:
        process.terminate()
        process.wait(120)
