"""CPU and memory of process trees and of the host, from /proc.

They are read by hand every two seconds: 40 processes take 0.19 ms of CPU, with psutil 0.88 ms
(``tests/bench/procstats.py``), which also takes 1.3 MiB of memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from liverl.model import HostStats, StalledProcess, TreeStats

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Usage(NamedTuple):
    start: int  # start tick: the same pid with another start is another process
    ticks: int
    rss: int
    state: str
    faults: tuple[bytes, bytes]  # page faults without and with a read from disk
    io: bytes | None = None  # only read of a process that waits uninterruptibly


class ProcSampler:
    """Samples CPU and memory. ``cpu_percent`` needs two samples: the first of a service, and of the host, is
    None. ``stalled``: by service, the processes that do not run, as of the last sample."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._at: float | None = None
        self._last: dict[int, _Usage] = {}
        self._services: set[str] = set()
        self.stalled: dict[str, tuple[StalledProcess, ...]] = {}
        self._stalls: dict[int, StalledProcess] = {}  # also those that one sample does not prove
        self._host: tuple[int, int] | None = None  # ticks: busy, all

    def sample(self, members: Mapping[str, Iterable[int]], now: float | None = None) -> dict[str, TreeStats]:
        """Return the resource use of each service, given the pids of its processes. ``now``: seconds of
        a clock that never steps back; ``StalledProcess.since`` is a time of that clock.

        ``cpu_percent``: 100 = one core. CPU time used before a process was first sampled is not counted, nor
        are zombies. 40 pids cost 0.4 ms of CPU (``tests/bench/procstats.py``).
        """
        now = time.monotonic() if now is None else now
        elapsed = 0.0 if self._at is None else now - self._at
        usages: dict[int, _Usage | None] = {}
        result: dict[str, TreeStats] = {}
        for service, pids in members.items():
            count = rss = ticks = 0
            for pid in pids:
                if pid not in usages:
                    usages[pid] = self._read(pid)
                usage = usages[pid]
                if usage is None:
                    continue
                count += 1
                rss += usage.rss
                before = self._last.get(pid)
                if before is not None and before.start == usage.start:
                    ticks += usage.ticks - before.ticks
            has_previous = service in self._services and elapsed > 0
            percent = 100.0 * ticks / _TICKS / elapsed if has_previous else None
            result[service] = TreeStats(processes=count, cpu_percent=percent, rss_bytes=rss)
        present = {pid: usage for pid, usage in usages.items() if usage is not None}
        stalls = {pid: stall for pid in present if (stall := self._stall(pid, present[pid], now)) is not None}
        # A debugger stops a process for a moment, and every read from a disk is an uninterruptible wait.
        proven = {pid: stall for pid, stall in stalls.items() if stall.state == "T" or stall.since < now}
        self.stalled = {
            service: tuple(proven[pid] for pid in sorted(pids) if pid in proven)
            for service, pids in ((name, set(pids) & proven.keys()) for name, pids in members.items())
            if pids
        }
        self._stalls = stalls
        self._at = now
        self._last = present
        self._services = set(members)
        return result

    def _stall(self, pid: int, usage: _Usage, now: float) -> StalledProcess | None:
        """How a process stands still, since when; None if it runs or may run."""
        if usage.state not in ("T", "t", "D"):
            return None
        before, earlier = self._last.get(pid), self._stalls.get(pid)
        # A tuple of everything that changes when the process makes progress, and of its state.
        goes_on = before is not None and before._replace(rss=0) == usage._replace(rss=0)
        return earlier if earlier is not None and goes_on else StalledProcess(pid, usage.state, now)

    def host(self) -> HostStats:
        """Return CPU since the last call (0..100 over all cores) and memory in bytes; values missing in /proc
        are None."""
        try:
            busy, total = _host_ticks(self._file("stat"))
            memory = _host_memory(self._file("meminfo"))
            memory_total, available = memory["MemTotal"], memory["MemAvailable"]
        except (ValueError, LookupError):  # /proc is missing, not readable, or of another system
            return HostStats(cpu_count=os.cpu_count())
        percent = None
        if self._host is not None and total > self._host[1]:
            share = (busy - self._host[0]) / (total - self._host[1])
            percent = min(100.0, max(0.0, 100.0 * share))
        self._host = (busy, total)
        return HostStats(
            cpu_percent=percent,
            cpu_count=os.cpu_count(),
            memory_used=memory_total - available,
            memory_total=memory_total,
        )

    def _read(self, pid: int) -> _Usage | None:
        data = self._file(f"{pid}/stat")
        if data is None:
            return None
        # the command may contain spaces and parentheses: the fields start after the last one
        fields = data[data.rfind(b")") + 2 :].split()
        if len(fields) < 22 or fields[0] in (b"Z", b"X"):
            return None
        state = fields[0].decode("ascii", "replace")
        return _Usage(
            start=int(fields[19]),
            ticks=int(fields[11]) + int(fields[12]),
            rss=int(fields[21]) * _PAGE,
            state=state,
            faults=(fields[7], fields[9]),
            io=self._file(f"{pid}/io") if state == "D" else None,
        )

    def _file(self, name: str) -> bytes | None:
        try:
            fd = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # the process ended, or we may not read it
            return None
        try:
            return os.read(fd, 1 << 16)
        except ProcessLookupError:  # the process ended between open and read
            return None
        finally:
            os.close(fd)


def _host_ticks(stat: bytes | None) -> tuple[int, int]:
    """(busy, all) ticks of all cores since the host has booted, of ``/proc/stat``.

    Raises:
        ValueError, LookupError: it says something else.
    """
    name, *fields = (stat or b"").partition(b"\n")[0].split()
    user, nice, system, idle, iowait, irq, softirq, steal = map(
        int, fields[:8]
    )  # guests are in user and nice
    if name != b"cpu":
        raise ValueError(name)
    busy = user + nice + system + irq + softirq + steal
    return busy, busy + idle + iowait


def _host_memory(meminfo: bytes | None) -> dict[str, int]:
    """Bytes by name, of ``/proc/meminfo``.

    Raises:
        ValueError: it says something else.
    """
    lines = (line.split() for line in (meminfo or b"").decode("ascii", "replace").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3}
