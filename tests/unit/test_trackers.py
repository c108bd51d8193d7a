"""Where a trainer logs its metrics besides: the URL of its run at wandb, the folder of its tensorboard files."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.screens import snapshot
from msgspec.structs import replace

from liverl.observe.boot.facts import TrainerFacts, trainer_facts
from liverl.observe.boot.replica_stages import ReplicaStages
from liverl_tui.cli.status_table import render
from liverl_tui.screens.metrics import _none_yet
from liverl_tui.widgets.service.text import About, detail_rows

RECORDINGS = Path(__file__).parents[1] / "data/recordings/verl_cpu"
URL = "https://wandb.ai/me/p/runs/ab12"


def test_both_are_known_and_the_newest_counts() -> None:
    lines = [
        "Saving tensorboard log to /t.",
        "wandb: 🚀 View run at https://w/old",
        f"wandb: 🚀 View run at {URL}",
    ]
    known = trainer_facts(trainer_facts(TrainerFacts(), lines[:2]), lines[2:])
    assert known.trackers == {"tensorboard": "/t", "wandb": URL}


def test_breakpoints_wait_until_somebody_attaches() -> None:
    """Lines of Ray 2.60 with RAY_DEBUG=legacy, as its driver prints those of its workers."""
    waits = "RemotePdb session open at localhost:{}, use 'ray debug' to connect..."
    known = trainer_facts(
        TrainerFacts(),
        [f"(A pid=27772) {waits.format(1)}", f"(A pid=9, ip=10.77.0.11) {waits.format(2)}", waits.format(3)],
    )
    told = {"A pid=27772": "localhost:1", "A pid=9, ip=10.77.0.11": "localhost:2", "": "localhost:3"}
    assert known.breakpoints == told
    said = trainer_facts(TrainerFacts(), [f"(A pid=27772) [response] {waits.format(1)}"])
    assert said.breakpoints == {}, "what a model answered"
    line = "(A pid=27772) RemotePdb accepted connection from ('127.0.0.1', 53010)"
    known = trainer_facts(known, [line])
    assert list(known.breakpoints) == ["A pid=9, ip=10.77.0.11", ""]
    known = trainer_facts(known, [f"(A pid=27772) {waits.format(4)}", line])  # the next one, in one read
    assert list(known.breakpoints) == ["A pid=9, ip=10.77.0.11", ""]


def test_a_breakpoint_in_the_log_of_a_run_names_its_process() -> None:
    """The line of Ray 2.60 as verl's driver writes it."""
    prefix = "\x1b[36m(RewardLoopWorker pid=11232)\x1b[0m"
    line = f"{prefix} RemotePdb session open at localhost:32811, use 'ray debug' to connect...\n"
    stages = ReplicaStages()
    stages.feed(line)
    assert stages.trainer.breakpoints == {"RewardLoopWorker pid=11232": "localhost:32811"}


def test_they_are_shown() -> None:
    shown = replace(snapshot(), trackers={"wandb": URL})
    assert f"wandb     {URL}" in render(shown, width=100).splitlines()
    trainer = next(service for service in shown.services if service.kind == "trainer")
    rows = [row.text for row in detail_rows(About("trainer", 0.0, shown, trainer), 100)]
    assert any("wandb" in row and URL in row for row in rows)
    replica = next(service for service in shown.services if service.kind == "replica")
    assert URL not in "".join(row.text for row in detail_rows(About("r0", 0.0, shown, replica), 100))


def test_a_run_without_metrics_says_where_they_are() -> None:
    assert _none_yet({}, ended=True) == ("no metrics: the run ended before its first step",)
    assert _none_yet({}) == ("no metrics yet: the trainer writes them after each step",)
    first, where, fix = _none_yet({"tensorboard": "/runs/tb"})
    assert "tensorboard only" in first and where == "event files in /runs/tb"
    assert "trainer.logger" in fix


@pytest.mark.parametrize("name", ["fully_async.log", "fully_async_sample_raises.log"])
def test_all_steps_of_the_fully_asynchronous_trainer_are_versions(name: str) -> None:
    """It calls all prompts, 3200, its training steps, and tells its versions, 3, later."""
    lines = (RECORDINGS / name).read_text(errors="replace").splitlines()
    assert trainer_facts(TrainerFacts(), lines).total_steps == 3
