"""The smoke model of runs on a GPU, as a fixture."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kit.gpu_runs import VENV
from kit.verl_runs import SMOKE


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the smoke model and its tasks."""
    if SMOKE:
        return Path(SMOKE)
    folder = tmp_path_factory.mktemp("smoke") / "made"
    command = [str(Path(VENV) / "bin" / "liverl-tui"), "make-smoke", str(folder)]
    subprocess.run(command, check=True, timeout=400)
    return folder
