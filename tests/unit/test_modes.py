"""What we create is not writable by others, whatever the umask and the default access control list above it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.acls import acl_of, others_with, set_acl

from liverl.config import load_config as loaded
from liverl.daemon.launch import create_run
from liverl.plan import make_plan
from liverl.proxy.keys import ensure_ray_token
from liverl.rundir import index
from liverl.util import modes, posix_acl


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o002, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "_callers", [])


def test_directories_are_made_with_all_their_parents(tmp_path: Path, umask: int) -> None:
    modes.make_directory(tmp_path / "a" / "b" / "c", 0o700)
    modes.make_directory(tmp_path / "a" / "b" / "c")  # exists, and keeps its mode
    assert [mode(tmp_path / p) for p in ("a", "a/b", "a/b/c")] == [0o755 & ~umask, 0o755 & ~umask, 0o700]


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(FileExistsError):
        modes.make_directory(tmp_path / "a")
    with pytest.raises(NotADirectoryError):
        modes.make_directory(tmp_path / "a" / "b")


@pytest.mark.usefixtures("fresh")
def test_the_callers_umask_is_remembered_and_never_loosened(umask: int) -> None:
    assert modes.callers_umask() is None
    modes.exclude_others()
    modes.exclude_others()
    assert modes.callers_umask() == umask
    assert os.umask(0) == umask | 0o022


def others_can_write(folder: Path) -> list[str]:
    found = [folder, *folder.rglob("*")]
    return [str(p) for p in found if not p.is_symlink() and p.stat().st_mode & 0o022]


def test_a_new_run_is_not_writable_by_others(tmp_path: Path, umask: int) -> None:
    config = loaded(env={})
    run_dir = tmp_path / "runs" / "p" / "n"
    create_run(config, make_plan(config, run_dir), run_dir)
    ensure_ray_token(run_dir)
    assert others_can_write(tmp_path / "runs") == []
    assert mode(run_dir) == 0o755 & ~umask
    assert mode(run_dir / "secrets") == 0o700
    assert {mode(p) for p in (run_dir / "secrets").iterdir()} == {0o600}


@pytest.mark.parametrize("others", [7, 5, 0])
def test_what_a_default_access_control_list_grants_below_a_new_run_is_no_write(
    tmp_path: Path, umask: int, others: int
) -> None:
    """Of a directory that only its owner can write. The umask has no effect below it."""
    root = tmp_path / "runs"
    root.mkdir(0o755)
    root.chmod(0o755)
    set_acl(root, acl_of(user=65533, others=others), posix_acl.DEFAULT)
    config = loaded(env={})
    run_dir = root / "p" / "n"
    create_run(config, make_plan(config, run_dir), run_dir)
    ensure_ray_token(run_dir)
    (run_dir / "attempt_001" / "logs").mkdir(parents=True)  # as services and libraries do, with all bits
    (run_dir / "attempt_001" / "made").write_text("")
    assert others_with(2, root) == []
    assert others_with(7, run_dir / "secrets") == []
    kept = posix_acl.read(run_dir / "attempt_001", posix_acl.DEFAULT)
    assert kept == acl_of(user=65533, mask=5, others=others & 5), "what it lets others read stays"


def test_the_index_is_private(tmp_path: Path, own_state: Path, umask: int) -> None:
    index.register(tmp_path)
    assert others_can_write(own_state / "liverl") == []
    assert {mode(p) for p in (own_state / "liverl" / "index").iterdir()} == {0o700}
