"""The state of a run that has ended in the middle of its trials, in the words of ``status`` and of plain mode."""

from __future__ import annotations

from kit.screens import snapshot

from liverl.model import DiskStatus, HostStats, Result, StepTrials, TrialsStatus
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


def test_what_is_measured_now_is_told_from_what_was_read_when_the_run_ended() -> None:
    disk = DiskStatus(free=68 << 30, total=252 << 30)
    lines = render(snapshot(disk=disk), width=120).splitlines()
    assert not any(line.endswith(("(now)", "(when the run ended)")) for line in lines)
    result = Result("done", 0, None, 20, 100.0, 160.0)
    over = snapshot(disk=disk, state="done", result=result)
    machine, space = (
        line for line in render(over, width=120).splitlines() if line.startswith(("machine", "disk"))
    )
    assert machine.endswith("G (now)") and space.endswith("free (when the run ended)")
    unmeasured = render(snapshot(disk=disk, state="done", result=result, host=HostStats()), width=120)
    assert "(now)" not in unmeasured
