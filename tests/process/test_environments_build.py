"""Environments built for real, by uv, from a local package and without any network."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.waiting import PATIENCE_S

from liverl.environments import BuildError, ensure, lock, resolve
from liverl.environments.write_lock import write_lock
from liverl.plan.spec import EnvironmentSpec, InstallStep
from liverl_tui.cli.envs import envs_command
from liverl_tui.text.errors import CliError

SAID: list[tuple[str, float | None]] = []


def note(text: str, share: float | None) -> None:
    SAID.append((text, share))


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels as the only index."""
    SAID.clear()
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    make_wheel(wheels, "tiny", "1.0", "VALUE = 1\n")
    return wheels


def make_wheel(folder: Path, name: str, version: str, source: str) -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-cli = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


def make_slow_sdist(folder: Path, marker: Path) -> None:
    """A source package whose build writes its pid and then waits; its backend is part of it."""
    backend = (
        "import os, subprocess, sys, time\n"
        "def get_requires_for_build_wheel(config_settings=None): return []\n"
        "def build_wheel(directory, config_settings=None, metadata_directory=None):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"    with open({str(marker)!r} + '.draft', 'w') as f: f.write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"    os.rename({str(marker)!r} + '.draft', {str(marker)!r})\n"
        "    time.sleep(600)\n"
    )
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "slow_backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slow"\nversion = "1.0"\n',
        "slow_backend.py": backend,
        "PKG-INFO": "Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n",
    }
    with tarfile.open(folder / "slow-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"slow-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


async def run(*argv: str | Path) -> bytes:
    process = await asyncio.create_subprocess_exec(*map(str, argv), stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output


def spec(*requirements: str, name: str = "tiny-env") -> EnvironmentSpec:
    return EnvironmentSpec(name=name, requirements=requirements)


async def until(condition: Callable[[], object], deadline: float = PATIENCE_S) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "not in time"
        await asyncio.sleep(0.02)


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in (cache / "envs").iterdir() if path.name.startswith(".build-")]


async def test_it_is_built_once_and_then_used_without_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    python = await ensure(spec("tiny==1.0"), cache, note)
    assert await run(python, "-c", "import tiny; print(tiny.VALUE)") == b"1\n"
    texts = [text for text, _ in SAID]
    assert "resolved 1 packages" in texts and "compiled 1 files" in texts
    assert leftovers(cache) == []
    marker = json.loads((python.parents[1] / "liverl-environment.json").read_text())
    assert marker["requirements"] == ["tiny==1.0"]

    SAID.clear()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("liverl.environments.build.find_uv", None)
    assert await ensure(spec("Tiny == 1.0"), cache, note) == python
    assert SAID == []


async def test_its_scripts_work_where_it_was_published(tmp_path: Path, offline: Path) -> None:
    make_wheel(offline, "spoken", "1.0", "def main():\n    print('spoken')\n")
    python = await ensure(spec("spoken"), tmp_path / "cache", note)
    assert await run(python.parent / "spoken-cli") == b"spoken\n"


async def test_two_builders_build_once(tmp_path: Path) -> None:
    """Two processes, because a lock between two tasks of one process proves nothing."""
    code = (
        "import asyncio, json, sys\nfrom pathlib import Path\n"
        "from liverl.environments import ensure\nfrom liverl.plan.spec import EnvironmentSpec\n"
        "said = []\n"
        "spec = EnvironmentSpec(name='tiny-env', requirements=('tiny',))\n"
        "python = asyncio.run(ensure(spec, Path(sys.argv[1]), lambda text, share: said.append(text)))\n"
        "print(json.dumps([str(python), said]))\n"
    )
    import liverl

    env = {**os.environ, "PYTHONPATH": str(Path(liverl.__file__).parents[1])}
    builders = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(tmp_path / "cache"), env=env, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    answers = [json.loads((await builder.communicate())[0]) for builder in builders]
    assert answers[0][0] == answers[1][0]
    built = [sum(text.startswith("installed") for text in said) for _, said in answers]
    assert sorted(built) == [0, 1]


async def test_the_second_builder_says_whom_it_waits_for(tmp_path: Path, offline: Path) -> None:
    marker = tmp_path / "building"
    make_slow_sdist(offline, marker)
    first = asyncio.create_task(ensure(spec("slow"), tmp_path / "cache", note))
    await until(marker.exists)
    said: list[str] = []
    second = asyncio.create_task(
        ensure(spec("slow"), tmp_path / "cache", lambda text, share: said.append(text))
    )
    await until(lambda: said)
    assert f"waiting for process {os.getpid()} on " in said[0]
    for task in (second, first):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancelled_build_leaves_no_process_and_no_folder(tmp_path: Path, offline: Path) -> None:
    marker = tmp_path / "building"
    make_slow_sdist(offline, marker)
    task = asyncio.create_task(ensure(spec("slow"), tmp_path / "cache", note))
    await until(marker.exists)
    pids = [int(pid) for pid in marker.read_text().split()]
    assert all(psutil.pid_exists(pid) for pid in pids)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not any(psutil.pid_exists(pid) and _alive(pid) for pid in pids), 60)
    assert leftovers(tmp_path / "cache") == []
    assert not resolve(spec("slow"), tmp_path / "cache").published


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def test_an_unknown_package_is_said_clearly_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no versions that satisfy the requirements") as caught:
        await ensure(spec("no-such-package-anywhere"), tmp_path / "cache", note)
    assert any("no-such-package-anywhere" in line for line in caught.value.output)
    assert leftovers(tmp_path / "cache") == []


