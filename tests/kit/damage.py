"""Damages of a journal or another file of a run, and what must be true of the run's processes afterwards."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from kit.runs import ToyRun
from liverl.procs import procfs


def leaders(run: ToyRun) -> dict[str, tuple[int, ...]]:
    """The pids of the processes that lead each service, by its name: more than one is a double."""
    table = procfs.scan()
    tags = run.tagged()
    found: dict[str, tuple[int, ...]] = {}
    for pid, tag in sorted(tags.items()):
        service, _, generation = tag.split("/", 2)[2].rpartition("/")
        # Workers with sessions of their own inherit the tag: their parent has it, too.
        led = pid in table and table[pid].session == pid and tags.get(table[pid].ppid) != tag
        if generation != "0" and led:
            found[service] = (*found.get(service, ()), pid)
    return found


def _lines(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def _cut(path: Path, part: float) -> None:
    os.truncate(path, int(path.stat().st_size * part))


def _replaced(path: Path, by: Callable[[Path], object]) -> None:
    path.unlink()
    by(path)


def flip(path: Path, seed: int) -> None:
    """Change one byte in every 300, at least one, to others."""
    chosen = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(max(1, len(data) // 300)):
        data[chosen.randrange(len(data))] = chosen.randrange(256)
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: _cut(path, 0),
    "half": lambda path: _cut(path, 0.5),
    "tenth": lambda path: _cut(path, 0.1),
    "noise": lambda path: _replaced(path, lambda p: p.write_bytes(random.Random(1).randbytes(5000))),
    "flips": lambda path: flip(path, 7),
    "first-line-lost": lambda path: _lines(path, lambda lines: lines[1:]),
    "only-odd-lines": lambda path: _lines(path, lambda lines: lines[1::2]),
    "backwards": lambda path: _lines(path, lambda lines: lines[::-1]),
    "twice": lambda path: _lines(path, lambda lines: lines * 2),
    "other-types": lambda path: _replaced(
        path, lambda p: p.write_bytes(b'[]\n1\nnull\n{"k":"attempt"}\n{"k":"spawned","svc":1,"gen":"x"}\n{"k":[]}\n')
    ),
    "an-end": lambda path: _lines(path, lambda lines: [*lines, b'{"at":1.0,"k":"end","exit_code":0}\n']),
    "a-bad-stop": lambda path: _lines(path, lambda lines: [*lines, b'{"at":1.0,"k":"stop","verdict":7}\n']),
    "deep-line": lambda path: _lines(path, lambda lines: [b'{"k":' * 100_000 + b"\n", *lines]),
    "zeros": lambda path: _replaced(path, lambda p: p.write_bytes(bytes(4096))),
    "fifo": lambda path: _replaced(path, os.mkfifo),
    "directory": lambda path: _replaced(path, Path.mkdir),
    "link": lambda path: _replaced(path, lambda p: p.symlink_to("/dev/zero")),
}  # fmt: skip
