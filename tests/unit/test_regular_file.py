"""Opening files that somebody else may have replaced."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from liverl.config import ConfigError, load, load_config
from liverl.util.regular_file import (
    LinkRefusedError,
    NotRegularFileError,
    RefusedFileError,
    TooLargeError,
    open_append,
    open_regular,
    read_pipe,
    read_regular,
    reopen_append,
)


def test_a_regular_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file) == b"12345"
    assert read_regular(file, 5) == b"12345"
    with pytest.raises(TooLargeError, match="larger than 4 bytes"):
        read_regular(file, 4)


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, (1 << 20) - 1, 1 << 20, (2 << 20) + 5])
def test_all_of_a_file_is_read_without_asking_for_its_end(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    reads, read = [], os.read
    monkeypatch.setattr(os, "read", lambda fd, most: reads.append(most) or read(fd, most))
    assert read_regular(tmp_path / "f", 4 << 20) == data
    assert len(reads) == max(1, -(-size // (1 << 20)))


def test_a_file_without_a_size_of_its_own_is_read_to_its_end() -> None:
    assert os.stat("/proc/self/maps").st_size == 0
    assert read_regular("/proc/self/maps").count(b"\n") > 10


def test_a_fifo_is_refused_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(NotRegularFileError, match="not a regular file but a FIFO") as caught:
        open_regular(fifo)
    assert caught.value.filename == str(fifo)
    with pytest.raises(NotRegularFileError, match="not a regular file"):
        open_append(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(NotRegularFileError, match="a FIFO"):
            open_append(fifo)  # somebody reads it: opening it for writing succeeds
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("path", "words"), [("/dev/zero", "a character device"), (".", "a directory"), ("socket", "a socket")]
)
def test_special_files_are_refused_by_what_they_are(tmp_path: Path, path: str, words: str) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        with pytest.raises(NotRegularFileError, match=words):
            open_regular(tmp_path / path)


def test_no_descriptor_is_left_open_by_a_refusal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(NotRegularFileError):
            open_regular(tmp_path / "fifo")
        with pytest.raises(NotRegularFileError):
            open_append(tmp_path / "fifo")
        with pytest.raises(LinkRefusedError):
            open_regular(tmp_path / "link", inside=tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_link_is_followed_inside_a_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "trial").mkdir(parents=True)
    (root / "trial" / "file").write_bytes(b"mine")
    (root / "trial" / "inner").symlink_to("file")
    (root / "trial" / "outer").symlink_to("/etc/passwd")
    (root / "up").symlink_to(root / "trial")
    (tmp_path / "way").symlink_to(root)  # above it, a link is one like any other
    for above in (root, tmp_path / "way"):
        assert read_regular(above / "trial" / "file", inside=above) == b"mine"
        assert read_regular(above / "trial" / "file", inside=str(above / "trial")) == b"mine"
        for name in ("trial/inner", "trial/outer", "up/file"):
            with pytest.raises(LinkRefusedError, match="a symbolic link, which is not followed here"):
                read_regular(above / name, inside=above)
    for outside in (root / "trial" / "file", root / "up" / ".." / "trial" / "file", root / "up"):
        with pytest.raises(RefusedFileError, match="it is not below"):
            read_regular(outside, inside=root / "up")


def test_appending_creates_the_file_with_its_mode_and_refuses_a_link(tmp_path: Path) -> None:
    path = tmp_path / "log"
    umask = os.umask(0)
    try:
        fd = open_append(path, 0o600)
    finally:
        os.umask(umask)
    os.write(fd, b"one")
    os.close(fd)
    fd = open_append(path, read=True)
    os.write(fd, b"two")
    assert os.pread(fd, 10, 0) == b"onetwo"
    os.close(fd)
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic link"):
        open_append(tmp_path / "link")


def test_a_pipe_is_read_until_its_writer_closes_it(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(b"x" * 100_000,))
    writer.start()
    assert read_pipe(fifo, 100_000, 60) == b"x" * 100_000
    writer.join()
    writer = threading.Thread(target=fifo.write_bytes, args=(b"x" * 11,))
    writer.start()
    with pytest.raises(TooLargeError):
        read_pipe(fifo, 10, 60)
    writer.join()


def test_a_pipe_without_a_writer_is_given_up(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(TimeoutError, match="nobody wrote to this FIFO within"):
        read_pipe(fifo, 10, 0.1)
    writer = os.open(fifo, os.O_RDWR)
    try:
        with pytest.raises(TimeoutError, match="its writer did not close it within"):
            read_pipe(fifo, 10, 0.1)
    finally:
        os.close(writer)


def test_a_configuration_may_be_a_pipe_and_is_refused_if_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "config.yaml"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_text, args=("run:\n  replicas: 3\n",))
    writer.start()
    assert load_config(fifo, env={}).config.run.replicas == 3
    writer.join()
    monkeypatch.setattr(load, "PIPE_S", 0.1)
    with pytest.raises(ConfigError, match="cannot read the file: nobody wrote to this FIFO"):
        load_config(fifo, env={})


def test_a_file_is_opened_again_only_if_it_is_the_one_that_was_left(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    os.close(open_append(path))
    other.write_text("b")
    left = path.stat()

    def again(which: Path = path) -> bool:
        fd = reopen_append(
            which, lambda status: (status.st_ino, status.st_size) == (left.st_ino, left.st_size)
        )
        if fd is None:
            return False
        try:
            assert os.write(fd, b"x") == 1 and os.pread(fd, 1, 0) == b"x"  # for appending and reading
            assert not os.get_inheritable(fd)
            os.ftruncate(fd, 0)
        finally:
            os.close(fd)
        return True

    assert again()
    (tmp_path / "link").symlink_to(path)
    assert not again(tmp_path / "link")  # to the very file
    assert not again(other)
    with path.open("w") as file:
        file.write("more")
    assert not again()
    path.unlink()
    assert not again()
    os.mkfifo(path)
    assert reopen_append(path, lambda status: True) is None
    path.unlink()
    path.mkdir()
    assert reopen_append(path, lambda status: True) is None
