"""What users give by mistake, or what their host does to them: said in words, soon, and without a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit import checked_runs
from kit.cli import MAIN
from kit.hanging import hanging


def run(*args: object, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, *MAIN, *map(str, args)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("command", ["check", "plan", "up", "config"])
def test_a_configuration_that_is_a_folder(tmp_path: Path, command: str) -> None:
    done = run(command, "--config", tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"{tmp_path}: this is a directory, not a configuration file" in done.stderr


def test_a_folder_of_wheels_without_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path / "cache"))  # in which nothing is built yet
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    done = run("envs", "sync", "--wheels", wheels, "proxy")
    assert done.returncode == 1 and f"--wheels {wheels}: the folder is empty" in done.stderr, done
    assert "pip download" in done.stderr and "Traceback" not in done.stderr


def test_a_model_that_this_user_may_not_read(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can give a folder to another user, and setpriv takes root's right to read it")
    file = checked_runs.configured(tmp_path, "managed")
    model = tmp_path / "models" / "Toy-1B"
    os.chown(model, 12345, -1)
    model.chmod(0o700)
    without = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    done = run("check", "--json", "--config", file, before=without)
    checks = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 3
    assert checks["model"]["text"] == f"cannot read {model}/config.json: Permission denied"
    assert checks["model"]["fix"] == "make the folder and its files readable for this user"
    assert not [
        one for one in checks.values() if one["id"] in ("memory", "experts") and one["status"] == "ok"
    ]


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_file_system_that_does_not_answer(tmp_path: Path, name: str) -> None:
    """The other checks say what they have found, and the command ends."""
    file = checked_runs.configured(tmp_path, "managed")
    program = (
        "import sys\n"
        "from liverl.preflight import registry\n"
        "registry.CHECKS = tuple(e._replace(seconds=min(e.seconds, 3.0)) for e in registry.CHECKS)\n"
        "from liverl.preflight import running\n"
        "running.CHECKS = registry.CHECKS\n"
        "from liverl_tui.cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    with hanging(tmp_path / "models" / "Toy-1B" / name):
        words = [sys.executable, "-c", program, "check", "--json", "--config", str(file)]
        done = subprocess.run(
            words, check=False, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
    checks = json.loads(done.stdout)["checks"]
    late = [check for check in checks if check["text"].startswith("no answer within 3 s")]
    assert late and {check["status"] for check in late} == {"skipped"}
    assert [check for check in checks if check["status"] == "ok"], "the others have looked"
