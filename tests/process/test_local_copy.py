"""Copies of environments on a local disk, with real environments and interpreters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.venvs import make_venv, says, site

from liverl.environments import BuildError, copy_files, ensure, local_copy
from liverl.environments.local_copy import RECORD, Made, copies, family, localize, recorded
from liverl.plan.spec import EnvironmentSpec
from liverl.util import file_systems
from liverl_tui.cli.envs import envs_command
from liverl_tui.text.errors import CliError

INSIDE = Path(__file__).with_name("local_copy_inside.py")
UNAVAILABLE = 77


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    return make_venv(tmp_path / "net" / "venv", tmp_path / "checkout")


def said(_text: str, _share: float | None) -> None:
    pass


def copied(venv: Path, base: Path) -> Made:
    return asyncio.run(localize("verl", venv / "bin" / "python", base, said))


def test_a_copy_works_without_its_source(venv: Path, tmp_path: Path) -> None:
    (venv / "pyvenv.cfg").write_text((venv / "pyvenv.cfg").read_text() + f"command = python -m venv {venv}\n")
    (venv / "bin" / "absolute").symlink_to(venv / "bin" / "heavy-cli")
    near = f"{venv}-other/bin/python {venv}/x\n"
    (venv / "bin" / "near").write_text(near)
    made = copied(venv, tmp_path / "local")
    assert made.new and made.proof.startswith("heavy-cli --help was run; mine was imported from ")
    venv.rename(venv.with_name("gone"))
    script = subprocess.run([made.folder / "bin" / "heavy-cli"], capture_output=True, text=True, check=True)
    assert script.stdout.strip() == str(made.folder)
    assert says(made.python, "import mine; print(mine.__file__)") == str(
        tmp_path / "checkout/mine/__init__.py"
    )
    assert str(venv) not in (made.folder / "pyvenv.cfg").read_text()
    assert str(made.folder) in (made.folder / "bin" / "activate").read_text()
    assert os.readlink(made.folder / "bin" / "absolute") == str(made.folder / "bin" / "heavy-cli")
    assert (made.folder / "bin" / "near").read_text() == near.replace(f" {venv}/", f" {made.folder}/")


def test_an_editable_package_inside_the_environment_goes_with_it(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    make_venv(venv, venv / "src" / "mine")
    made = copied(venv, tmp_path / "local")
    place = says(made.python, "import mine; print(mine.__file__)")
    assert place == str(made.folder / "src" / "mine" / "mine" / "__init__.py")


def test_a_second_copy_reads_only_what_has_changed(venv: Path, tmp_path: Path) -> None:
    first = copied(venv, tmp_path / "local")
    again = copied(venv, tmp_path / "local")
    assert (again.folder, again.new, again.read_files) == (first.folder, False, 0)
    (site(venv) / "heavy" / "part1.py").write_text("VALUE = 'changed'\n")
    (site(venv) / "heavy" / "part2.py").unlink()
    (site(venv) / "heavy" / "__init__.py").write_text("from heavy import part1\n")
    always = sum(copy_files.holds_paths(str(p.relative_to(venv))) for p in venv.rglob("*") if is_file(p))
    second = copied(venv, tmp_path / "local")
    assert second.new and second.folder != first.folder and second.read_files == always + 2
    assert says(second.python, "from heavy import part1; print(part1.VALUE)") == "changed"
    assert not (site(second.folder) / "heavy" / "part2.py").exists()
    assert says(first.python, "from heavy import part2; print(part2.VALUE)") == "2"  # a run may still use it
    inode = (site(second.folder) / "heavy" / "part3.py").stat().st_ino
    assert inode == (site(first.folder) / "heavy" / "part3.py").stat().st_ino


def is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def test_compiled_files_of_the_source_are_no_change(venv: Path, tmp_path: Path) -> None:
    first = copied(venv, tmp_path / "local")
    says(venv / "bin" / "python", "import sys; sys.dont_write_bytecode = False; import heavy")
    assert list(site(venv).rglob("*.pyc"))
    assert not copied(venv, tmp_path / "local").new
    part = Path("heavy", "part1.py")  # Python takes a compiled file by the time and size of its source
    assert (site(first.folder) / part).stat().st_mtime_ns == (site(venv) / part).stat().st_mtime_ns
    assert says(first.python, "import heavy; print(heavy.part1.VALUE)") == "1"


@pytest.mark.parametrize("damage", ["empty", "removed", "record"])
def test_a_damaged_copy_is_not_used_again(venv: Path, tmp_path: Path, damage: str) -> None:
    first = copied(venv, tmp_path / "local")
    victim = site(first.folder) / "heavy" / "part1.py"
    if damage == "empty":  # as a crash of the host leaves it
        victim.write_text("")
    elif damage == "removed":
        victim.unlink()
    else:
        (first.folder / RECORD).write_text('{"source": "')
    second = copied(venv, tmp_path / "local")
    assert second.new and says(second.python, "from heavy import part1; print(part1.VALUE)") == "1"
    assert (second.folder != first.folder) == (damage != "record")
    assert copied(venv, tmp_path / "local").folder == second.folder


def test_a_killed_copy_is_not_used_and_goes_with_the_next(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed where all files stand in their place and only the record is missing, and while it copies."""
    for name in ("prove", "_require_room"):
        program = (
            "import asyncio, os, pathlib\n"
            "from liverl.environments import local_copy\n"
            f"local_copy.{name} = lambda *a: (print('there', flush=True), __import__('time').sleep(600))\n"
            f"asyncio.run(local_copy.localize('verl', pathlib.Path({str(venv)!r}, 'bin', 'python'),\n"
            f"    pathlib.Path({str(tmp_path / 'local')!r}), lambda *a: None))\n"
        )
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None and process.stdout.readline() == "there\n"
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        folder = family(venv, tmp_path / "local")
        assert [p for p in folder.iterdir() if p.is_dir()] and not list(copies(folder))
    made = copied(venv, tmp_path / "local")
    assert made.new and [p.name for p in folder.iterdir() if p.is_dir()] == [made.folder.name]


