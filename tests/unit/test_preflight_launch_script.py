"""Whether a launch script can be started is known before the start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liverl.preflight.launch_script import problem, script_of


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("bash start.sh", "start.sh"),
        ("/bin/sh -eu start.sh -c x", "start.sh"),
        ("bash -o pipefail +O extglob --norc -- -odd.sh", "-odd.sh"),
        ("bash -lc start.sh", None),
        ("bash -s start.sh", None),
        ("bash", None),
        ("bash -", None),
        ("bash --", None),
        ("python3.11 -u -W ignore -X dev train.py", "train.py"),
        ("python -m train", None),
        ("python -Ic train", None),
        ("python -s train.py", "train.py"),
        ("srun start.sh", None),
    ],
)
def test_the_file_that_an_interpreter_runs(command: str, script: str | None) -> None:
    assert script_of(command.split()) == script


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    for name, mode in (("run", 0o755), ("plain", 0o644), ("bin/tool", 0o755), ("bin/lib.sh", 0o644)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("./run", None),
        ("./plain", "trainer.command: {cwd}/plain is not executable; chmod +x it"),
        ("./none", "trainer.command: {cwd}/none does not exist"),
        ("./bin", "trainer.command: {cwd}/bin is a directory"),
        ("tool", None),
        ("run", "trainer.command: there is no program run in PATH; to start the file in {cwd}, write ./run"),
        ("none", "trainer.command: there is no program none in PATH"),
        ("sh plain", None),
        ("sh lib.sh", None),
        ("sh x", "trainer.command: {cwd}/x does not exist; relative paths start at trainer.cwd, {cwd}"),
        ("/bin/sh x", "trainer.command: {cwd}/x does not exist; relative paths start at trainer.cwd, {cwd}"),
        ("sh bin", "trainer.command: {cwd}/bin is a directory; relative paths start at trainer.cwd, {cwd}"),
    ],
)
def test_what_keeps_a_script_from_starting(cwd: Path, command: str, why: str | None) -> None:
    found = problem(command.split(), cwd, f"bin{os.pathsep}/usr/bin:/bin")
    assert found == (why and why.format(cwd=cwd))


def test_a_working_directory_that_cannot_be_entered(cwd: Path) -> None:
    assert problem(["sh"], cwd / "x", "/bin") == f"trainer.cwd: {cwd / 'x'} does not exist"
    assert problem(["sh"], cwd / "plain", "/bin") == f"trainer.cwd: {cwd / 'plain'} is not a directory"
