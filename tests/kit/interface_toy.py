"""The interface on a real terminal, with made-up facts: ``python -m kit.interface_toy RUN_DIR [fault|flood|hostile]``.

``fault``: the source breaks after its first view. ``flood``: facts change at a high rate, so that a terminal which
nobody reads fills up. ``hostile``: every text holds what a terminal would obey.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from kit.hostile import ON_A_TERMINAL, infect
from kit.hostile_run import detail, fill, the_view
from kit.screens import FakeSource, view
from liverl_tui.app import lifecycle
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View


class Broken(FakeSource):
    async def views(self) -> AsyncIterator[View]:
        yield view()
        await asyncio.sleep(0.2)
        raise RuntimeError("a fault of the interface")


class Flood(FakeSource):
    async def views(self) -> AsyncIterator[View]:
        step = 0
        while True:
            step += 1
            yield view(step=step % 20, phase="#" * (40 + step % 40))
            await asyncio.sleep(0.02)


def main() -> int:
    kind = sys.argv[2] if len(sys.argv) > 2 else ""
    # A stuck terminal is given up soon; elsewhere an orderly end gets all the time it needs.
    lifecycle.PATIENCE_S = 0.5 if kind == "flood" else 60.0
    made = {"fault": Broken, "flood": Flood}.get(kind, FakeSource)
    source = made(sys.argv[1], view=view(run_dir=sys.argv[1]))
    if kind == "hostile":
        fill(Path(sys.argv[1]), ON_A_TERMINAL)
        source = made(sys.argv[1], view=the_view(Path(sys.argv[1]), os.getpid(), ON_A_TERMINAL))
        answer = msgspec.to_builtins(infect(detail(), ON_A_TERMINAL))
        source.answer = {**answer, "text": f"{ON_A_TERMINAL}done"}
    app = LiverlApp(source, theme="auto")
    app.run(mouse=False)
    with contextlib.suppress(OSError):  # the terminal may be gone
        print("left in order", flush=True)
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main())
