"""Fewer steps than a run has made: what is said before the change, and of the run after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.screens import service, snapshot

from liverl.observe.checkpoints import LATEST
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot
from liverl_tui.cli.fix import _consequence
from liverl_tui.cli.status_table import render
from liverl_tui.data.config_change import end_of_run, restarted, restarts_words
from liverl_tui.text.facts import plain_facts
from liverl_tui.text.next_attempt import consequences
from liverl_tui.text.words import step_of

TRAINER, REPLICA = service("trainer", "trainer"), service("replica-0", "replica")
AT_ONCE = "The run then ends: its newest checkpoint is of step 65, and 60 steps are wanted."
SOON = "The run then ends soon: 66 steps are wanted, and 67 steps done already; step 66 is made again."


@pytest.mark.parametrize(
    ("checkpoint", "wanted", "end"),
    [
        (65, 60, AT_ONCE),
        (65, 65, AT_ONCE.replace("60", "65")),
        (65, 66, SOON),
        (None, 3, "67 steps done already; steps 1 to 3 are made again."),
        (65, 68, ""),
        (65, None, ""),
    ],
)
def test_a_change_that_ends_the_run_is_not_called_going_on(
    checkpoint: int | None, wanted: int | None, end: str
) -> None:
    now = snapshot(step=67, services=(REPLICA, TRAINER))
    services = restarted(now, frozenset({"trainer"}))
    words = restarts_words(services, end_of_run(now, services, checkpoint, wanted))
    assert end in words and ("the run goes on" in words) == ("resumes from the newest" in words) == (not end)
    again = consequences(now, "embedded", checkpoint, live=True, wanted=wanted)
    assert end in again and ("Training resumes" in again) == (not end)


def test_a_change_that_restarts_no_trainer_ends_nothing() -> None:
    now = snapshot(step=67, services=(REPLICA, TRAINER))
    assert end_of_run(now, restarted(now, frozenset({"replicas"})), 65, 60) == ""


def test_a_stopped_service_is_not_said_to_be_restarted() -> None:
    stopped = snapshot(services=(service("replica-0", "replica", state="stopped"), TRAINER))
    names = [one.name for one in restarted(stopped, frozenset({"replicas", "trainer"}))]
    assert names == ["trainer"]


@pytest.mark.parametrize(
    ("restarts", "words"),
    [
        (frozenset({"trainer"}), f"trainer is restarted. {AT_ONCE}"),
        (None, f"The run is stopped, and resumed with it. {AT_ONCE}"),
        (frozenset({"replicas"}), "replica-0 is restarted; the run goes on. Requests"),
    ],
)
def test_fix_says_that_its_change_ends_the_run(
    tmp_path: Path, restarts: frozenset[str] | None, words: str
) -> None:
    run = RunDir(tmp_path)
    run.snapshot.write_bytes(encode_snapshot(snapshot(step=67, services=(REPLICA, TRAINER))))
    (run.checkpoints / "global_step_65").mkdir(parents=True)
    (run.checkpoints / LATEST).write_text("65")
    assert _consequence(run, True, restarts, 60).startswith(words)


def test_more_steps_than_wanted_are_no_fraction() -> None:
    more = snapshot(step=65, total_steps=60)
    assert "training: 65 steps done (60 wanted)" in "\n".join(plain_facts(more))
    assert "step 65 (60 wanted)" in render(more, width=120)
    assert (step_of(60, 60), step_of(3, None), step_of("-", 60)) == ("60/60", "3", "-/60")
