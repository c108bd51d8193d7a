"""CPU of what is asked of the process table, by hand and through psutil.

``python tests/bench/procstats.py [--json FILE]``.

Target: one sample of 40 pids below 1 ms. The rest says where psutil is no dearer than our own code, or dearer where
it is asked so seldom that it does not matter.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from liverl.external import port_holders
from liverl.procs import procfs
from liverl.procs.listing import ProcessTree
from liverl.procs.stats import ProcSampler

sys.path.insert(0, str(Path(__file__).resolve().parent))

from stored import Figure, Recorder, add_option

ROUNDS, TIMES = 5, 20


def cost(work: Callable[[], object]) -> float:
    """Milliseconds of CPU of one call: the least of some rounds."""
    work()
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(TIMES):
            work()
        least = min(least, (time.process_time() - began) / TIMES)
    return least * 1e3


def every_process() -> None:
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                process.ppid(), process.create_time(), process.status(), process.name()
        except psutil.Error:
            continue


def tree_of(pids: list[int]) -> None:
    """What ``ProcessTree.look`` reads."""
    for pid in pids:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                process.ppid(), process.status(), process.cpu_times(), process.memory_info()
                process.num_threads(), process.create_time(), process.name(), process.cmdline()
        except psutil.Error:
            continue


class PsutilSampler:
    """What ``ProcSampler.sample`` reads."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}

    def sample(self, pids: list[int]) -> None:
        for pid in pids:
            try:
                process = self._known.get(pid) or self._known.setdefault(pid, psutil.Process(pid))
                with process.oneshot():
                    process.cpu_times(), process.memory_info(), process.status()
            except psutil.Error:
                self._known.pop(pid, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_option(parser)
    args = parser.parse_args()
    recorder, found = Recorder("Asking the process table"), []
    pids = psutil.pids()[-40:]
    sampler, theirs, tree = ProcSampler(), PsutilSampler(), ProcessTree()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        rows: tuple[tuple[str, Callable[[], object], Callable[[], object]], ...] = (
            (f"all {len(psutil.pids())} processes", procfs.scan, every_process),
            (f"sample of {len(pids)}", lambda: sampler.sample({"a": pids}), lambda: theirs.sample(pids)),
            (f"tree of {len(pids)}", lambda: tree.look(pids), lambda: tree_of(pids)),
            (
                "all holders of a port (psutil: one of them)",
                lambda: port_holders.look(port),
                lambda: psutil.net_connections("tcp"),
            ),
            (
                "whether a port is held",
                lambda: list(procfs.listeners(port)),
                lambda: procfs.port_holder(port),
            ),
        )
        print(f"{'ms of CPU':45} {'by hand':>8} {'psutil':>8} {'ratio':>6}")
        for name, by_hand, through in rows:
            ours, other = cost(by_hand), cost(through)
            print(f"{name:45} {ours:8.3f} {other:8.3f} {other / ours:6.1f}")
            limit = 1.0 if name.startswith("sample of") else None
            what = "all processes" if name.startswith("all ") and "processes" in name else name
            found.append(Figure(f"{what}: CPU", ours, "ms", {"psutil": other}, limit))
        for name, work in (
            ("the host", sampler.host),
            ("own addresses", port_holders.own_addresses),
            ("ports of one process", lambda: procfs.listening(os.getpid())),
            ("user of a process", lambda: procfs.user_of(os.getpid())),
        ):
            print(f"{name:45} {'':8} {cost(work):8.3f}")
    if args.json:
        recorder.write(args.json, found)


if __name__ == "__main__":
    main()
