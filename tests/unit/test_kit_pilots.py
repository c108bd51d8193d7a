"""The tests' own waiting: what counts as done."""

from __future__ import annotations

import asyncio
import time

from kit.pilots import handled, press, unhandled
from textual.app import App


class Working(App[None]):
    """``t`` has a thread work for a while, ``w`` waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.did: list[str] = []
        self.go_on = asyncio.Event()

    def on_key(self, event: object) -> None:
        self.run_worker(self._thread() if getattr(event, "key", "") == "t" else self._wait())

    async def _thread(self) -> None:
        await asyncio.to_thread(time.sleep, 0.2)
        self.did.append("thread")

    async def _wait(self) -> None:
        self.did.append("asked")
        await self.go_on.wait()
        self.did.append("answered")


async def test_what_a_thread_does_is_waited_for_and_what_the_test_has_to_give_is_not() -> None:
    app = Working()
    async with app.run_test() as pilot:
        await press(pilot, "t")
        assert app.did == ["thread"]
        await press(pilot, "w")
        assert app.did == ["thread", "asked"] and not [*unhandled(app)]
        app.go_on.set()
        await handled(pilot)
        assert app.did == ["thread", "asked", "answered"]


async def test_an_app_that_has_ended_is_not_waited_for() -> None:
    app = Working()
    async with app.run_test() as pilot:
        app.exit()
        await handled(pilot)
