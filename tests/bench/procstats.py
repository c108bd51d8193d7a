"""CPU of one sample of 40 pids. Run by hand: ``python tests/bench/procstats.py``. Target: below 1 ms."""

from __future__ import annotations

import os
import time

from liverl.observe.procstats import ProcSampler

ROUNDS = 500


def main() -> None:
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    members = {"service": (pids * 40)[:40]} if len(pids) < 40 else {"service": pids[:40]}
    distinct = len(set(members["service"]))
    sampler = ProcSampler()
    began = time.process_time()
    for _ in range(ROUNDS):
        sampler.sample(members)
    took = (time.process_time() - began) / ROUNDS
    began = time.process_time()
    for _ in range(ROUNDS):
        sampler.host()
    host = (time.process_time() - began) / ROUNDS
    for_40 = took / distinct * 40
    print(
        f"{distinct} pids: {took * 1e3:.2f} ms CPU ({for_40 * 1e3:.2f} ms for 40); host: {host * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    main()
