"""How much of a followed file is not read yet, by one look at it."""

from __future__ import annotations

from pathlib import Path

from liverl.logs.follow import Follower


def test_nothing_is_behind_only_of_a_file_that_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    follower = Follower(path)
    assert follower.behind() == 0, "no file"
    path.write_bytes(b"one\n")
    assert follower.behind() == 4
    follower.poll()
    assert follower.behind() == 0
    with path.open("ab") as file:
        file.write(b"two\n")
    assert follower.behind() == 4
    follower.poll(2)
    assert follower.behind() == 2
    follower.poll()
    path.write_bytes(b"x")
    assert follower.behind() == 1, "truncated"
    assert follower.poll() == b"x"
    (tmp_path / "b.log").write_bytes(b"y")
    (tmp_path / "b.log").rename(path)
    assert follower.behind() == 1, "another file of the same size"
    assert follower.poll() == b"y"


def test_a_file_that_was_never_read_is_looked_at_once(tmp_path: Path) -> None:
    """Else nobody would know it again once it is replaced."""
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    follower = Follower(path, 4)
    assert follower.behind() > 0
    assert (follower.poll(), follower.behind()) == (b"", 0)
