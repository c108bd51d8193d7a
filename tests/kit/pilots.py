"""Driving an app under test faster than Pilot does: keys in one go, and waiting for what is to be seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from textual import events
from textual.keys import _character_to_key

from liverl_tui.app import LiverlApp

_CHARACTERS = {"slash": "/", "space": " ", "comma": ",", "full_stop": "."}


async def press(pilot: Any, *keys: str) -> None:
    """All keys as fast as a terminal may send them, then wait once. ``Pilot.press`` waits after each, for 40 ms."""
    for key in keys:
        named = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
        event = events.Key(named, key if len(key) == 1 else _CHARACTERS.get(key))
        event.set_sender(pilot.app)
        pilot.app._driver.send_message(event)
    await pilot.pause()
    await pilot.pause(0)


async def until(
    pilot: Any, holds: Callable[[], object], shown: Callable[[], str] = lambda: "it did not come"
) -> None:
    """Wait for ``holds``; fails with what is ``shown`` after so long that no busy machine is the cause."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, shown()
        await pilot.pause(0.005)


class Driven:
    """An app under test, one part of which is looked at: subclasses say what its ``text`` is."""

    def __init__(self, pilot: Any) -> None:
        self.pilot = pilot
        self.app: LiverlApp = pilot.app

    @property
    def text(self) -> str:
        raise NotImplementedError

    async def press(self, *keys: str) -> None:
        await press(self.pilot, *keys)

    async def until(self, holds: Callable[[], object]) -> None:
        await until(self.pilot, holds, lambda: self.text)
