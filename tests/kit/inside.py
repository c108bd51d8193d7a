"""Programs that tests run for what needs a mount namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNAVAILABLE = 77  # exit code: no mounts or no FUSE here


def run_on_slow_files(program: Path, case: str, folder: Path) -> None:
    """Run ``program CASE FOLDER``, which mounts slow files for itself. The test is skipped where they cannot be."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("FUSE needs root here")
    argv = [sys.executable, str(program), case, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip("FUSE cannot be mounted here")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
