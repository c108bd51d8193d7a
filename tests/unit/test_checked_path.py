"""Whose links are followed, and to whose files. The links of another user need root to be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liverl.util.append import append_whole
from liverl.util.atomic_file import write_atomic
from liverl.util.checked_path import RESOLVED, LinkRefusedError, open_folder
from liverl.util.modes import make_directory, new_directory
from liverl.util.regular_file import ForeignFileError, open_append, overwrite, read_regular

ANOTHER, THIRD = 64321, 64322  # ids of users that are not this one
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def link(path: Path, target: Path | str, owner: int | None = None) -> Path:
    path.symlink_to(target)
    if owner is not None:
        os.lchown(path, owner, owner)
    return path


def file(path: Path, owner: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"content")
    if owner is not None:
        os.chown(path, owner, owner)
    return path


def test_links_of_the_user_are_followed_once_and_anywhere(tmp_path: Path) -> None:
    file(tmp_path / "data" / "deep" / "file")
    link(tmp_path / "trials.2", "data")
    link(tmp_path / "data" / "latest", "deep")
    link(tmp_path / "latest.log", "trials.2/latest/file")
    link(tmp_path / "up", "data/deep/../deep/./file")
    for name in (
        "trials.2/deep/file",
        "trials.2/latest/file",
        "latest.log",
        "up",
        "data/latest/../deep/file",
    ):
        assert read_regular(tmp_path / name) == b"content", name
    write_atomic(tmp_path / "trials.2" / "latest" / "new", b"x")
    append_whole(tmp_path / "trials.2" / "latest" / "new", b"y\n")
    assert (tmp_path / "data" / "deep" / "new").read_bytes() == b"y\n"


def test_relative_paths_and_what_the_kernel_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file(tmp_path / "folder" / "file")
    link(tmp_path / "way", "folder")
    monkeypatch.chdir(tmp_path)
    assert read_regular("way/file") == read_regular("./way/../folder/file") == b"content"
    overwrite("new", b"1")
    assert read_regular("new") == b"1"
    with (tmp_path / "folder" / "file").open("rb") as opened:
        assert read_regular(f"/dev/fd/{opened.fileno()}") == b"content"
        assert read_regular(f"/proc/self/fd/{opened.fileno()}") == b"content"


def test_links_in_a_ring_and_to_nothing(tmp_path: Path) -> None:
    link(tmp_path / "a", "b")
    link(tmp_path / "b", "a")
    link(tmp_path / "gone", "nowhere")
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        make_directory(tmp_path / "gone")


@root_only
@pytest.mark.parametrize(
    ("link_of", "file_of", "followed"),
    [
        (None, None, True),
        (None, ANOTHER, True),
        (ANOTHER, ANOTHER, True),  # its owner could have put the file there
        (ANOTHER, None, False),
        (ANOTHER, THIRD, False),
    ],
)
def test_whose_link_to_whose_file(
    tmp_path: Path, link_of: int | None, file_of: int | None, followed: bool
) -> None:
    target = file(tmp_path / "home" / "file", file_of)
    link(tmp_path / "direct", target, link_of)
    link(tmp_path / "folder", tmp_path / "home", link_of)
    link(tmp_path / "second", "folder/file")  # of the user, and it leads through the other one
    for path in (tmp_path / "direct", tmp_path / "folder" / "file", tmp_path / "second"):
        if followed:
            assert read_regular(path) == b"content"
        else:
            with pytest.raises(LinkRefusedError, match=f"a symbolic link of uid {ANOTHER} to a file of uid"):
                read_regular(path)


@root_only
def test_nothing_is_written_through_another_users_link(tmp_path: Path) -> None:
    home = tmp_path / "home"
    file(home / "file")
    way = link(tmp_path / "way", home, ANOTHER)
    for write in (
        lambda: write_atomic(way / "new", b"x"),
        lambda: append_whole(way / "file", b"x\n"),
        lambda: overwrite(way / "file", b""),
        lambda: make_directory(way / "a" / "b"),
        lambda: new_directory(way / "c"),
        lambda: make_directory(way),
    ):
        with pytest.raises(LinkRefusedError):
            write()
    assert os.listdir(home) == ["file"] and (home / "file").read_bytes() == b"content"


@root_only
def test_a_file_of_another_user_is_not_appended_to(tmp_path: Path) -> None:
    file(tmp_path / "log", ANOTHER)
    with pytest.raises(ForeignFileError, match=f"it belongs to uid {ANOTHER}"):
        open_append(tmp_path / "log")
    os.chown(tmp_path, ANOTHER, ANOTHER)  # in that user's own folder it is what is expected
    os.close(open_append(tmp_path / "log"))


def test_a_second_name_of_a_file_is_not_appended_to_where_all_can_write(tmp_path: Path) -> None:
    file(tmp_path / "private" / "file")
    shared = tmp_path / "shared"
    shared.mkdir()
    os.link(tmp_path / "private" / "file", shared / "log")
    os.close(open_append(shared / "log"))  # a copy of hard links that the user has made
    shared.chmod(0o1777)
    with pytest.raises(ForeignFileError, match="hard link"):
        overwrite(shared / "log", b"")
    assert (tmp_path / "private" / "file").read_bytes() == b"content"


def test_a_resolved_path_is_written_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "trials" / "step" / "task").mkdir(parents=True)
    (tmp_path / "elsewhere" / "task").mkdir(parents=True)
    place = (tmp_path / "trials" / "step" / "task").resolve()
    write_atomic(place / "file", b"1", inside=RESOLVED)
    for swapped in (place, place.parent, place.parent.parent):
        swapped.rename(tmp_path / "moved")
        swapped.symlink_to(tmp_path / "elsewhere" if swapped != place else tmp_path / "elsewhere" / "task")
        for write in (
            lambda: write_atomic(place / "file", b"2", inside=RESOLVED),
            lambda: append_whole(place / "file", b"2\n", inside=RESOLVED),
            lambda: overwrite(place / "file", b"2", inside=RESOLVED),
            lambda: new_directory(place / "folder", inside=RESOLVED),
            lambda: make_directory(place / "folder" / "inner", inside=RESOLVED),
        ):
            with pytest.raises(OSError, match=r"symbolic link|No such file"):
                write()
        swapped.unlink()
        (tmp_path / "moved").rename(swapped)
    assert (place / "file").read_bytes() == b"1" and os.listdir(tmp_path / "elsewhere" / "task") == []


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    file(tmp_path / "folder" / "file")
    link(tmp_path / "way", "folder")
    link(tmp_path / "ring", "ring")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        read_regular(tmp_path / "way" / "file")
        overwrite(tmp_path / "way" / "file", b"content")
        os.close(open_folder(tmp_path / "way"))
        for path, inside in ((tmp_path / "ring", None), (tmp_path / "way" / "file", tmp_path)):
            with pytest.raises(OSError, match="symbolic link"):
                read_regular(path, inside=inside)
            with pytest.raises(OSError, match="symbolic link"):
                overwrite(path, b"", inside=inside)
    assert len(os.listdir("/proc/self/fd")) == before


@root_only
def test_what_was_reached_once_is_checked_again_when_its_links_have_changed(tmp_path: Path) -> None:
    for name in ("old", "new"):
        file(tmp_path / name / "file").write_text(name)
        file(tmp_path / name / "inner").write_text(name)
    way = link(tmp_path / "way", "old")
    for _ in range(2):
        assert read_regular(way / "file") == read_regular(way / "file", inside=way) == b"old"
    way.unlink()
    link(way, "new")
    assert read_regular(way / "file") == read_regular(way / "file", inside=way) == b"new"
    way.unlink()
    link(way, "old", ANOTHER)
    for path, inside in ((way / "inner", None), (way / "file", None), (way / "file", way)):
        with pytest.raises(LinkRefusedError):
            read_regular(path, inside=inside)
