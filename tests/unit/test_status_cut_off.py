"""The state of a run that has ended in the middle of its trials, in the words of ``status`` and of plain mode."""

from __future__ import annotations

from kit.screens import snapshot

from liverl.model import StepTrials, TrialsStatus
from liverl.observe.trials.cut_off import cut_off
from liverl_tui.cli.status_table import render
from liverl_tui.text.facts import plain_facts

STEPS = (StepTrials(8, 32, 12, 0, 0.25, calling=14), StepTrials(7, 16, 16, 0, 0.512, calling=16))
RUNNING = TrialsStatus(total=48, running=20, finished=28, steps=STEPS)


def test_trials_that_nobody_will_finish_are_said_to_be_cut_off() -> None:
    ended = snapshot(state="stopped", trials=cut_off(RUNNING))
    table = render(ended, width=120)
    assert "trials    28 of 48 finished, 20 cut off\n" in table
    assert "step 8: 12/32 trials, 20 cut off, mean reward 0.250" in table
    assert "step 7: 16/16 trials, mean reward" in table
    assert any(words.startswith("trials: 28 of 48 finished, 20 cut off") for words in plain_facts(ended))


def test_trials_that_go_on_are_not() -> None:
    table = render(snapshot(trials=RUNNING), width=120)
    assert "trials    20 running, 28 of 48 finished\n" in table and "cut off" not in table
