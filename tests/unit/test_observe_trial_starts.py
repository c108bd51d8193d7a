"""Trials of earlier starts of the trainer: cut off, or begun again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kit.trial_folders import FILE, T, call, lines, put

from liverl.model import TrialHead, TrialsStatus
from liverl.observe.trials.cut_off import cut_off
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.steps import heads_of_step


class Run:
    """A run whose trials begin at chosen seconds after ``T``, and whose journal says when the trainer was started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scanner = TrialScanner(path)

    def journal(self, at: float, **record: Any) -> None:
        with (self.path / "journal.jsonl").open("a") as file:
            file.write(json.dumps({"at": T + at, **record}, separators=(",", ":")) + "\n")

    def attempt(self, at: float, number: int) -> None:
        self.journal(at, k="attempt", n=number, era="e", monotonic=1.0)
        self.journal(at + 1, k="intent", svc="trainer", gen=number)

    def trial(self, step: int, name: str, at: float, reward: float | None = None, calls: int = 1) -> None:
        folder = self.path / f"trials/step_{step:04d}/{name}"
        put(folder / FILE, lines(call(calls=calls, request_time=T + at, finish="tool_calls")), T + at)
        if reward is not None:
            result = {"verifier_result": {"rewards": {"reward": reward}}, "started_at": T + at}
            put(folder / "result.json", json.dumps(result), T + at)
        os.utime(folder, (T + at, T + at))

    def scan(self) -> TrialsStatus:
        return self.scanner.scan(budget=60.0, now=T + 10_000)

    def heads(self) -> dict[str, TrialHead]:
        return {head.name: head for head in self.scan().newest}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_after_a_resume_nothing_of_the_old_attempt_runs(run: Run) -> None:
    run.attempt(0, 1)
    run.trial(4, "a", 10, reward=1.0)
    run.trial(4, "b", 11)
    assert (run.scan().running, run.scan().cut_off) == (1, 0)
    run.journal(100, k="attempt", n=2, era="e", monotonic=2.0)
    status = run.scan()
    (step,) = status.steps
    assert (status.total, status.running, status.finished, status.cut_off) == (2, 0, 1, 1)
    assert (step.total, step.running, step.finished, step.cut_off, step.calling) == (2, 0, 1, 1, 1)
    assert run.heads()["b"].state == "cut_off" and run.heads()["a"].state == "finished"
    assert not run.heads()["b"].earlier, "its step is not begun again yet"


def test_a_redone_step_shows_its_own_attempt(run: Run) -> None:
    run.attempt(0, 1)
    for name, reward in (("a", 0.0), ("b", 0.0), ("c", None)):
        run.trial(4, name, 10, reward, calls=0)
    run.attempt(100, 2)
    run.trial(4, "d", 110, reward=1.0)
    run.trial(4, "e", 111)
    status = run.scan()
    (step,) = status.steps
    assert (step.total, step.finished, step.running, step.cut_off, step.earlier) == (2, 1, 1, 0, 3)
    assert (step.mean_reward, step.calling, step.zero_tool_calls) == (1.0, 2, 0)
    assert {name for name, head in run.heads().items() if head.earlier} == {"a", "b", "c"}
    found = {head.name: (head.state, head.earlier) for head in heads_of_step(run.path, 4)}
    assert found == {
        "a": ("finished", True),
        "b": ("finished", True),
        "c": ("cut_off", True),
        "d": ("finished", False),
        "e": ("running", False),
    }


def test_steps_behind_the_one_that_is_redone_do_not_count(run: Run) -> None:
    run.attempt(0, 1)
    for step in (3, 4, 5):
        run.trial(step, f"old-{step}", 10 * step, reward=0.0)
    run.attempt(100, 2)
    run.trial(4, "new-4", 110)
    assert [(s.step, s.total, s.earlier) for s in run.scan().steps] == [(4, 1, 1), (3, 1, 0)]
    assert {name for name, head in run.heads().items() if head.earlier} == {"old-4", "old-5"}
    (old,) = heads_of_step(run.path, 5)
    assert not old.earlier, "on a page of its own it is what there is of the step"


def test_a_trainer_that_was_restarted_is_another_start(run: Run) -> None:
    run.attempt(0, 1)
    run.trial(4, "a", 10)
    run.journal(50, k="intent", svc="replica-0", gen=2)
    assert run.scan().running == 1, "a replica takes no trial with it"
    run.journal(60, k="intent", svc="trainer", gen=2)
    run.trial(4, "b", 70)
    assert [h.state for h in (run.heads()["a"], run.heads()["b"])] == ["cut_off", "running"]
    assert run.scan().steps[0].earlier == 1


def test_an_adopted_trainer_was_not_started_again(run: Run) -> None:
    run.attempt(0, 1)
    run.trial(4, "a", 10)
    run.journal(50, k="attempt", n=1, era="e")  # the adopting backend writes what it knows anew
    run.journal(50, k="attempt", n=2, era="e")
    run.journal(51, k="intent", svc="trainer", gen=1)
    assert run.scan().running == 1


def test_a_trainer_that_we_did_not_start_goes_on_through_attempts(run: Run) -> None:
    run.journal(0, k="attempt", n=1, era="e", monotonic=1.0)
    run.trial(4, "a", 10)
    run.journal(50, k="attempt", n=2, era="e", monotonic=2.0)
    assert run.scan().running == 1


def test_trials_without_a_step_count_for_the_one_that_was_running(run: Run) -> None:
    run.attempt(0, 1)
    put(run.path / "trials/check-0a1b2c" / FILE, lines(call(calls=1, request_time=T + 10)), T + 10)
    run.attempt(100, 2)
    run.trial(1, "b", 110)
    head = run.heads()["check-0a1b2c"]
    assert (head.step, head.state, head.earlier) == (1, "cut_off", True)


def test_the_end_of_the_run_cuts_off_those_that_call_tools(run: Run) -> None:
    run.trial(4, "a", 10, reward=1.0)
    run.trial(4, "b", 11)
    (step,) = cut_off(run.scan()).steps
    assert (step.calling, step.running, step.cut_off) == (1, 0, 1)


def test_the_journal_is_read_as_it_grows(run: Run) -> None:
    starts = TrainerStarts(run.path)
    assert starts.poll() is False and starts.newest == 0
    run.attempt(0, 1)
    assert starts.poll() is True and starts.newest == 2 and starts.poll() is False
    with (run.path / "journal.jsonl").open("a") as file:
        file.write('{"at":1,"k":"intent","svc":"trainer"')
    assert starts.poll() is False, "a line that is being written"
    with (run.path / "journal.jsonl").open("a") as file:
        file.write(
            f',"gen":2,"x":{T}}}\n{{"at":"?","k":"intent","svc":"trainer","gen":3}}\nnonsense "k":"attempt"\n'
        )
    assert starts.poll() is True and starts.newest == 3
    assert [starts.number(at) for at in (0.0, 1.0, T - 1, T, T + 2)] == [0, 1, 1, 2, 3]
