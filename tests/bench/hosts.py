"""The size and cost of a snapshot of 64 hosts, 512 GPUs and 128 replicas (simulated: ``kit.crowd``), and of its paint.

``python tests/bench/hosts.py [--json FILE]``: milliseconds are CPU time, the median of 9.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "tests"), str(ROOT / "backend"), str(ROOT)]

from kit.crowd import Crowd  # noqa: E402
from kit.screens import NOW, FakeSource, settle  # noqa: E402
from stored import Figure, Recorder, add_option  # noqa: E402

from liverl import snapshot_json  # noqa: E402
from liverl.model import Snapshot  # noqa: E402
from liverl.snapshot_json import decode_snapshot, encode_for_views  # noqa: E402
from liverl.util import redact  # noqa: E402
from liverl.util.redacted_json import CleanTexts  # noqa: E402
from liverl_tui.app.app import LiverlApp  # noqa: E402
from liverl_tui.data.view import View  # noqa: E402
from liverl_tui.screens.dashboard import Dashboard  # noqa: E402

ROUNDS = 9


def cost(call: Callable[[], object]) -> float:
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return sorted(took)[ROUNDS // 2] * 1000


async def paint(size: tuple[int, int]) -> float:
    crowd, took = Crowd(hosts=64, gpus=512, replicas=128, lost=17, idle=70), []
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=crowd.snapshot(NOW))))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        assert isinstance(app.screen, Dashboard)
        for tick in range(ROUNDS):
            news = View(link="live", snapshot=crowd.snapshot(NOW + tick))
            began = time.process_time()
            app.screen.show(news)
            await settle(pilot)
            took.append(time.process_time() - began)
    return sorted(took)[ROUNDS // 2] * 1000


def forgotten(shown: Snapshot) -> bytes:
    """As the first of a backend: no text was looked at before."""
    snapshot_json._clean = CleanTexts()
    return encode_for_views(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_option(parser)
    args = parser.parse_args()
    recorder = Recorder("A run on 64 hosts with 512 GPUs and 128 replicas (simulated)")
    crowd = Crowd(hosts=64, gpus=512, replicas=128, lost=17, idle=70)
    shown = crowd.snapshot(NOW)
    moving = iter([crowd.snapshot(NOW + tick) for tick in range(ROUNDS)])
    sent = encode_for_views(shown)
    moves, first = cost(lambda: encode_for_views(next(moving))), cost(lambda: forgotten(shown))
    found = [
        Figure("bytes of a snapshot", len(sent) / 1e3, "kB"),
        Figure("encode a snapshot as its numbers move: CPU", moves, "ms"),
        Figure("the same, the first time: CPU", first, "ms"),
        Figure("decode a snapshot: CPU", cost(lambda: decode_snapshot(sent)), "ms"),
    ]
    print(f"all texts looked at for secrets: {cost(lambda: redact.data(sent)):.1f} ms more")
    for size in ((80, 24), (120, 40), (200, 50)):
        found.append(Figure(f"paint a snapshot, {size[0]}x{size[1]}: CPU", asyncio.run(paint(size)), "ms"))
    for one in found:
        print(f"{one.what:45} {one.value:8.1f} {one.unit}")
    if args.json:
        recorder.write(args.json, found)


if __name__ == "__main__":
    main()
