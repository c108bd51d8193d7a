"""A real control group with a memory limit, for processes that the kernel shall kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kit.waiting import wait_until

# The order of going is from 1000 down to -1000; raising one's own needs no right.
FIRST_TO_GO, NEXT_TO_GO = 1000, 300
# Takes memory while the process lives whose pid it is given. It is the next to go after that one: a process that ends
# slowly leaves the group at its limit, and the kernel would take a backend or a proxy next.
HOG = f"""
import os, sys, time
with open("/proc/self/oom_score_adj", "w") as adj:
    adj.write("{NEXT_TO_GO}")
blocks = []
while os.path.exists("/proc/" + sys.argv[1] + "/exe"):
    blocks.append(bytearray(b"x") * (1 << 20))
    time.sleep(0.002)
"""
ROOM = 32 << 20  # bytes


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
            wait_until(partial(_removed, folder), what="the end of its processes")
    pytest.skip("no control group can be made here")


def killed_for_memory(group: Path, limit: str, usage: str, pid: int, room: int = ROOM) -> None:
    """Let the kernel kill the process ``pid`` of the group, and none of the others: the limit is set ``room`` bytes
    above what the group uses now, a process of this function's takes them, and the limit is lifted again."""
    Path(f"/proc/{pid}/oom_score_adj").write_text(str(FIRST_TO_GO))
    before = (group / limit).read_text()
    (group / limit).write_text(str(int((group / usage).read_text()) + room))
    try:
        subprocess.run(inside(group, sys.executable, "-c", HOG, str(pid)), check=False, timeout=120)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}/exe"), what=f"the kernel's kill of {pid}")
    finally:
        (group / limit).write_text(before)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def inside(folder: Path, *argv: object) -> list[str]:
    """A command line that runs in the control group."""
    return ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh", *map(str, argv)]
