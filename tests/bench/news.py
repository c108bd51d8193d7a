"""How soon a client hears of a finished step, and what looking costs: ``python tests/bench/news.py [--quick]``.

A real backend over 10 idle toys. A record is appended to ``metrics.jsonl`` at moments that no interval is a multiple
of; the time until its event arrives at a client is printed, and CPU and memory of backend and keeper, with and without
that client, while nothing is written.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[2:4])

from peers import Ours, Toy  # noqa: E402
from processes import cpu_seconds, kill_payloads, pss_mib  # noqa: E402

from liverl.control.client import Client, connect  # noqa: E402
from liverl.model import Event  # noqa: E402


async def idle(pids: list[int], seconds: float) -> str:
    """CPU of the least of three windows; others on the machine can only make it dearer."""
    found = []
    for _ in range(3):
        before, began = cpu_seconds(pids), time.monotonic()
        await asyncio.sleep(seconds)
        found.append((cpu_seconds(pids) - before) / (time.monotonic() - began) * 1e3)
    return f"{min(found):.2f} ms/s ({', '.join(f'{v:.2f}' for v in found)}), PSS {pss_mib(pids):.1f} MiB"


async def latencies(client: Client, run_dir: Path, count: int, rest: float) -> list[float]:
    """Seconds from the writing of a record to its event."""
    found: list[float] = []
    written = {0: 0.0}
    stream = client.stream((await client.snapshot()).seq, snapshots=True)
    with open(run_dir / "metrics.jsonl", "ab", buffering=0) as file:

        async def write() -> None:
            for step in range(1, count + 1):
                await asyncio.sleep(rest + random.random() * 2)
                written[step] = time.monotonic()
                file.write(f'{{"step": {step}, "data": {{"critic/score/mean": 0.5}}}}\n'.encode())

        writing = asyncio.create_task(write())
        async for item in stream:
            if isinstance(item, Event) and item.kind == "step":
                found.append(time.monotonic() - written[int(item.data["step"])])
                if len(found) == count:
                    break
        await writing
    await stream.aclose()
    return found


async def measure(run: Ours, quick: bool) -> None:
    pids, seconds = run.pids(), 5.0 if quick else 15.0
    await asyncio.sleep(8)  # what a start leaves to do is not idling
    print(f"nobody looks:    {await idle(pids, seconds)}")
    async with connect(run.run.run_dir, name="bench") as client:
        looking = asyncio.create_task(_listen(client))
        await asyncio.sleep(2)
        print(f"a client looks:  {await idle(pids, seconds)}")
        looking.cancel()
        for name, rest in (("steps every second", 0.1), ("steps after a pause", 7.0)):
            count = 5 if quick and rest > 1 else 12
            found = await latencies(client, run.run.run_dir, count, rest)
            (run.run.run_dir / "metrics.jsonl").unlink()
            shown = f"median {statistics.median(found) * 1e3:.0f} ms, most {max(found) * 1e3:.0f} ms"
            print(f"{name + ':':21}{shown} (n={count})")
            await asyncio.sleep(3)


async def _listen(client: Client) -> None:
    async for _ in client.stream(0, snapshots=True):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, about a minute and a half")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="news-") as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        run = Ours(Path(folder, "ours"), [Toy(f"sleep{number}", "sleep") for number in range(10)])
        try:
            run.ready()
            asyncio.run(measure(run, args.quick))
        finally:
            run.close()
            kill_payloads(run.folder)


if __name__ == "__main__":
    main()
