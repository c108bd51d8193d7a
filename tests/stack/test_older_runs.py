"""The services of an earlier version's plan, started by this one; its installation is no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import contract
from kit.older_runs import VERSIONS, Restored
from kit.real import trial_dirs
from kit.runs import ToyRun

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_the_next_attempt_of_a_run_of_the_embedded_default(
    version: Path, tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    restored = Restored(version / "done", tmp_path, package="/no/longer/there/liverl", same_boot=False)
    run = ending(restored.write())
    before = {path.name for path in trial_dirs(run.run_dir)}
    run.start(resume=True)
    result = run.result(240)
    assert (result.attempt, result.state, result.exit_code, result.steps) == (2, "done", 0, 1), result
    assert len({path.name for path in trial_dirs(run.run_dir)} - before) == 2, "trials of its own"
    lines = (run.run_dir / "attempt_002" / "metrics.jsonl").read_text().splitlines()
    shape = contract.output("metrics.jsonl")
    assert [problem for line in lines for problem in contract.problems(json.loads(line), shape)] == []
    assert len(lines) == 1
