"""What a file or directory holds, counted as ``remove_tree`` would remove it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from liverl.util.checked_path import LinkRefusedError
from liverl.util.remove_tree import remove_tree
from liverl.util.tree_size import TreeSize, measure


def du(path: Path) -> int:
    """What coreutils' ``du`` says is allocated, in bytes."""
    done = subprocess.run(["du", "-s", "--block-size=1", path], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def test_files_and_links_are_counted_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "big").write_bytes(b"x" * 10_000)
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "one").write_bytes(b"x" * 700)
    (top / "a" / "two").write_bytes(b"x" * 30)
    (top / "a" / "link").symlink_to(tmp_path / "outside")
    (top / "empty").mkdir()
    assert measure(top) == TreeSize(3, du(top))
    assert measure(top / "a" / "two") == TreeSize(1, du(top / "a" / "two"))
    assert measure(top / "a" / "link") == TreeSize(1, du(top / "a" / "link"))
    with pytest.raises(LinkRefusedError):
        measure(top / "a" / "link" / "big", inside=top)
    with pytest.raises(FileNotFoundError):
        measure(top / "missing")


def test_what_the_disk_does_not_get_back_is_not_counted(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "linked").write_bytes(b"x" * 500)
    os.link(top / "linked", tmp_path / "elsewhere")
    with open(top / "sparse", "wb") as file:
        file.truncate(1 << 30)
        file.write(b"x" * 10)
    size = measure(top)
    assert size == TreeSize(2, du(top) - du(top / "linked")) and size.bytes < 1 << 20


def test_a_file_with_two_names_in_the_tree_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "one").write_bytes(b"x" * 5000)
    os.link(tmp_path / "one", tmp_path / "a" / "two")
    assert measure(tmp_path) == TreeSize(2, du(tmp_path))


def test_many_small_files_hold_their_blocks(tmp_path: Path) -> None:
    """As a run of many trials: the content of its files is a part of what they take."""
    for number in range(50):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "reward.txt").write_bytes(b"1.0")
    size = measure(tmp_path)
    assert size == TreeSize(50, du(tmp_path)) and size.bytes >= 50 * 512


def test_more_levels_than_descriptors_or_calls(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    assert measure(top) == TreeSize(1, du(top))
    assert remove_tree(top) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("place", [".", "a", "a/file"])
def test_an_entry_of_another_user_is_named(place: str, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    (top / "a" / "file").write_text("x")
    os.chown(top / place, 54321, 54321)
    size = measure(top)
    assert size.foreign == (str(top / place), 54321) and size.files == 1
