"""Where the time of real runs goes: five whose bottleneck was made on purpose, and five that have none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import where_runs
from kit.cli import run_cli
from kit.runs import ToyRun

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.mark.parametrize("name", where_runs.RUNS)
def test_a_real_run_names_its_bottleneck_or_says_nothing(
    name: str, tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    what, _ = where_runs.RUNS[name]
    run = where_runs.make(tmp_path, name, ending)
    report = (run.run_dir / "attempt_001" / "report.md").read_text()
    printed = run_cli("trials", "steps", "--run", run.run_dir, "--json")
    assert printed.returncode == 0, printed.stderr
    told = json.loads(printed.stdout)["step_time"]
    lines = run_cli("trials", "steps", "--run", run.run_dir).stdout.splitlines()
    assert lines[0].startswith("a step takes ") and f"- {lines[0]}" in report
    if not what:
        assert told["bottleneck"] is None and "- bottleneck:" not in report
        # Where most of a step goes is said; that is no advice, and no bottleneck.
        assert lines[1].startswith(("no ", *"0123456789")) and f"- {lines[1]}" in report
        return
    bottleneck = told["bottleneck"]
    assert bottleneck["what"] == what and bottleneck["share"] >= 0.3
    assert lines[1] == f"bottleneck: {bottleneck['sentence']}" and f"- {lines[1]}" in report
    assert bottleneck["key"] in bottleneck["sentence"]
