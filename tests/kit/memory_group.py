"""A real control group with a memory limit, for processes that the kernel shall kill."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kit.waiting import wait_until

# Takes memory while the process lives whose pid it is given.
HOG = """
import os, sys, time
blocks = []
while os.path.exists(f"/proc/{sys.argv[1]}/exe"):
    blocks.append(bytearray(b"x") * (1 << 20))
    time.sleep(0.002)
"""


@contextmanager
def memory_cgroup() -> Iterator[tuple[Path, str, str]]:
    """A control group of its own, and the names of its files with the limit and the usage."""
    for base, limit, usage in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ):
        folder = Path(base) / f"liverl-drill-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / limit).exists() and os.access(folder / limit, os.W_OK):
                yield folder, limit, usage
                return
        finally:
            wait_until(partial(_removed, folder), 30, "the end of its processes")
    pytest.skip("no control group can be made here")


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def inside(folder: Path, command: str, *argv: object) -> list[str]:
    """A command line that runs in the control group."""
    return ["sh", "-c", f'echo $$ > {folder}/cgroup.procs; {command} exec "$@"', "sh", *map(str, argv)]
