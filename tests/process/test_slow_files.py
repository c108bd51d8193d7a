"""Storage that is slow or hangs: the backend goes on answering, names what it cannot read, and ends the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INSIDE = Path(__file__).with_name("slow_files_inside.py")
UNAVAILABLE = 77


SLOW = ("list_of_replicas", "list_of_the_proxy", "report", "exit_statuses")
CASES = [
    *("files_of_a_start", "last_state", "lists_of_a_start", "record_of_the_keeper", "index_of_runs"),
    *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW),
]


@pytest.mark.parametrize("case", CASES)
def test_storage_that_hangs(case: str, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("FUSE needs root here")
    argv = [sys.executable, str(INSIDE), case, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip("FUSE cannot be mounted here")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
