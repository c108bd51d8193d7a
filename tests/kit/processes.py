"""The machine's processes, as a test looks at them beside other tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kit.waiting import wait_until
from liverl.procs import procfs


def command_lines() -> set[str]:
    """The command lines of all processes, without pytest's workers: setproctitle names a worker after its test,
    whose parameters may be what is looked for."""
    lines = {procfs.command_line(pid) for pid in procfs.scan()}
    return {line for line in lines if not line.startswith("[pytest-xdist ")}


def states(pid: int) -> set[str]:
    """The states of its threads, as in ``/proc/PID/stat``; none if it is gone."""
    found = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            found.add(stat.read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue  # that thread has ended
    return found


def stop_process(pid: int) -> None:
    """Stop a process with SIGSTOP, and return once all its threads stand or it is gone. Until then it goes on, and
    takes what comes next: a signal, a request."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: states(pid) <= {"T", "t", "Z", "X"}, what=f"pid {pid} stands")
