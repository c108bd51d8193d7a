"""Waiting for descriptors: those of 1024 and above too, which a process with many connections has."""

from __future__ import annotations

import ast
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import liverl
import liverl_tui
from liverl.util.descriptors import readable
from liverl.util.regular_file import read_pipe


@pytest.fixture
def high() -> Iterator[int]:
    """From here on, a new descriptor of this process is 1024 or above."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"the hard limit of open files is {hard}: no descriptor of 1024 can be had")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = []
    while not held or held[-1] < 1024:
        held.append(os.open("/dev/null", os.O_RDONLY))
    yield held[-1]
    for fd in held:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_ready_is_told_whatever_its_number(high: int) -> None:
    quiet, speaks, ended = os.pipe(), os.pipe(), os.pipe()
    assert min(quiet + speaks + ended) > 1023
    try:
        os.write(speaks[1], b"x")
        os.close(ended[1])
        assert readable([quiet[0], speaks[0], ended[0]], None) == {speaks[0], ended[0]}
        assert readable([quiet[0]], 0.001) == set()
        assert readable([quiet[0]], -1.0) == set()
        assert readable([speaks[0]], 1e12) == {speaks[0]}
    finally:
        for fd in {*quiet, *speaks, ended[0]}:
            os.close(fd)


def test_a_part_of_a_millisecond_is_waited_for() -> None:
    """Rounded down it would be a loop that spins."""
    reading, writing = os.pipe()
    try:
        before = time.monotonic()
        readable([reading], 0.0004)
        assert time.monotonic() - before >= 0.0004
    finally:
        os.close(reading)
        os.close(writing)


def test_a_closed_descriptor_is_an_error() -> None:
    with pytest.raises(ValueError, match="negative"):
        readable([-1], 0.0)


def test_a_fifo_is_read_whatever_its_number(high: int, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY)
    os.write(writing, b"told")
    os.close(writing)
    writing = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(TimeoutError, match="did not close it"):
            read_pipe(path, 100, 0.2)
    finally:
        os.close(reading)
        os.close(writing)


def selects(source: str) -> list[int]:
    """Lines that use ``select.select``, which refuses descriptors of 1024 and above, or the selector made of it."""
    found: list[int] = []
    if "select" not in source:
        return found  # not to be parsed for nothing
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in {("select", "select"), ("selectors", "SelectSelector")}:
                found.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module in ("select", "selectors"):
            found += [node.lineno for each in node.names if each.name in ("select", "SelectSelector")]
    return found


def test_nobody_waits_with_select() -> None:
    assert selects("import select\n\nready = select.select([fd], [], [], 1)[0]\n") == [3]
    assert selects("from selectors import SelectSelector\n") == [1]
    found = [
        f"{path}:{line}"
        for package in (liverl, liverl_tui)
        for path in sorted(Path(package.__file__).parent.rglob("*.py"))
        for line in selects(path.read_text(encoding="utf-8"))
    ]
    assert not found, "use liverl.util.descriptors.readable, or select.poll"
