"""Removing directories in which a sandbox has written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liverl.util.checked_path import LinkRefusedError
from liverl.util.remove_tree import remove_file, remove_tree

DEEP = 1200  # deeper than Python's calls go: ``sys.getrecursionlimit()`` is 1000


def nested(top: Path, depth: int) -> None:
    """Directories in each other, whose path is longer than a call of the system takes."""
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for number in range(depth):
        os.mkdir("d" * 20, dir_fd=at)
        if number % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        new = os.open("d" * 20, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = new
    os.close(at)


def test_directories_are_removed_at_any_depth(tmp_path: Path) -> None:
    nested(tmp_path / "top", DEEP)
    before = len(os.listdir("/proc/self/fd"))
    assert remove_tree(tmp_path / "top") == ()
    assert os.listdir(tmp_path) == [] and len(os.listdir("/proc/self/fd")) == before


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "inner").mkdir(parents=True)
    (precious / "file").write_text("precious")
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    (top / "a" / "folder").symlink_to(precious)
    (top / "file").symlink_to(precious / "file")
    (top / "nowhere").symlink_to("gone")
    os.mkfifo(top / "fifo")
    (tmp_path / "way").symlink_to(precious)
    assert remove_tree(top) == remove_tree(tmp_path / "way") == ()
    assert sorted(os.listdir(tmp_path)) == ["precious"]
    assert sorted(os.listdir(precious)) == ["file", "inner"]


def test_directories_that_nobody_may_change_are_removed(tmp_path: Path) -> None:
    for mode in (0o000, 0o500, 0o300):
        (tmp_path / "top" / f"{mode:o}" / "inner").mkdir(parents=True)
        (tmp_path / "top" / f"{mode:o}").chmod(mode)
    assert remove_tree(tmp_path / "top") == () and os.listdir(tmp_path) == []


def test_many_directories_beside_each_other(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / "top" / str(number) / "inner").mkdir(parents=True)
    assert remove_tree(tmp_path / "top") == () and os.listdir(tmp_path) == []


def test_what_is_not_there_is_removed(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "gone" / "too") == remove_tree(tmp_path / "gone") == ()
    remove_file(tmp_path / "gone")
    remove_file(tmp_path / "gone" / "too")


def test_a_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert remove_tree(tmp_path / "file") == () and os.listdir(tmp_path) == []
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        remove_file(tmp_path / "folder")


def test_nothing_is_removed_through_a_link_inside_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "precious" / "work").mkdir(parents=True)
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "task").symlink_to(tmp_path / "precious")
    (error,) = remove_tree(tmp_path / "trials" / "task" / "work", inside=tmp_path / "trials")
    assert isinstance(error, LinkRefusedError)
    with pytest.raises(LinkRefusedError):
        remove_file(tmp_path / "trials" / "task" / "file", inside=tmp_path / "trials")
    assert sorted(os.listdir(tmp_path / "precious")) == ["file", "work"]


def test_what_cannot_be_removed_is_named_and_the_rest_is_gone(tmp_path: Path) -> None:
    """A file system is mounted there, as a container may have left it; simulated."""
    for name in ("a", "b", "z"):
        (tmp_path / "top" / name).mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        real = os.rmdir

        def busy(name: str, *, dir_fd: int | None = None) -> None:
            if name == "b":
                raise OSError(16, "Device or resource busy")
            real(name, dir_fd=dir_fd)

        patch.setattr(os, "rmdir", busy)
        errors = remove_tree(tmp_path / "top")
    assert [str(error.filename) for error in errors] == [str(tmp_path / "top" / "b")]
    assert os.listdir(tmp_path / "top") == ["b"]


def test_a_directory_that_becomes_a_link_while_it_is_removed_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process swaps it between two calls; its moment is simulated."""
    (tmp_path / "top" / "a").mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    real = os.unlink

    def swapping(name: str, *, dir_fd: int | None = None) -> None:
        try:
            real(name, dir_fd=dir_fd)
        finally:
            if name == "a":
                (tmp_path / "top" / "a").rmdir()
                (tmp_path / "top" / "a").symlink_to(tmp_path / "precious")

    monkeypatch.setattr(os, "unlink", swapping)
    assert remove_tree(tmp_path / "top")
    assert os.listdir(tmp_path / "precious") == ["file"]
