"""Storage that is slow or hangs: the backend goes on answering, names what it cannot read, and ends the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.inside import run_on_slow_files

INSIDE = Path(__file__).with_name("slow_files_inside.py")


SLOW = ("list_of_replicas", "list_of_the_proxy", "report", "exit_statuses")
CASES = [
    *("files_of_a_start", "last_state", "lists_of_a_start", "record_of_the_keeper", "index_of_runs"),
    *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW),
]


@pytest.mark.parametrize("case", CASES)
def test_storage_that_hangs(case: str, tmp_path: Path) -> None:
    run_on_slow_files(INSIDE, case, tmp_path)
