"""Storage that hangs, and files that this user may not read: what is said before the start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import checked_runs
from kit.cli import MAIN
from kit.inside import run_on_slow_files

INSIDE = Path(__file__).with_name("preflight_storage_inside.py")
NO_OVERRIDE = "-dac_override,-dac_read_search"


@pytest.mark.parametrize("case", ["model", "kubeconfig", "run", "config"])
def test_a_mount_that_does_not_answer_is_named(case: str, tmp_path: Path) -> None:
    run_on_slow_files(INSIDE, case, tmp_path)


def unprivileged(*args: object) -> subprocess.CompletedProcess[str]:
    """The command line by somebody who may read only what its mode allows: root without its capabilities for that."""
    drop: list[str] = []
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root without setpriv may read everything")
        drop = ["setpriv", f"--bounding-set={NO_OVERRIDE}", f"--inh-caps={NO_OVERRIDE}"]
    return subprocess.run(
        [*drop, *MAIN, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


MODEL = "models/Toy-1B"
READABLE = "readable for this user"
Case = tuple[str, str, tuple[str, ...], str, str]
CASES: dict[str, Case] = {
    "folder": ("managed", MODEL, (), "model", f"{MODEL}/config.json: Permission denied"),
    "folder, verl": ("verl", MODEL, (), "model", f"{MODEL}/config.json: Permission denied"),
    "folder above": ("managed", "models", (), "model", f"{MODEL}/config.json: Permission denied"),
    "config.json": (
        "managed",
        f"{MODEL}/config.json",
        (),
        "model",
        f"{MODEL}/config.json: Permission denied",
    ),
    "embedded": ("embedded", MODEL, (f"model.model_path={{folder}}/{MODEL}",), "model", "Permission denied"),
    "weights": (
        "managed",
        f"{MODEL}/model-00001-of-00002.safetensors",
        (),
        "model-weights",
        "model-00001-of-00002.safetensors: Permission denied",
    ),
    "script": ("script", MODEL, (), "script-paths", f"{MODEL} cannot be entered: permission denied"),
    "script's data": (
        "script",
        "data/val.parquet",
        (),
        "script-paths",
        "val.parquet cannot be read: permission denied",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_this_user_may_not_read_is_named(tmp_path: Path, case: str) -> None:
    topology, closed, sets, check_id, words = CASES[case]
    config = checked_runs.configured(tmp_path, topology)
    mode = (tmp_path / closed).stat().st_mode
    (tmp_path / closed).chmod(0)
    try:
        more = [part for text in sets for part in ("--set", text.replace("{folder}", str(tmp_path)))]
        done = unprivileged("check", "--json", "--config", config, *more)
    finally:
        (tmp_path / closed).chmod(mode)
    assert done.returncode == 3, done
    found = [
        one for one in json.loads(done.stdout)["checks"] if one["id"] == check_id and words in one["text"]
    ]
    assert [one["status"] for one in found] == ["fail"], done.stdout
    assert READABLE in found[0]["fix"] and "Errno" not in done.stdout


def _folder(at: Path) -> None:
    at.mkdir()


def _beside_config(at: Path) -> None:
    at.mkdir()
    (at / "config.yaml").write_text("run: {}\n")


def _closed(at: Path) -> None:
    at.write_text("run: {}\n")
    at.chmod(0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_folder, "this is a directory, not a configuration file"),
        (_beside_config, "config.yaml?"),
        (_closed, "cannot read the file: Permission denied"),
    ],
)
@pytest.mark.parametrize("command", ["check", "plan", "up"])
def test_a_config_that_is_none_is_refused_in_words(
    tmp_path: Path, command: str, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "mine")
    done = unprivileged(command, "--config", tmp_path / "mine")
    assert done.returncode == 2 and f"{tmp_path / 'mine'}: " in done.stderr and words in done.stderr, done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("files", "words"),
    [((), "the folder is empty"), (("a.txt",), "it has 1 other file, such as a.txt"), (None, "No such file")],
)
def test_wheels_of_a_folder_without_any_are_refused(
    tmp_path: Path, files: tuple[str, ...] | None, words: str
) -> None:
    """Also where nothing has to be built."""
    if files is not None:
        (tmp_path / "wheels").mkdir()
        for name in files:
            (tmp_path / "wheels" / name).touch()
    own = f"environments.proxy.venv_path={sys.prefix}"
    done = unprivileged("envs", "sync", "proxy", "--wheels", tmp_path / "wheels", "--set", own)
    assert done.returncode == 1 and f"--wheels {tmp_path / 'wheels'}: {words}" in done.stderr, done
