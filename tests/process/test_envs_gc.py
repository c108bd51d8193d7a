"""``envs gc`` and ``envs sync --wheels``, with real runs, environments and wheels."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.venvs import make_venv
from process.test_environments_build import lock_of, make_wheel

from liverl.environments import BuildError, local_copy, lock, resolve
from liverl.environments.local_copy import RECORD, family, localize
from liverl.environments.resolve import MARKER
from liverl.plan.spec import EnvironmentSpec
from liverl.util.plural import quantity
from liverl_tui.cli.envs import envs_command
from liverl_tui.text.errors import CliError

OLD = time.time() - 40 * 86400
BUILT = EnvironmentSpec("tool", ("tiny",))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(local_copy, "default_base", lambda: tmp_path / "local")
    return tmp_path / "cache"


@pytest.fixture
def runs(tmp_path: Path, cache: Path) -> Iterator[Callable[..., ToyRun]]:
    made: list[ToyRun] = []

    def run(*environments: EnvironmentSpec) -> ToyRun:
        root = tmp_path / "state" / "liverl" / "runs"
        made.append(make_run(root, [toy("a", "sleep")], environments=environments, name=f"r{len(made)}"))
        made[-1].start()
        for name in ("a", *(f"env:{one.name}" for one in environments)):
            made[-1].until(name, "ready")
        return made[-1]

    yield run
    for one in made:
        one.end()


def built(cache: Path, spec: EnvironmentSpec = BUILT, used: float = OLD) -> Path:
    """A built environment that was used at that time."""
    folder = resolve(spec, cache).folder
    assert folder is not None
    make_venv(folder)
    (folder / MARKER).write_text("{}")
    os.utime(folder / MARKER, (used, used))
    return folder


def copied(source: Path, base: Path, used: float = OLD) -> Path:
    made = asyncio.run(localize("x", source / "bin" / "python", base, lambda *_: None))
    os.utime(made.folder / RECORD, (used, used))
    return made.folder


def gc(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    code = envs_command.main(["gc", "--json", *words], standalone_mode=False)
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (1 if told["failed"] else 0)
    return told


def why(told: dict[str, Any], path: Path) -> str:
    return next((one["why"] for one in told["kept"] if one["path"] == str(path)), "")


def test_only_what_nobody_has_used_for_long_goes(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = make_venv(tmp_path / "mine")
    old, new = built(cache), built(cache, EnvironmentSpec("tool", ("tiny==2",)), time.time() - 29 * 86400)
    copy = copied(mine, tmp_path / "local")
    (mine / "lib" / "more").write_text("")
    fresh = copied(mine, tmp_path / "local", time.time())
    draft = cache / "envs" / f".build-{old.name}-abc"
    draft.mkdir()
    told = gc(capsys)
    assert not told["removed"]
    assert {(one["path"], one["kind"]) for one in told["unused"]} == {
        (str(old), "environment"),
        (str(copy), "copy"),
        (str(draft), "unfinished"),
    }
    assert "less than 30 days" in why(told, new) and "less than 30 days" in why(told, fresh)
    assert old.exists() and copy.exists() and draft.exists()
    told = gc(capsys, "--yes")
    assert told["removed"] and told["failed"] == [] and told["bytes"] > 1000
    assert not old.exists() and not copy.exists() and not draft.exists()
    assert new.exists() and fresh.exists() and (mine / "bin" / "python").exists()
    assert envs_command.main(["gc", "--yes"], standalone_mode=False) == 0
    assert capsys.readouterr().out.endswith("nothing to remove\n")


def test_what_the_plan_of_a_live_run_names_stays(
    cache: Path, tmp_path: Path, runs: Callable[..., ToyRun], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = make_venv(tmp_path / "mine")
    folder = built(cache)
    copy = copied(mine, tmp_path / "local")
    elsewhere = EnvironmentSpec("mine", venv_path=str(mine), local_copy=str(tmp_path / "local"))
    run = runs(BUILT, elsewhere)
    for path, name in ((folder, MARKER), (copy, RECORD)):
        os.utime(path / name, (OLD, OLD))
    told = gc(capsys, "--yes")
    assert told["unused"] == []
    for path in (folder, copy):
        assert why(told, path) == "the plan of run tests/r0 names it, and that run has not ended"
    (run.run_dir / "plan.json").rename(run.run_dir / "gone.json")
    other = built(cache, EnvironmentSpec("other", ("tiny",)))
    told = gc(capsys, "--yes")
    assert told["unused"] == [] and other.exists()
    assert "its plan cannot be read" in why(told, other)
    (run.run_dir / "gone.json").rename(run.run_dir / "plan.json")
    run.end()
    told = gc(capsys, "--yes")
    assert {one["path"] for one in told["unused"]} == {str(folder), str(copy), str(other)}
    assert not folder.exists() and not copy.exists()


def test_a_start_notes_that_an_environment_is_used(
    cache: Path, tmp_path: Path, runs: Callable[..., ToyRun], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = make_venv(tmp_path / "mine")
    folder, copy = built(cache), copied(mine, tmp_path / "local")
    runs(BUILT, EnvironmentSpec("mine", venv_path=str(mine), local_copy=str(tmp_path / "local"))).end()
    told = gc(capsys, "--yes")
    assert told["unused"] == []
    assert "less than 30 days" in why(told, folder) and "less than 30 days" in why(told, copy)


def test_what_a_process_uses_or_makes_stays(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Launch scripts have no plan that names their environment."""
    folder = built(cache)
    process = subprocess.Popen([folder / "bin" / "python", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        told = gc(capsys, "--yes")
        assert folder.exists() and why(told, folder).startswith(f"pid {process.pid} (")
    finally:
        process.communicate(b"\n")
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = gc(capsys, "--yes")
    assert (
        told["failed"] == [{"path": str(folder), "why": "another process is making it"}] and folder.exists()
    )
    assert gc(capsys, "--yes")["failed"] == [] and not folder.exists()


# --- without a network ----------------------------------------------------------------------------------


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")  # nothing listens on port 9
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


def sync(wheels: Path) -> int:
    words = ["sync", "tiny", "--wheels", str(wheels), "--set", "environments.tiny={requirements: [tiny]}"]
    code: int = envs_command.main(words, standalone_mode=False)
    return code


def test_an_environment_is_built_from_a_folder_of_wheels(
    wheels: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wheel(wheels, "tiny", "1.0", "VALUE = 1\n")
    make_wheel(wheels, "part", "1.0", "VALUE = 1\n")
    lock_of(cache, wheels, index="configured")
    pins = lock.own_path("tiny", cache)
    pins.write_text(pins.read_text().replace("part==1.0", "part==1.0 ; sys_platform == 'linux'"))
    (wheels / "part-1.0-py3-none-any.whl").rename(wheels / "part-1.0-cp36-cp36m-win32.whl")
    with pytest.raises(CliError) as missing:
        sync(wheels)
    assert str(missing.value).splitlines()[1:] == ["  part==1.0"]
    assert f"1 package of environment 'tiny' is missing in {wheels}" in str(missing.value)
    (wheels / "tiny-1.0-py3-none-any.whl").rename(tmp_path / "tiny-1.0-py3-none-any.whl")
    with pytest.raises(CliError) as missing:
        sync(wheels)
    assert str(missing.value).splitlines()[1:] == ["  part==1.0", "  tiny==1.0"]
    assert quantity(2, "package") in str(missing.value)
    assert not list((cache / "envs").glob("tiny-*"))
    (tmp_path / "tiny-1.0-py3-none-any.whl").rename(wheels / "tiny-1.0-py3-none-any.whl")
    (wheels / "part-1.0-cp36-cp36m-win32.whl").rename(wheels / "part-1.0-py3-none-any.whl")
    assert sync(wheels) == 0
    python = resolve(EnvironmentSpec("tiny", ("tiny",)), cache).python
    assert capsys.readouterr().out == f"tiny: {python}\n"
    done = subprocess.run([python, "-c", "import part, tiny"], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder.rmdir(), "No such file or directory"),
        (lambda folder: None, "the folder is empty"),
        (lambda folder: (folder / "notes.txt").write_text(""), "it has 1 other file, such as notes.txt"),
        (lambda folder: (folder.rmdir(), folder.write_text("")), "Not a directory"),
    ],
)
def test_a_folder_without_wheels_is_told_in_words(
    wheels: Path, make: Callable[[Path], object], words: str
) -> None:
    make(wheels)
    with pytest.raises(CliError, match="--wheels") as refused:
        sync(wheels)
    assert words in str(refused.value)


def test_without_a_lock_the_first_missing_package_is_named(wheels: Path, cache: Path) -> None:
    make_wheel(wheels, "part", "1.0", "VALUE = 1\n")
    with pytest.raises(CliError, match="tiny was not found") as refused:
        sync(wheels)
    assert BuildError.__name__ not in str(refused.value)


def test_the_folder_of_copies_is_named_after_the_environment(tmp_path: Path) -> None:
    assert family(tmp_path / "repo" / ".venv", Path("/l")).name.startswith("repo-")
    assert family(tmp_path / "verl env", Path("/l")).name.startswith("verl-env-")
