"""Which interpreter of a wanted version is found: on PATH, of pyenv, or none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from liverl.environments.interpreters import find

OURS = "%d.%d" % sys.version_info[:2]  # noqa: UP031


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine on which nothing is installed."""
    return {
        "PATH": str(tmp_path / "bin"),
        "HOME": str(tmp_path),
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "uv"),
    }


def test_one_on_path_is_asked_for_its_version(tmp_path: Path, env: dict[str, str]) -> None:
    assert find("3.12", env) is None
    program(tmp_path / "bin" / "python3", "echo 3.13")
    assert find("3.12", env) is None
    assert find("3.13", env) == find(">=3.12", env) == find(">= 3.13", env) == tmp_path / "bin" / "python3"
    assert find(">=3.14", env) is None
    other = program(tmp_path / "bin" / "python3.12", "echo 3.12")
    assert find(">=3.12", env) == other, "the lowest one"


def test_a_shim_that_cannot_start_it_is_passed_over(tmp_path: Path, env: dict[str, str]) -> None:
    """pyenv puts one on PATH for each version that it has, active or not."""
    program(tmp_path / "bin" / "python3.12", "echo 'command not found' >&2; exit 127")
    assert find("3.12", env) is None
    installed = program(tmp_path / ".pyenv/versions/3.12.1/bin/python", "echo 3.12")
    assert find("3.12", env) == installed
    elsewhere = program(tmp_path / "own/versions/3.12.7/bin/python", "echo 3.12")
    assert find("3.12", {**env, "PYENV_ROOT": str(tmp_path / "own")}) == elsewhere


def test_one_in_an_empty_or_missing_folder_of_path_is_not_looked_for(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "python3.12", "echo 3.12")
    monkeypatch.chdir(tmp_path)
    assert find("3.12", {**env, "PATH": f":{tmp_path}/none:"}) is None


@pytest.mark.parametrize("wanted", ["pypy", "/usr/bin/python3", "<3.13", "3", "3.12.1"])
def test_other_wishes_are_left_to_uv(wanted: str) -> None:
    assert find(wanted) is None


def test_the_interpreter_of_the_tests_is_found() -> None:
    found = find(OURS)
    assert found is not None and found.exists()