async def test_an_index_that_cannot_be_reached_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://user:hunter2@127.0.0.1:9/private-name/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(BuildError, match="cannot reach the package index") as caught:
        await ensure(spec("absent"), tmp_path / "cache", note)
    everything = str(caught.value) + repr(SAID)
    assert "hunter2" not in everything and "private-name" not in everything


async def test_a_cache_that_cannot_be_written_is_said_clearly(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(BuildError, match="LIVERL_CACHE_DIR"):
        await ensure(spec("tiny"), tmp_path / "cache", note)


async def test_an_environment_whose_interpreter_is_gone_is_built_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    python = await ensure(spec("tiny"), cache, note)
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    assert await ensure(spec("tiny"), cache, note) == python
    await run(python, "-c", "import tiny")
    assert leftovers(cache) == []


async def test_what_a_killed_builder_left_is_cleared(tmp_path: Path) -> None:
    plan = resolve(spec("tiny"), tmp_path / "cache")
    assert plan.folder is not None
    stale = plan.folder.with_name(f".build-{plan.folder.name}-dead")
    (stale / "lib").mkdir(parents=True)
    await ensure(spec("tiny"), tmp_path / "cache", note)
    assert not stale.exists()


async def test_an_existing_environment_is_checked(tmp_path: Path) -> None:
    def existing(path: Path) -> EnvironmentSpec:
        return EnvironmentSpec(name="vllm", venv_path=str(path))

    assert await ensure(existing(Path(sys.executable)), tmp_path, note) == Path(sys.executable)
    with pytest.raises(BuildError, match="does not exist"):
        await ensure(existing(tmp_path / "absent"), tmp_path, note)
    broken = tmp_path / "broken" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho a library is missing >&2\nexit 1\n")
    with pytest.raises(BuildError, match="cannot start"):
        await ensure(existing(tmp_path / "broken"), tmp_path, note)
    broken.chmod(0o755)
    with pytest.raises(BuildError, match="a library is missing"):
        await ensure(existing(tmp_path / "broken"), tmp_path, note)


def bundled_pip(folder: Path) -> None:
    """pip itself, as Python brings it: a new environment for pip gets it from the index."""
    import ensurepip

    bundled = Path(ensurepip.__file__).parent / "_bundled"
    for wheel in bundled.glob("pip-*.whl"):
        (folder / wheel.name).write_bytes(wheel.read_bytes())


def run_python(python: Path, code: str) -> str:
    import subprocess

    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


async def test_what_comes_first_comes_by_pip_and_stays(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other step's installer would choose another build."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    bundled_pip(offline)
    make_wheel(offline, "core", "1.0+cpu", "BUILD = 'cpu'\n")
    make_wheel(offline, "core", "2.0", "BUILD = 'cuda'\n")
    first = InstallStep(("core==1.0+cpu",), "pip")
    spec = EnvironmentSpec("steps", ("tiny", "core"), find_links=(str(offline),), first=first)
    python = await ensure(spec, tmp_path / "cache", note)
    assert run_python(python, "import core, tiny; print(core.BUILD, tiny.VALUE)") == "cpu 1"
    marker = json.loads((python.parents[1] / "liverl-environment.json").read_text())
    assert marker["requirements"] == ["core==1.0+cpu", "core", "tiny"]


async def test_pip_alone_and_links_of_the_environment(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled_pip(offline)
    own = tmp_path / "own"
    own.mkdir()
    make_wheel(own, "mine", "1.0", "VALUE = 7\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    spec = EnvironmentSpec("links", ("mine",), installer="pip", find_links=(str(own),))
    python = await ensure(spec, tmp_path / "cache", note)
    assert run_python(python, "import mine; print(mine.VALUE)") == "7"


async def test_pip_that_finds_nothing_says_so(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled_pip(offline)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    spec = EnvironmentSpec("nothing", ("absent-package",), installer="pip")
    with pytest.raises(BuildError, match="no versions that satisfy the requirements") as caught:
        await ensure(spec, tmp_path / "cache", note)
    assert "  pip: " in str(caught.value)
    assert not list((tmp_path / "cache" / "envs").glob("nothing-*"))


async def test_no_password_of_an_index_is_said_or_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.setenv("INDEX_TOKEN", "hunter2")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    index = "http://user:${INDEX_TOKEN}@127.0.0.1:9/private-name/simple"
    spec = EnvironmentSpec("secret", ("absent-package",), index_url=index)
    with pytest.raises(BuildError) as caught:
        await ensure(spec, tmp_path / "cache", note)
    left = [p.read_text(errors="replace") for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    said = "\n".join([str(caught.value), *(text for text, _ in SAID), *left])
    assert "hunter2" not in said
    assert "private-name" not in said


def lock_of(cache: Path, wheels: Path, *, index: str, wrong: bool = False) -> None:
    """A lock of `tiny`, and of `part`, which it does not ask for, as ``envs --upgrade`` writes it."""
    lines = [
        lock.FORMAT,
        "# requirements: tiny",
        f"# python: 3.{sys.version_info.minor}",
        f"# machine: {os.uname().machine}",
        "# glibc: 2.17",
        f"# index: {index}",
    ]
    for name in ("part", "tiny"):
        found = hashlib.sha256((wheels / f"{name}-1.0-py3-none-any.whl").read_bytes()).hexdigest()
        lines += [f"{name}==1.0 \\", f"    --hash=sha256:{'0' * 64 if wrong else found}"]
    path = lock.own_path("tiny", cache)
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("installer", ["uv", "pip"])
async def test_a_lock_decides_and_its_hashes_are_checked(
    offline: Path, tmp_path: Path, installer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has newer ones; a file with other bytes is not installed."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(offline))
    bundled_pip(offline)
    make_wheel(offline, "part", "1.0", "VALUE = 1\n")
    make_wheel(offline, "tiny", "2.0", "VALUE = 2\n")
    spec = EnvironmentSpec("tiny", ("tiny",), installer=installer)
    lock_of(tmp_path / "bad", offline, index="configured", wrong=True)
    with pytest.raises(BuildError, match="does not have the hash that the lock names"):
        await ensure(spec, tmp_path / "bad", note)
    assert not list((tmp_path / "bad" / "envs").glob("tiny-*"))
    lock_of(tmp_path / "good", offline, index="configured")
    python = await ensure(spec, tmp_path / "good", note)
    assert run_python(python, "import part, tiny; print(tiny.VALUE)") == "1"
    assert "2 packages pinned by its lock, with hashes" in [text for text, _ in SAID]
    assert json.loads((python.parents[1] / "liverl-environment.json").read_text())["lock"] == "hashes"


async def test_with_another_index_the_versions_of_a_lock_hold_without_hashes(
    offline: Path, tmp_path: Path
) -> None:
    """It was made from the public index; the folder has builds of its own."""
    make_wheel(offline, "part", "1.0", "VALUE = 1\n")
    make_wheel(offline, "tiny", "2.0", "VALUE = 2\n")
    lock_of(tmp_path / "cache", offline, index="default", wrong=True)
    python = await ensure(EnvironmentSpec("tiny", ("tiny",)), tmp_path / "cache", note)
    assert run_python(python, "import tiny; print(tiny.VALUE)") == "1"
    (told,) = [text for text, _ in SAID if "lock" in text]
    assert "without hashes: another package index is configured" in told
    off = await ensure(EnvironmentSpec("tiny", ("tiny",), lock=False), tmp_path / "cache", note)
    assert run_python(off, "import tiny; print(tiny.VALUE)") == "2"
    assert any(text.endswith("environments.tiny.lock is false") for text, _ in SAID)


async def test_upgrade_writes_a_lock_that_the_next_build_uses(offline: Path, tmp_path: Path) -> None:
    make_wheel(offline, "tiny", "2.0", "VALUE = 2\n")
    path = lock.own_path("tiny", tmp_path / "cache")
    assert await write_lock(("Tiny",), path, note) == 1
    written = lock.read(path)
    assert written.requirements == ("tiny",) and written.pins == ("tiny==2.0",)
    assert written.index == "configured" and str(tmp_path) not in written.text
    make_wheel(offline, "tiny", "3.0", "VALUE = 3\n")
    python = await ensure(EnvironmentSpec("tiny", ("tiny",)), tmp_path / "cache", note)
    assert run_python(python, "import tiny; print(tiny.VALUE)") == "2"
    before = path.read_bytes()
    with pytest.raises(BuildError):
        await write_lock(("absent-package",), path, note)
    assert path.read_bytes() == before


def test_the_command_says_what_a_new_lock_changes(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path / "cache"))
    words = ["tiny", "--set", "environments.tiny={requirements: [tiny]}"]
    upgrade = [*words, "--upgrade"]
    assert envs_command.main(upgrade, standalone_mode=False) == 0
    path = lock.own_path("tiny", tmp_path / "cache")
    assert capsys.readouterr().out == f"tiny: 1 package with hashes in {path}\n"
    make_wheel(offline, "tiny", "2.0", "VALUE = 2\n")
    assert envs_command.main(upgrade, standalone_mode=False) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0] == "tiny: tiny 1.0 -> 2.0"
    assert "tiny: resolving tiny for all platforms" in told.err
    assert envs_command.main(words, standalone_mode=False) == 0
    assert "1 package pinned by a lock, with hashes (written by envs --upgrade)" in capsys.readouterr().out
    for wrong, why in (
        (["tiny", "--upgrade", "--json"], "--upgrade cannot be combined"),
        (["--upgrade", "--output", str(tmp_path / "x")], "--output requires"),
        (["tinny", *words[1:]], "did you mean tiny?"),
        (
            ["tiny", "--upgrade", "--set", "environments.tiny={venv_path: /opt/v}"],
            "not installed by liverl-tui",
        ),
    ):
        with pytest.raises(CliError, match=why):
            envs_command.main(wrong, standalone_mode=False)
