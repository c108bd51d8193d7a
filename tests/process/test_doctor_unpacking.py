"""What ``doctor`` unpacks is in a folder that goes with its process, however that ends."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.cli import MAIN, run_cli
from kit.waiting import wait_until

LOG = b"Traceback (most recent call last):\n  File 'a.py', line 1, in <module>\nValueError: no\n"


@pytest.fixture
def doctor(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts it with an input that stays open."""
    started: list[subprocess.Popen[bytes]] = []
    (tmp_path / "tmp").mkdir()

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        words = [*MAIN, "doctor", *map(str, arguments)]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, stderr=pipe))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def held(doctor: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> subprocess.Popen[bytes]:
    """One that has unpacked a log and begun to read its input."""
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(LOG * 1000))
    process = doctor(tmp_path / "a.log.gz", "-")
    assert process.stdin is not None
    process.stdin.write(LOG)
    process.stdin.flush()
    wait_until(
        lambda: list((tmp_path / "tmp").glob(f"liverl-doctor-{process.pid}-*/1/stdin")),
        what="the copy of its input",
    )
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing(
    doctor: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, number: signal.Signals
) -> None:
    process = held(doctor, tmp_path)
    (folder,) = (tmp_path / "tmp").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_a_killed_one_left_is_removed_by_the_next(
    doctor: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process, living = held(doctor, tmp_path), held(doctor, tmp_path)
    process.kill()
    process.wait(60)
    assert len(list((tmp_path / "tmp").iterdir())) == 2
    assert run_cli("doctor", tmp_path / "a.log.gz", TMPDIR=str(tmp_path / "tmp")).returncode == 1
    (left,) = (tmp_path / "tmp").iterdir()
    assert left.name.startswith(f"liverl-doctor-{living.pid}-")


def test_a_log_that_needs_no_copy_is_read_where_there_is_no_place_for_one(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    code = "import tempfile; tempfile.mkdtemp = None; from liverl_tui.cli.main import main; main()"
    said = run_cli("doctor", tmp_path / "a.log", command=(MAIN[0], "-c", code))
    assert said.returncode == 1, said.stderr


DAMAGED = {
    "deflate.gz": lambda: gzip.compress(LOG)[:10] + bytes(200),  # zlib.error
    "cut.gz": lambda: gzip.compress(LOG * 100)[:40],
    "checksum.gz": lambda: gzip.compress(LOG)[:-8] + bytes(8),
    "noise.gz": lambda: b"\x1f\x8b" + bytes(range(256)),
    "empty.gz": lambda: b"",
    "cut.xz": lambda: lzma.compress(LOG * 100)[:60],
    "noise.xz": lambda: lzma.compress(LOG)[:24] + bytes(range(256)),
    "memory.xz": lambda: b"\xfd7zXZ\0\0\x04" + bytes(300),
    "cut.bz2": lambda: bz2.compress(LOG * 100)[:40],
    "noise.bz2": lambda: bz2.compress(LOG)[:12] + bytes(range(256)),
}


def test_a_damaged_archive_is_told_in_words(tmp_path: Path) -> None:
    for name, data in DAMAGED.items():
        (tmp_path / name).write_bytes(data())
    (tmp_path / "good.log").write_bytes(LOG)
    said = run_cli("doctor", tmp_path / "good.log", *(tmp_path / name for name in DAMAGED))
    assert said.returncode == 1 and "Traceback" not in said.stderr, said.stderr
    for name in set(DAMAGED) - {"empty.gz"}:
        assert name in said.stdout and "cannot be unpacked" in said.stdout
