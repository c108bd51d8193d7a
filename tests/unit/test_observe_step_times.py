"""A trial that names no step counts for the one in whose time it began."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kit.trial_folders import FILE, T, call, lines, put

from liverl.model import TrialHead, TrialsStatus
from liverl.observe.trials import scanner as scanner_module
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.step_times import StepTimes
from liverl.observe.trials.steps import heads_of_step, steps_on_disk
from liverl.observe.trials.trial import SETTLE


class Run:
    """A run directory; all times count from ``T``."""

    def __init__(self, path: Path) -> None:
        self.path, self.seq = path, 0
        self.scanner = TrialScanner(path)
        self.start(0, 1)

    def start(self, at: float, number: int) -> None:
        records: list[dict[str, Any]] = [
            {"k": "attempt", "n": number, "monotonic": 1.0, "at": T + at},
            {"k": "intent", "svc": "trainer", "gen": number, "at": T + at},
        ]
        with open(self.path / "journal.jsonl", "a") as file:
            file.writelines(json.dumps(record, separators=(",", ":")) + "\n" for record in records)

    def event(self, at: float, kind: str = "step", **data: object) -> None:
        self.seq += 1
        event = {"seq": self.seq, "at": T + at, "kind": kind, "text": "", "data": data}
        with open(self.path / "events.jsonl", "a") as file:
            file.write(json.dumps(event, separators=(",", ":")) + "\n")

    def finished(self, step: int, after: float, by: float) -> None:
        self.event(by + 1, step=step, after=T + after, by=T + by)

    def trial(
        self, name: str, began: float, ended: float | None, root: str = "trials", **other: object
    ) -> None:
        folder = self.path / root / name
        put(folder / FILE, lines(call(request_time=T + began, **other)), T + began)
        if ended is not None:
            put(folder / "result.json", json.dumps({"finished_at": T + ended}), T + ended)

    def scan(self, at: float) -> TrialsStatus:
        return self.scanner.scan(now=T + at)

    def steps(self, at: float) -> dict[int, int]:
        return {step.step: step.total for step in self.scan(at).steps}

    def heads(self, at: float) -> dict[str, TrialHead]:
        return {head.name: head for head in self.scan(at).newest}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.mark.parametrize(
    ("began", "ended", "found"),
    [
        (5, 8, (1, True)),
        (9, None, (1, True)),  # an asynchronous trainer's trial may outlive its step
        (10, 11.5, (1, True)),  # over before the step's metrics were written
        (10, 12.5, (2, True)),  # it goes on, so it is of the next step
        (10, None, (2, True)),
        (12, 13, (2, True)),
        (20.5, None, (3, False)),
        (30, 31, (3, False)),
    ],
)
def test_the_step_of_a_trial(run: Run, began: float, ended: float | None, found: tuple[int, bool]) -> None:
    run.finished(1, 10, 12)
    run.event(13, "state", step=7)
    run.finished(2, 20, 22)
    times = StepTimes(run.path)
    assert times.poll() and not times.poll()
    assert times.step_of(T + began, None if ended is None else T + ended) == found


def test_events_without_times_and_lines_that_are_no_events(run: Run) -> None:
    assert StepTimes(run.path).step_of(T, None) == (1, False)
    run.event(10, step=1)
    with open(run.path / "events.jsonl", "a") as file:
        file.write('{"kind":"step"\n{"at":1,"kind":"step","data":{"step":"2"}}\n{"at":3,"kind":"step"')
    times = StepTimes(run.path)
    assert times.poll()
    assert [(step.step, step.by) for step in times.finished] == [(1, T + 10)]
    assert times.step_of(T + 9, T + 11) == (1, True) and times.step_of(T + 10, T + 11) == (2, False)


def test_events_that_are_written_anew(run: Run) -> None:
    run.finished(1, 10, 12)
    times = StepTimes(run.path)
    times.poll()
    (run.path / "events.jsonl").unlink()
    run.finished(5, 20, 22)
    run.finished(6, 30, 32)
    assert times.poll()
    assert [step.step for step in times.finished] == [5, 6]


def test_trials_count_for_steps_while_they_run_and_after(run: Run) -> None:
    run.trial("a-0a1b2c", 1, 3)
    run.trial("b-0a1b2c", 2, None)
    assert run.steps(4) == {1: 2}
    run.finished(1, 9, 10)
    run.trial("c-0a1b2c", 10.5, None)
    run.trial("d-0a1b2c", 9.5, 9.75)  # while the metrics may have been written, and over by then
    assert run.steps(11) == {1: 3, 2: 1}
    run.trial("b-0a1b2c", 2, 4)
    run.trial("c-0a1b2c", 10.5, 12)
    assert run.steps(30) == {1: 3, 2: 1} and run.scanner.unread == 0
    assert run.steps(60) == {1: 3, 2: 1}, "all are finished, and counted once"
    assert run.heads(60)["c-0a1b2c"].step == 2
    assert [head.name for head in heads_of_step(run.path, 1)] == ["d-0a1b2c", "b-0a1b2c", "a-0a1b2c"]
    assert [head.name for head in heads_of_step(run.path, 2)] == ["c-0a1b2c"]
    assert steps_on_disk(run.path) == [1], "step 2 is not finished"


def test_the_step_of_a_finished_trial_is_settled_when_the_trainer_says_its_number(run: Run) -> None:
    run.finished(40, 9, 10)
    run.start(20, 2)  # from a checkpoint of step 30
    run.trial("a-0a1b2c", 21, 22)
    assert run.steps(22 + 2 * SETTLE) == {41: 1}, "what it would be without the checkpoint"
    run.finished(31, 39, 40)
    assert run.steps(45) == {31: 1} and run.heads(45)["a-0a1b2c"].step == 31


def test_a_run_without_steps_does_not_keep_all_its_trials(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner_module, "_UNSETTLED", 2)
    for number in range(5):
        run.trial(f"t{number}-0a1b2c", number, number + 1)
    assert run.steps(40) == {1: 5}
    assert len(run.scanner._unsettled) == 2
    run.finished(9, 50, 51)
    assert run.steps(60) == {1: 3, 9: 2} and not run.scanner._unsettled


def test_a_trial_from_before_the_trainer_has_no_step(run: Run) -> None:
    run.trial("old-0a1b2c", -5, -4)
    run.trial("told/ignored", 1, 2)
    put(run.path / "trials" / "told-0a1b2c" / "config.json", '{"step": 7}', T + 1)
    heads = run.heads(20)
    assert heads["old-0a1b2c"].step is None and heads["told-0a1b2c"].step == 7


def test_trials_in_folders_that_are_linked(run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (run.path / "trials.2").symlink_to(elsewhere)
    run.trial("a-0a1b2c", 1, 2)
    run.trial("a-0a1b2c", 1, 2, "trials.2")
    run.trial("step_0003/b-0a1b2c", 1, 2, "trials.2")
    run.trial("old-0a1b2c", -9, -8, "trials.2")
    run.trial("step_0003/old-0a1b2c", -9, -8, "trials.2")
    assert run.steps(20) == {1: 2, 3: 1}
    assert {head.path for head in run.scan(20).newest} == {
        *("trials/a-0a1b2c", "trials.2/a-0a1b2c", "trials.2/step_0003/b-0a1b2c")
    }
    folders = run.scanner.newest_folders()
    assert folders == [str(run.path / name) for name in ("trials", "trials.2", "trials.2/step_0003")]
    assert [head.path for head in heads_of_step(run.path, 3)] == ["trials.2/step_0003/b-0a1b2c"]
    run.finished(1, 9, 10)
    assert sorted(head.path for head in heads_of_step(run.path, 1)) == [
        "trials.2/a-0a1b2c",
        "trials/a-0a1b2c",
    ]
    assert steps_on_disk(run.path) == [1, 3]


def test_a_link_out_of_a_linked_folder_is_not_followed(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere, secret = tmp_path_factory.mktemp("elsewhere"), tmp_path_factory.mktemp("secret")
    put(secret / FILE, lines(call(request_time=T + 1)), T + 1)
    (run.path / "trials.2").symlink_to(elsewhere)
    (elsewhere / "a-0a1b2c").mkdir()
    (elsewhere / "a-0a1b2c" / FILE).symlink_to(secret / FILE)
    os.utime(elsewhere / "a-0a1b2c", (T + 1, T + 1))
    assert run.heads(20)["a-0a1b2c"].turns == 0
    (problem,) = run.scanner.unreadable
    assert problem.path == f"trials.2/a-0a1b2c/{FILE}" and "not followed" in problem.why
