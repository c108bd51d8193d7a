"""What the terminal's benchmarks feed the interface with, in processes of their own.

``python terminal_feed.py backend RUN_DIR [--replicas N] [--arrivals N] [--still]``: a control server that speaks
the real protocol and serves made-up snapshots, twice a second new numbers. ``... writer FILE MB_PER_S``: appends
lines of 150 bytes at a steady rate, each with the time at which it was written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "backend"), str(ROOT)]

LINE = 150  # bytes, newline included
TICK_S = 0.5
BATCH_S = 0.01
_STAMP = b"ts=" + b"@" * 17


def lines(count: int, first: int = 0, stamp: bytes = _STAMP) -> bytes:
    """``count`` log lines of LINE bytes; ``stamp`` stands for the time in each."""
    made = []
    for number in range(first, first + count):
        line = b"INFO:trainer.worker:%s n=%012d rollout batch " % (stamp, number)
        made.append(line + b"x" * (LINE - 1 - len(line)))
    return b"\n".join(made) + b"\n"


def stamped(template: bytes, at: float) -> bytes:
    return template.replace(_STAMP, b"ts=%017.6f" % at)


def write(path: Path, rate: float) -> None:
    """Append ``rate`` bytes a second in small batches until ended; a batch that is late is made up for."""
    per_batch = max(1, round(rate * BATCH_S / LINE))
    template = lines(per_batch)
    due = time.monotonic()
    with path.open("ab", buffering=0) as file:
        while True:
            file.write(stamped(template, time.time()))
            due += per_batch * LINE / rate
            time.sleep(max(0.0, due - time.monotonic()))


class Backend:
    """The handler of a control server without anything to supervise."""

    def __init__(self, run_dir: Path, still: bool, **crowd: Any) -> None:
        from kit.crowd import Crowd

        from liverl.control.server import ControlServer
        from liverl.rundir.layout import RunDir

        self.run = RunDir(run_dir)
        self.still = still
        self.crowd = Crowd(run=self.run.name, run_dir=str(run_dir), **crowd)
        self.state = self.crowd.snapshot()
        self.server = ControlServer(run_dir, self)

    def snapshot(self) -> Any:
        return self.state

    def events_since(self, seq: int) -> list[Any]:
        return []

    async def command(self, name: str, args: dict[str, Any], client: str) -> dict[str, Any]:
        return {"text": f"{name}: nothing to do"}

    async def serve(self) -> None:
        from liverl.rundir import layout

        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await self.server.start()
        layout.write_backend(self.run.path, layout.own_record(self.server.socket_path, "0"))
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await over.wait()
            if not self.still:
                self.state = self.crowd.snapshot()
                self.server.publish_snapshot()
        await self.server.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    what = parser.add_subparsers(dest="what", required=True)
    backend = what.add_parser("backend")
    backend.add_argument("run_dir", type=Path)
    backend.add_argument("--replicas", type=int, default=8)
    backend.add_argument("--arrivals", type=float, default=0.2)
    backend.add_argument("--still", action="store_true")
    writer = what.add_parser("writer")
    writer.add_argument("file", type=Path)
    writer.add_argument("rate", type=float)
    args = parser.parse_args()
    if args.what == "writer":
        write(args.file, args.rate * 1e6)
    else:
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        made = Backend(args.run_dir, args.still, replicas=args.replicas, arrivals=args.arrivals)
        asyncio.run(made.serve())


if __name__ == "__main__":
    main()
