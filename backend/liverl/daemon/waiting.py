"""Waiting for a backend: as long as its process lives, and with words for whom it keeps waiting.

How long a start takes says nothing about its end: Python may import from a cold network file system for minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from liverl.procs import procfs
from liverl.util import clocks
from liverl.util.kernel_file import kernel_text

Tell = Callable[[str], None]

TELL_S = 5.0  # seconds of waiting before it is told what for
AGAIN_S = 20.0  # ... and until it is told again, unless the reason changes


class Waiting:
    """Tells what a caller waits for. ``tell``: gets the sentences."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._began = clocks.ran()
        self._told_at = float("-inf")
        self._told = ""

    def look(self, who: str, pid: int, meanwhile: str) -> None:
        """Call it again and again. ``who``: whose process is waited for, ``pid``: its pid; ``meanwhile``: what it does
        as far as nothing keeps it from running."""
        now = clocks.ran()
        if now - self._began < TELL_S:
            return
        why = held_up(pid) or meanwhile
        if why == self._told and now - self._told_at < AGAIN_S:
            return
        self._told, self._told_at = why, now
        self._tell(f"waiting for {who} (pid {pid}): {why}")


def held_up(pid: int) -> str:
    """What keeps a process from running, in words; "" if nothing does."""
    process = procfs.read_proc(pid)
    if process is None:
        return ""
    if process.state in "Tt":
        return f"a signal such as SIGSTOP has stopped it. To continue it: kill -CONT {pid}"
    if process.state == "D":
        return "it waits for a disk or a network file system"
    return ""


def lock_holder(path: Path) -> int | None:
    """The pid of the process on this host that holds a lock on the file; None: no process that can be seen does."""
    try:
        status = os.stat(path)
        locks = kernel_text("/proc/locks").splitlines()
    except OSError:
        return None
    # 12: FLOCK  ADVISORY  WRITE 4711 fd:01:1835019 0 EOF
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in locks:
        words = line.split()
        if (
            len(words) < 6
            or words[5].rpartition(":")[2] != file.rpartition(":")[2]
            or not words[4].isdecimal()
        ):
            continue
        pid = int(words[4])  # 0: in another namespace
        # Some file systems show another device here than to a process.
        ours = words[5] == file or procfs.environment_tag(pid, b"LIVERL_RUN_DIR") == str(path.parent)
        if pid and ours and procfs.read_proc(pid) is not None:
            return pid
    return None
