"""A run directory by its descriptor: what is said of it after it was renamed, removed, or closed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from liverl.rundir.layout import OpenDirectory


def test_a_directory_that_was_renamed_is_found_and_not_removed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    directory = OpenDirectory(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "other")
    assert (directory.path, directory.removed) == (tmp_path / "other", False)
    directory.close()


def test_a_directory_that_was_removed_is_removed_also_if_another_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    directory = OpenDirectory(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").mkdir()
    assert directory.removed and directory.path == tmp_path / "run"
    directory.close()


def pipe(_folder: Path) -> list[int]:
    return list(os.pipe())


def status(_folder: Path) -> list[int]:
    return [os.open("/proc/self/stat", os.O_RDONLY)]


def removed_file(folder: Path) -> list[int]:
    fd = os.open(folder / "file", os.O_CREAT)
    (folder / "file").unlink()
    return [fd]


def other_run(folder: Path) -> list[int]:
    (folder / "other").mkdir()
    return [os.open(folder / "other", os.O_PATH)]


@pytest.mark.parametrize("next_owner", [pipe, status, removed_file, other_run])
def test_nothing_is_said_of_whoever_gets_the_number_of_a_closed_directory(
    tmp_path: Path, next_owner: Callable[[Path], list[int]]
) -> None:
    (tmp_path / "run").mkdir()
    directory = OpenDirectory(tmp_path / "run")
    directory.close()
    got = next_owner(tmp_path)
    try:
        assert directory._fd in got, "the number was not given away again, so nothing is tested"
        assert directory.path == tmp_path / "run"
        with pytest.raises(OSError, match="Bad file descriptor"):
            _ = directory.removed
    finally:
        for fd in got:
            os.close(fd)
