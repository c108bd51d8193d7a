"""What the benchmarks read of processes: CPU to the nanosecond, memory, who lives."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from liverl.procs import procfs

PAYLOAD = Path(__file__).with_name("payload.py")


def payload(mode: str, folder: Path, name: str, *args: object) -> list[str]:
    """The command line of a payload: a bare interpreter, so that its start is short and alike everywhere."""
    return [sys.executable, "-I", "-S", str(PAYLOAD), mode, str(folder), name, *map(str, args)]


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of these processes, threads that have ended included. The kernel's clock of a process
    (``clock_getcpuclockid``) counts nanoseconds; /proc/PID/stat only hundredths of a second.

    Raises:
        OSError: one of them has ended.
    """
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


def pss_mib(pids: Iterable[int]) -> float:
    """Proportional set size, in MiB: shared pages are counted by share."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def copies(folder: Path) -> dict[str, list[int]]:
    """The live payloads of a folder: name -> pids."""
    found: dict[str, list[int]] = {}
    for pid, proc in procfs.scan().items():
        if proc.zombie:
            continue
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 6 and words[3] == os.fsencode(PAYLOAD) and words[5] == os.fsencode(folder):
            found.setdefault(words[6].decode(), []).append(pid)
    return found


def births(folder: Path, name: str) -> list[tuple[int, int]]:
    """(pid, monotonic nanoseconds) of every start of a payload."""
    try:
        lines = (folder / f"{name}.born").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(int(pid), int(at)) for pid, at in (line.split() for line in lines)]


def kill_payloads(folder: Path) -> None:
    """End what a benchmark's payloads left, by pid."""
    for pids in copies(folder).values():
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
