"""The size and cost of a snapshot of 64 hosts, 512 GPUs and 128 replicas (simulated: ``kit.crowd``), and of its paint.

``python tests/bench/hosts.py``: milliseconds are CPU time, the median of 9.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "backend"), str(ROOT)]

from kit.crowd import Crowd  # noqa: E402
from kit.screens import NOW, FakeSource, settle  # noqa: E402

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
    crowd = Crowd(hosts=64, gpus=512, replicas=128, lost=17, idle=70)
    shown = crowd.snapshot(NOW)
    moving = iter([crowd.snapshot(NOW + tick) for tick in range(ROUNDS)])
    sent = encode_for_views(shown)
    print(
        f"snapshot {len(sent)} bytes; encode {cost(lambda: encode_for_views(next(moving))):.1f} ms as it moves, "
        f"{cost(lambda: forgotten(shown)):.1f} ms the first time; all of it looked at for secrets: "
        f"{cost(lambda: redact.data(sent)):.1f} ms more"
    )
    print(f"decode {cost(lambda: decode_snapshot(sent)):.1f} ms")
    for size in ((80, 24), (120, 40), (200, 50)):
        print(f"paint {size[0]}x{size[1]}: {asyncio.run(paint(size)):.1f} ms")


if __name__ == "__main__":
    main()
