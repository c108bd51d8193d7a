"""What a run has measured, exported by commands: while it is live, and after its end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cli import MAIN, run_cli
from kit.parquet_reader import read_parquet
from kit.runs import ToyRun, make_run, toy
from kit.trial_folders import FILE, call, lines

from liverl.plan.spec import RestartPolicy


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    never = RestartPolicy(mode="never")
    trainer = toy("trainer", "exit-when", "0", "go", kind="trainer", ends_run=True, restart=never)
    made = ending(make_run(tmp_path, [trainer]))
    made.start()
    made.until("trainer", "ready")
    return made


def test_tables_pictures_and_the_report(run: ToyRun, tmp_path: Path) -> None:
    which = ("--run", run.run_dir)
    nothing = run_cli("metrics", "export", *which)
    assert (nothing.returncode, nothing.stdout) == (1, "") and "no metrics yet" in nothing.stderr
    assert run_cli("trials", "export", *which).returncode == 1
    early = run_cli("report", run.run_dir)
    assert early.returncode == 0, early.stderr
    assert re.match(
        r"# tests/toy, attempt 1: still running, as of \d\d:\d\d:\d\d, no step of this attempt yet\n",
        early.stdout,
    )
    steps = [{"step": step, "data": {"critic/score/mean": step / 4, "actor/lr": 0.1}} for step in (1, 2)]
    (run.run_dir / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    folder = run.run_dir / "trials" / "step_0001" / "one-0a1b2c"
    folder.mkdir(parents=True)
    (folder / FILE).write_text(lines(call(request_time=time.time(), calls=1)))
    table = run_cli("metrics", "export", "--key", "critic/score/mean", *which)
    assert table.stdout == "step,critic/score/mean\n1,0.25\n2,0.5\n", table.stderr
    titled = run_cli("metrics", "export", "--key", "Reward", *which)
    assert titled.stdout == table.stdout, "the title of the chart names its metric"
    assert titled.stderr == "Reward: column critic/score/mean\n" and table.stderr == ""
    wrong = run_cli("metrics", "export", "--key", "critic/score/men", *which)
    assert wrong.returncode == 2 and "did you mean critic/score/mean?" in wrong.stderr
    file = tmp_path / "m.parquet"
    written = run_cli("metrics", "export", "--parquet", "-o", file, *which)
    assert written.returncode == 0 and read_parquet(file.read_bytes())[1]["step"] == [1, 2]
    again = run_cli("metrics", "export", "--parquet", "-o", file, *which)
    assert again.returncode == 2 and f"{file} exists" in again.stderr
    argv = [*MAIN, "trials", "export", "--parquet", "--output", "-", *map(str, which)]
    piped = subprocess.run(argv, capture_output=True, check=True)
    assert read_parquet(piped.stdout)[1]["state"] == ["running"]
    (head,) = run_cli("trials", "export", "--jsonl", *which).stdout.splitlines()
    assert json.loads(head)["task"] == "one"
    assert run_cli("metrics", "export", "--svg", *which).stdout.startswith("<svg ")
    live = run_cli("report", run.run_dir, "--html").stdout
    assert "<title>tests/toy, attempt 1: still running, as of " in live and "<svg " in live
    (run.run_dir / "go").touch()
    run.result()
    told = run_cli("report", *which)
    assert told.returncode == 0 and told.stdout.startswith("# tests/toy, attempt 1: "), told.stderr
    assert told.stdout == (run.run_dir / "attempt_001" / "report.md").read_text()
    page = run_cli("report", run.run_dir, "--html").stdout
    assert page.startswith("<!doctype html>") and "critic/score/mean" in page
    other = run_cli("report", *which, "--attempt", "2")
    assert other.returncode == 1 and "attempt 2 of run tests/toy has no report" in other.stderr
    assert f"how it is now: liverl-tui status --run {run.run_dir}" in other.stderr


def test_the_report_of_an_earlier_attempt_says_that_another_one_runs(run: ToyRun) -> None:
    (run.run_dir / "go").touch()
    run.result()
    (run.run_dir / "go").unlink()
    run.start(resume=True)
    run.until("trainer", "ready")
    now = run_cli("report", run.run_dir)
    assert now.stdout.startswith("# tests/toy, attempt 2: still running, as of "), now
    first = run_cli("report", run.run_dir, "--attempt", "1").stdout
    assert first.startswith("# tests/toy, attempt 1: ") and "still running" not in first.splitlines()[0]
    assert first.splitlines()[2].startswith("- attempt 2 of this run is still running, as of ")
    page = run_cli("report", run.run_dir, "--attempt", "1", "--html").stdout
    assert "<li>attempt 2 of this run is still running, as of " in page
    (run.run_dir / "go").touch()
    run.result()
    ended = run_cli("report", run.run_dir, "--attempt", "1").stdout
    assert "- a newer attempt of this run has ended since: attempt 2\n" in ended
    (run.run_dir / "attempt_002" / "report.md").unlink()
    left = run_cli("report", run.run_dir).stdout
    assert left.startswith("# tests/toy, attempt 2: ended") and "attempt_002/report.md is missing" in left
    assert "- state: done, exit code 0\n" in left
    first = run_cli("report", run.run_dir, "--attempt", "1").stdout
    assert "- attempt 2 of this run began later and has left no report\n" in first


def test_the_report_says_what_was_not_looked_at(run: ToyRun) -> None:
    steps = [{"step": step, "data": {"critic/score/mean": step / 4}} for step in (1, 2)]
    (run.run_dir / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    folder = run.run_dir / "trials" / "step_0001"
    for name in ("one-0a1b2c", "two-0a1b2c"):
        (folder / name).mkdir(parents=True)
        (folder / name / FILE).write_text(lines(call(request_time=time.time(), calls=1)))
    os.mkfifo(folder / "two-0a1b2c" / "result.json")
    (run.run_dir / "go").touch()
    run.result()
    for options in ((), ("--html",)):
        told = run_cli("report", run.run_dir, *options).stdout
        behind = told.partition("Not looked at")[2]
        assert "trials/step_0001/two-0a1b2c/result.json" in behind, told
        assert "files are gone" not in behind
    shutil.rmtree(folder / "one-0a1b2c")
    missed = run_cli("report", run.run_dir).stdout.partition("Not looked at")[2]
    assert "- at least 1 of 2 trials that the run had at its end: their files are gone\n" in missed
    assert run_cli("clean", run.run_dir, "--all", "--yes").returncode == 0
    (run.run_dir / "metrics.jsonl").unlink()
    (run.run_dir / "metrics.jsonl").mkdir()
    for options in ((), ("--html",)):
        behind = run_cli("report", run.run_dir, *options).stdout.partition("Not looked at")[2]
        assert "the trials were removed by liverl-tui clean (" in behind
        assert "the logs of attempt 1 were removed by liverl-tui clean (" in behind
    assert "metrics.jsonl" in behind
