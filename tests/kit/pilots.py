"""Driving an app under test faster than Pilot does: keys in one go, and waiting for what is to be seen."""

from __future__ import annotations

import asyncio
import time
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from textual import events
from textual.app import App
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key

from kit.waiting import PATIENCE_S
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.base import RunScreen
from liverl_tui.term.ordered_keys import KeysInOrder

SECONDS = PATIENCE_S  # a loaded machine takes that long, and then something is wrong


async def press(pilot: Any, *keys: str) -> None:
    """All keys as fast as a terminal may send them, then wait once. ``Pilot.press`` waits after each, for 40 ms."""
    for key in keys:
        named = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
        event = events.Key(named, key if len(key) == 1 else _character(named))
        event.set_sender(pilot.app)
        pilot.app._driver.send_message(event)
    await handled(pilot)


def _character(key: str) -> str | None:
    """What a key with a name types."""
    try:
        return unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(key, key)))
    except KeyError:
        return None


async def handled(pilot: Any) -> None:
    """Until the app waits for somebody else: all that it was given has had its effect. ``Pilot.pause`` takes a
    process for idle that uses no processor, be it that it gets none. Fails with what is left to do."""
    app: App[Any] = pilot.app
    loop = asyncio.get_running_loop()
    deadline = time.monotonic() + SECONDS
    while not app._exit and app._exception is None:
        for screen in (*app._background_screens, app.screen):
            screen._on_timer_update()  # what is to be painted is, as at the end of each ``Pilot.pause``
        await asyncio.sleep(0)
        # Only a look at which no task can go on is one at which nothing is on its way from one to another.
        left = "a task can go on" if loop._ready else next(unhandled(app), None)  # type: ignore[attr-defined]
        if left is None:
            return
        assert time.monotonic() < deadline, left
        if not loop._ready:  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)  # it is for a timer, or a thread


def unhandled(app: App[Any]) -> Iterator[str]:
    """What an app has begun and not brought to its end. Workers that wait for an answer are not told: it may be the
    test's to give."""
    if isinstance(app, KeysInOrder) and (app._timeout is not None or app._waiting):
        yield "a key is on its way"
    for worker in app.workers:
        if not worker.is_finished and worker._task is not None and _in_a_thread(worker._task.get_coro()):
            yield f"the worker {worker.name or worker.group} is at work"
    for pump in (
        app,
        *(node for screen in app.screen_stack for node in screen.walk_children(with_self=True)),
    ):
        if not pump._message_queue.empty() or pump._pending_message or pump._next_callbacks:
            yield f"{pump} has messages"
    screen = app.screen
    if isinstance(screen, RunScreen) and not screen._composed:
        yield f"{screen} is not complete"  # it looks again by a timer of its own
    for screen in (*app._background_screens, app.screen):
        if screen._callbacks or screen._dirty_widgets or screen._layout_required or screen._repaint_required:
            yield f"{screen} is to be painted"


def _in_a_thread(coroutine: Any) -> bool:
    """Whether what it waits for is done by a thread."""
    while coroutine is not None and getattr(coroutine, "cr_code", None) is not asyncio.to_thread.__code__:
        coroutine = getattr(coroutine, "cr_await", None)
    return coroutine is not None


async def until(
    pilot: Any, holds: Callable[[], object], shown: Callable[[], str] = lambda: "it did not come"
) -> None:
    """Wait for ``holds``; fails with what is ``shown`` after so long that no busy machine is the cause."""
    deadline = time.monotonic() + SECONDS
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
