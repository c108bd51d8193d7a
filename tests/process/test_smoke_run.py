"""A smoke run from its start to its end, with a real backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.runs import ToyRun, make_run, toy

from liverl.daemon.launch import LaunchError, start_backend
from liverl.model import SMOKE as WORDS
from liverl.plan.spec import RestartPolicy
from liverl.rundir.layout import RunDir
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.up import up
from liverl_tui.text.errors import CliError

CHANGED = ("training.train_batch_size 64 -> 8",)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[ToyRun]]:
    runs: list[ToyRun] = []
    yield runs
    for run in runs:
        run.end()


def ran(made: list[ToyRun], folder: Path, *, smoke: bool, checkpoint: bool = True) -> ToyRun:
    """A run that has ended, whose trainer wrote a checkpoint."""
    name = "smoke-x" if smoke else "x"
    run = make_run(folder, [toy("t", "exit", "0", ends_run=True)], name=name, smoke=CHANGED if smoke else ())
    made.append(run)
    if checkpoint:
        step = run.run_dir / "checkpoints" / "global_step_2" / "actor"
        step.mkdir(parents=True)
        (step / "model.pt").write_bytes(b"x" * 12_000_000)
    run.start()
    assert run.result().state == "done"
    return run


def events(run: ToyRun) -> list[str]:
    return [line for line in RunDir(run.run_dir).events.read_text().splitlines() if '"smoke"' in line]


def test_its_checkpoint_is_measured_and_removed_and_everything_says_smoke(
    made: list[ToyRun], tmp_path: Path
) -> None:
    run = ran(made, tmp_path, smoke=True)
    assert not (run.run_dir / "checkpoints").exists()
    report = RunDir(run.run_dir).report(1).read_text()
    told = "its checkpoint took 0.01 GB in 1 file, in a time that the trainer did not report; it was removed"
    assert f"- {WORDS}\n- {told}\n" in report
    (event,) = events(run)
    assert told in event and WORDS in event
    result = run.result()
    assert result.resume is None
    status = run_cli("status", "--run", run.run_dir)
    assert status.returncode == 0 and WORDS in status.stdout
    with pytest.raises(LaunchError, match="is a smoke run: small batches, two steps, its checkpoint removed"):
        start_backend(run.run_dir, resume=True)
    for options in (UpOptions(resume=str(run.run_dir)), UpOptions(run=run.run_dir, no_ui=True)):
        with pytest.raises(CliError, match="the same options without --smoke"):
            up(options)
    assert RunDir(run.run_dir).read_result() == result


def test_without_a_checkpoint_that_is_said(made: list[ToyRun], tmp_path: Path) -> None:
    run = ran(made, tmp_path, smoke=True, checkpoint=False)
    assert "no checkpoint was written" in RunDir(run.run_dir).report(1).read_text()


def test_any_other_run_keeps_its_checkpoint_and_may_be_resumed(made: list[ToyRun], tmp_path: Path) -> None:
    run = ran(made, tmp_path, smoke=False)
    assert (run.run_dir / "checkpoints/global_step_2/actor/model.pt").exists()
    assert WORDS not in RunDir(run.run_dir).report(1).read_text() and not events(run)
    status = run_cli("status", "--run", run.run_dir)
    assert status.returncode == 0 and "SMOKE" not in status.stdout
    run.start(resume=True)
    assert run.result().attempt == 2


@pytest.mark.parametrize("smoke", [True, False])
def test_one_that_fails_names_no_command_that_resumes_it(
    made: list[ToyRun], tmp_path: Path, smoke: bool
) -> None:
    task = toy("t", "exit", "7", ends_run=True, restart=RestartPolicy(mode="never"))
    made.append(make_run(tmp_path, [task], smoke=CHANGED if smoke else ()))
    made[-1].start()
    result = made[-1].result()
    assert result.state == "failed" and (result.resume is None) == smoke
