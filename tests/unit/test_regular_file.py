"""Opening files that somebody else may have replaced."""

from __future__ import annotations

import ast
import os
import socket
import threading
from pathlib import Path

import pytest

import liverl
import liverl_tui
from liverl.config import ConfigError, load, load_config
from liverl.util.regular_file import (
    NotRegularFileError,
    OutsideError,
    TooLargeError,
    open_append,
    open_regular,
    read_pipe,
    read_regular,
)


def test_a_regular_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file) == b"12345"
    assert read_regular(file, 5) == b"12345"
    with pytest.raises(TooLargeError, match="larger than 4 bytes"):
        read_regular(file, 4)


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
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(NotRegularFileError):
            open_regular(tmp_path / "fifo")
        with pytest.raises(NotRegularFileError):
            open_append(tmp_path / "fifo")
        with pytest.raises(OutsideError):
            open_regular("/etc/passwd", inside=str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_out_of_the_directory_is_refused_and_one_within_is_followed(tmp_path: Path) -> None:
    root = (tmp_path / "root").resolve()
    (root / "trial").mkdir(parents=True)
    (root / "shared").write_bytes(b"mine")
    (root / "trial" / "inner").symlink_to(root / "shared")
    (root / "trial" / "outer").symlink_to("/etc/passwd")
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "file").write_bytes(b"theirs")
    (root / "up").symlink_to(tmp_path / "root2")
    assert read_regular(root / "trial" / "inner", inside=str(root)) == b"mine"
    for path in (root / "trial" / "outer", root / "up" / "file"):
        with pytest.raises(OutsideError, match="outside of"):
            read_regular(path, inside=str(root))


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


# What may open files by itself: files of /proc and /sys, files that it has just created, descriptors, and what runs
# in other processes.
OWN_OPENERS = {
    "util/regular_file.py", "util/atomic_file.py", "config/profiles.py", "procs/cpu_limits.py",
    "util/clocks.py", "procs/locks.py", "procs/procfs.py", "procs/stats.py", "procs/listing.py", "procs/stacks.py",
    "util/stack_signal.py", "notify/sender.py", "supervise/keeper/process/liverl_keeper/processes.py",
}  # fmt: skip
GUESTS = ("agents/", "embedded/", "proxy/runtime/", "verl_runtime/")


def direct_reads(source: str) -> list[int]:
    """Lines that open or read a file without ``liverl.util.regular_file``."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        words = ast.unparse(node)
        reads = name in ("read_bytes", "read_text")
        opens = name == "open" and (
            ".open('rb')" in words or words.endswith(", 'rb')") or "os.O_RDONLY" in words
        )
        if ((reads and not node.args[:1]) or opens) and "/dev/null" not in words:
            lines.append(node.lineno)
    return lines


def test_every_reader_of_the_backend_uses_the_common_opener() -> None:
    root = Path(liverl.__file__).parent
    files = [(root, path) for path in root.rglob("*.py")]
    files += [
        (Path(liverl_tui.__file__).parent, path) for path in Path(liverl_tui.__file__).parent.rglob("*.py")
    ]
    found = []
    for base, path in files:
        name = path.relative_to(base).as_posix()
        if base == root and (name in OWN_OPENERS or name.startswith(GUESTS)):
            continue
        found += [f"{name}:{line}" for line in direct_reads(path.read_text(encoding="utf-8"))]
    assert not found, f"use liverl.util.regular_file in {', '.join(found)}"


def test_the_check_of_openers_finds_each_form() -> None:
    source = (
        "a = path.read_bytes()\nb = path.read_text()\nc = path.open('rb')\nd = open(name, 'rb')\n"
        "e = os.open(name, os.O_RDONLY | os.O_CLOEXEC)\nf = read_text(path)\ng = os.open(name, os.O_WRONLY)\n"
    )
    assert direct_reads(source) == [1, 2, 3, 4, 5]


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