def test_a_cancelled_copy_leaves_nothing(venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    async def cancelled() -> None:
        def at_first(text: str, _share: float | None) -> None:
            if text.startswith("copying"):
                began.set()

        job = asyncio.ensure_future(localize("verl", venv / "bin/python", tmp_path / "local", at_first))
        async with asyncio.timeout(60):
            await began.wait()
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job

    asyncio.run(cancelled())
    assert [p for p in family(venv, tmp_path / "local").iterdir() if p.is_dir()] == []


def test_two_at_once_copy_once(venv: Path, tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "liverl_tui",
        "envs",
        "localize",
        str(venv),
        "--to",
        str(tmp_path / "local"),
        "--json",
    ]
    both = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = [json.loads(process.communicate(timeout=120)[0])[0] for process in both]
    assert sorted(one["new"] for one in told) == [False, True]
    assert told[0]["folder"] == told[1]["folder"]


@pytest.mark.parametrize(
    ("free", "inodes", "words"),
    [(1 << 20, 10**6, "GB free, and the copy needs"), (1 << 40, 3, "room for 3 more files (inodes)")],
)
def test_a_disk_without_room_is_said_before_anything_is_copied(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, inodes: int, words: str
) -> None:
    """The lowest seam is faked: what the file system says of its room."""
    real = os.statvfs(tmp_path)
    fields = list(real)
    fields[1], fields[4], fields[5], fields[7] = 1, free, 10**6, inodes  # frsize, bavail, files, favail
    monkeypatch.setattr(local_copy.os, "statvfs", lambda _: os.statvfs_result(fields))
    with pytest.raises(BuildError, match=r"environments\.verl\.local_copy: DIR") as refused:
        copied(venv, tmp_path / "local")
    assert words in str(refused.value)
    assert [p for p in family(venv, tmp_path / "local").iterdir() if p.is_dir()] == []


def test_a_file_that_is_written_meanwhile_fails_the_copy(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = local_copy._require_room

    def late(*arguments: Any) -> None:
        (site(venv) / "heavy" / "part1.py").write_text("VALUE = 'half'\n")
        real(*arguments)

    monkeypatch.setattr(local_copy, "_require_room", late)
    with pytest.raises(
        BuildError, match=r"part1\.py was written while it was copied: wait until nobody installs"
    ):
        copied(venv, tmp_path / "local")


def test_what_cannot_be_copied_is_told_in_words(tmp_path: Path, venv: Path) -> None:
    plain = tmp_path / "plain"
    (plain / "bin").mkdir(parents=True)
    with pytest.raises(BuildError, match=r"no pyvenv\.cfg"):
        copied(plain, tmp_path / "local")
    (plain / "conda-meta").mkdir()
    with pytest.raises(BuildError, match="conda-pack"):
        copied(plain, tmp_path / "local")
    with pytest.raises(BuildError, match="is in the environment"):
        copied(venv, venv / "local")
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match=r"cannot be copied to .*: Not a directory"):
        copied(venv, tmp_path / "file")


def test_a_copy_whose_interpreter_or_origin_differs_is_refused(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        copy_files.Copying, "_moved", lambda self, data: data.replace(b"checkout", b"chequout")
    )
    with pytest.raises(BuildError, match="mine would come from nowhere, and came from"):
        copied(venv, tmp_path / "local")
    assert not list(copies(family(venv, tmp_path / "local")))


def on(kind: str) -> Any:
    return lambda path, mounts=None: file_systems.FileSystem(kind, "/")


@pytest.mark.parametrize(
    ("value", "kind", "copies_it"),
    [
        ("false", "nfs4", False),
        ("true", "nfs4", True),
        ("true", "fuse.aliyun-alinas-efc", True),
        ("true", "ext4", False),
        ("DIR", "ext4", True),
    ],
)
def test_which_environments_a_run_copies(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, kind: str, copies_it: bool
) -> None:
    """The lowest seam is faked: which file system the environment is on."""
    source = on(kind)
    monkeypatch.setattr(
        local_copy, "file_system", lambda path: source(path) if Path(path) == venv else on("ext4")(path)
    )
    monkeypatch.setattr(local_copy, "default_base", lambda: tmp_path / "local")
    chosen = value.replace("DIR", str(tmp_path / "local"))
    spec = EnvironmentSpec("verl", venv_path=str(venv), local_copy=chosen)
    python = asyncio.run(ensure(spec, tmp_path / "cache", said))
    assert (python != venv / "bin" / "python") == copies_it
    assert python.is_relative_to(tmp_path / "local") == copies_it


def test_a_local_disk_that_is_none_is_refused(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_copy, "file_system", on("cpfs"))
    with pytest.raises(BuildError, match=r"is on a network, too \(cpfs, mounted at /\)"):
        copied(venv, tmp_path / "local")


def test_the_command_measures_an_import_before_and_after(
    venv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["localize", str(venv), "--to", str(tmp_path / "local"), "--import", "heavy"]
    assert envs_command.main([*argv, "--json"], standalone_mode=False) == 0
    told = json.loads(capsys.readouterr().out)[0]
    assert told["imported"] == "heavy" and told["seconds_before"] > 0 and told["seconds_after"] > 0
    assert recorded(Path(told["folder"])) is not None
    assert envs_command.main(argv, standalone_mode=False) == 0
    assert "nothing has changed" in capsys.readouterr().out
    assert envs_command.main(["show", str(venv)], standalone_mode=False) == 0
    shown = capsys.readouterr().out
    assert f"mine comes from {tmp_path / 'checkout/mine/__init__.py'}" in shown
    with pytest.raises(CliError, match="no virtual environment"):
        envs_command.main(["localize", str(tmp_path)], standalone_mode=False)


def test_from_a_slow_mount_imports_are_faster_in_the_copy(tmp_path: Path) -> None:
    """A FUSE file system whose every request takes long: the copy is made from it, and does not ask it again."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("FUSE needs root here")
    make_venv(tmp_path / "real" / "venv", tmp_path / "checkout", files=8)
    argv = [sys.executable, str(INSIDE), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=170, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip("FUSE cannot be mounted here")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
