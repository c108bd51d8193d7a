"""Whole runs with real verl, as fixtures: the smoke model that all runs of a process share, and a state directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.verl_runs import Launch, smoke_directory


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the smoke model is, once the first run has made it."""
    return smoke_directory(tmp_path_factory)


@pytest.fixture
def launch(tmp_path: Path, smoke: Path) -> Iterator[Launch]:
    """Runs below a directory of the test; what is left of them is ended behind it."""
    launch = Launch(tmp_path, smoke)
    yield launch
    launch.end()
