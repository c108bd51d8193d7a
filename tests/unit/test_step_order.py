"""Steps are in the order of their numbers, not of their names, wherever the newest one is looked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.observe.trials.root import TrialRoot
from liverl.proxy.runtime.recorder import Recorder
from liverl.serving.unfinished_trials import unfinished
from liverl.util.steps import newest_first, step_number

PAIRS = [
    ("step_0009", "step_0010"),
    ("step_0999", "step_1000"),
    ("step_9999", "step_10000"),
    ("step_9", "step_10"),
]
TRIAL = "gsm8k-1-0badcafe"


def of_the_drain(run_dir: Path) -> str:
    """Trials that a leaving replica still has."""
    return newest_first(
        step.name
        for step in (run_dir / "trials").iterdir()
        if unfinished(run_dir, {f"{TRIAL}-of-{step.name}"})
    )[0]


def of_the_recorder(run_dir: Path) -> str:
    """Where a turn is written, if steps have a trial of the same name."""
    recorder = Recorder(run_dir, (), lambda: None)
    try:
        return recorder.folder(TRIAL).parent.name
    finally:
        recorder.close()


def of_the_scan(run_dir: Path) -> str:
    """The directories that are listed in every scan."""
    root = TrialRoot(str(run_dir / "trials"))
    list(root.new_trials(time.time(), time.monotonic() + 60))
    return Path(root.newest_folders()[-1]).name


@pytest.mark.parametrize("newest", [of_the_drain, of_the_recorder, of_the_scan])
@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_the_newest_step(tmp_path: Path, newest: Callable[[Path], str], older: str, newer: str) -> None:
    for step in (older, newer):
        for trial in (TRIAL, f"{TRIAL}-of-{step}"):
            (tmp_path / "trials" / step / trial).mkdir(parents=True)
    assert newest(tmp_path) == newer


def test_trials_of_a_run_without_steps(tmp_path: Path) -> None:
    assert unfinished(tmp_path, {TRIAL}) == set()
    (tmp_path / "trials" / "step_x" / TRIAL).mkdir(parents=True)
    assert unfinished(tmp_path, {TRIAL}) == set()
    (tmp_path / "trials" / "step_0002" / TRIAL).mkdir(parents=True)
    assert unfinished(tmp_path, {TRIAL, "other"}) == {TRIAL}
    (tmp_path / "trials" / "step_0002" / TRIAL / "result.json").touch()
    assert unfinished(tmp_path, {TRIAL}) == set()


@given(numbers=st.lists(st.integers(0, 10**12), unique=True), width=st.integers(1, 8))
def test_any_steps(numbers: list[int], width: int) -> None:
    names = [f"step_{number:0{width}d}" for number in numbers]
    assert list(map(step_number, newest_first([*names, "step_", "step_1a", "_unattributed"]))) == sorted(
        numbers, reverse=True
    )


@pytest.mark.parametrize(
    "name", ["step_", "step_x", "step_1.5", "step_-1", "global_step_3", "step_²", "step_1\n", ""]
)
def test_names_of_no_step(name: str) -> None:
    assert step_number(name) is None
