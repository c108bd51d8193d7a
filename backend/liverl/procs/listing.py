"""The processes of one service as a tree with their resource use, read from /proc.

Read by hand rather than through psutil: 40 processes take 1.1 ms of CPU instead of 3.4 ms
(``tests/bench/procstats.py``), and the code would not be shorter with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from liverl.util import redact

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_COMMAND_BYTES = 4096


class ListedProcess(msgspec.Struct, frozen=True):
    """One process of the list.

    ``cpu_percent``: 100 = one core, since the previous call; None in the first. ``depth``: number of
    ancestors within the list. ``command``: redacted; may be a title that the process set itself.
    """

    pid: int
    ppid: int
    depth: int
    state: str  # one letter, as in ps
    cpu_percent: float | None
    rss_bytes: int
    threads: int
    started_at: float  # Unix seconds
    command: str


class _Stat(NamedTuple):
    name: str
    state: str
    ppid: int
    ticks: int  # of CPU time
    threads: int
    start: int  # ticks since boot; pid and start identify a process
    rss: int


class ProcessTree:
    """Lists the processes of given pids; CPU use is relative to the previous call. Blocking: call it in a
    thread."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._boot: float | None = None
        self._at = 0.0
        self._last: dict[int, _Stat] = {}

    def look(self, pids: Iterable[int], now: float | None = None) -> tuple[ListedProcess, ...]:
        """Return those of ``pids`` that exist: parents before their children, siblings by age, zombies
        included.

        ``now`` is monotonic seconds.
        """
        now = time.monotonic() if now is None else now
        elapsed, self._at = now - self._at, now
        stats = {pid: stat for pid in sorted(set(pids)) if (stat := self._stat(pid)) is not None}
        listed = []
        for pid, depth in _in_order(stats):
            stat, before = stats[pid], self._last.get(pid)
            percent = None
            if before is not None and before.start == stat.start and elapsed > 0:
                percent = 100.0 * (stat.ticks - before.ticks) / _TICKS / elapsed
            listed.append(
                ListedProcess(
                    pid=pid,
                    ppid=stat.ppid,
                    depth=depth,
                    state=stat.state,
                    cpu_percent=percent,
                    rss_bytes=stat.rss,
                    threads=stat.threads,
                    started_at=self._boot_time() + stat.start / _TICKS,
                    command=self._command(pid) or f"[{stat.name}]",
                )
            )
        self._last = stats
        return tuple(listed)

    def _stat(self, pid: int) -> _Stat | None:
        data = self._read(f"{pid}/stat")
        if data is None:
            return None
        # the name may contain spaces and brackets: the fields start after the last bracket
        left, right = data.find(b"("), data.rfind(b")")
        fields = data[right + 2 :].split()
        if len(fields) < 22:
            return None
        return _Stat(
            name=data[left + 1 : right].decode("utf-8", "replace"),
            state=fields[0].decode("ascii", "replace"),
            ppid=int(fields[1]),
            ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            start=int(fields[19]),
            rss=int(fields[21]) * _PAGE,
        )

    def _command(self, pid: int) -> str:
        data = self._read(f"{pid}/cmdline") or b""
        words = [w.decode("utf-8", "replace") for w in data[:_COMMAND_BYTES].split(b"\0") if w.strip()]
        if len(words) == 1:  # a process title: the whole command in one word
            words = words[0].split()
        return " ".join(redact.command(words))

    def _boot_time(self) -> float:
        if self._boot is None:
            lines = (self._read("stat") or b"").splitlines()
            boot_seconds = next((line.split()[1] for line in lines if line.startswith(b"btime ")), b"0")
            self._boot = float(boot_seconds)
        return self._boot

    def _read(self, name: str) -> bytes | None:
        try:
            with open(f"{self._proc}/{name}", "rb") as file:
                return file.read()
        except OSError:  # the process ended, or we may not read it
            return None


def _in_order(stats: Mapping[int, _Stat]) -> Iterator[tuple[int, int]]:
    """Yield (pid, depth) in depth-first order."""
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.ppid if stat.ppid in stats else 0, []).append(pid)
    for of in children.values():
        of.sort(key=lambda pid: (stats[pid].start, pid), reverse=True)
    waiting = [(pid, 0) for pid in children.get(0, ())]
    while waiting:
        pid, depth = waiting.pop()
        yield pid, depth
        waiting += [(child, depth + 1) for child in children.get(pid, ())]
