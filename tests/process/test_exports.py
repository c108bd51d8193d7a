"""What a run has measured, exported by commands: while it is live, and after its end."""

from __future__ import annotations

import json
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
    assert early.returncode == 1 and "has no report: it is written when an attempt ends" in early.stderr
    assert f"how it is now: liverl-tui status --run {run.run_dir}" in early.stderr
    steps = [{"step": step, "data": {"critic/score/mean": step / 4, "actor/lr": 0.1}} for step in (1, 2)]
    (run.run_dir / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    folder = run.run_dir / "trials" / "step_0001" / "one-0a1b2c"
    folder.mkdir(parents=True)
    (folder / FILE).write_text(lines(call(request_time=time.time(), calls=1)))
    table = run_cli("metrics", "export", "--key", "critic/score/mean", *which)
    assert table.stdout == "step,critic/score/mean\n1,0.25\n2,0.5\n", table.stderr
    titled = run_cli("metrics", "export", "--key", "Reward", *which)
    assert titled.stdout == table.stdout, "the title of the chart names its metric"
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
    (run.run_dir / "go").touch()
    run.result()
    told = run_cli("report", *which)
    assert told.returncode == 0 and told.stdout.startswith("# tests/toy, attempt 1: "), told.stderr
    assert told.stdout == (run.run_dir / "attempt_001" / "report.md").read_text()
    page = run_cli("report", run.run_dir, "--html").stdout
    assert page.startswith("<!doctype html>") and "critic/score/mean" in page
    other = run_cli("report", *which, "--attempt", "2")
    assert other.returncode == 1 and "attempt 2 of run tests/toy has no report" in other.stderr
