"""Handle keys one at a time.

Textual gives each key to the widget that has the focus when the key arrives. What the previous key does, such as
opening a dialog, happens later, so keys that arrive together (typed ahead, or over a slow line) miss the dialog that
they are meant for. Here a key waits until the previous one has been handled.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from textual import events
from textual.message import Message
from textual.screen import Screen

from liverl_tui.term.private import HookedApp

PATIENCE_S = 0.25  # the longest that a key waits for the previous one
ANSWER_S = 0.1  # after a key, for which changes are painted at once: they are what the key does


class Delivered(Message):
    """Sentinel posted after each key; when it arrives, the key has been handled.

    ``again``: posted a second time, after the messages that the key itself caused.
    """

    def __init__(self, turn: int, screen: Screen[object], *, again: bool) -> None:
        super().__init__()
        self.turn = turn
        self.again = again
        self.screen = screen  # the active screen when the key was delivered


class KeysInOrder(HookedApp):
    """An app that handles keys and pastes one at a time, in the order in which they arrive."""

    def __init__(self, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._waiting: deque[events.Event] = deque()
        self._turn = 0  # number of the key that is being handled
        self._timeout: asyncio.TimerHandle | None = None  # runs while a key is being handled
        self._key_at = float("-inf")  # monotonic seconds of the last key

    async def on_event(self, event: events.Event) -> None:
        """Queue a key or a paste while the previous one is being handled; pass all other events on at once."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif self._timeout is not None:
            self._waiting.append(event)
        else:
            await self._deliver(event)

    @property
    def answers_key(self) -> bool:
        """Whether a key was pressed a moment ago and no further one waits: what changes now is its answer. Of keys that
        arrive together, only the last has one, since every paint costs bytes."""
        return not self._waiting and time.monotonic() - self._key_at < ANSWER_S

    async def _deliver(self, event: events.Event) -> None:
        if not self.screen_stack:
            return  # the app is closing
        self._key_at = time.monotonic()
        target, screen = self.focused or self.screen, self.screen
        self._turn += 1
        await super().on_event(event)
        if target.post_message(Delivered(self._turn, screen, again=True)):
            loop = asyncio.get_running_loop()
            self._timeout = loop.call_later(PATIENCE_S, self.call_next, self._next_key, self._turn)

    async def on_delivered(self, message: Delivered) -> None:
        """Let the next key go, once the messages of the last one were handled and a screen that it opened has its
        focus."""
        message.stop()
        if not self.screen_stack:
            return  # the app is closing
        target = self.focused or self.screen
        if message.again and target.post_message(Delivered(message.turn, message.screen, again=False)):
            return
        if self.screen is message.screen:
            await self._next_key(message.turn)
        else:
            self.screen.call_after_refresh(self.call_next, self._next_key, message.turn)

    async def _next_key(self, turn: int) -> None:
        """Deliver the next waiting key, if key number ``turn`` is still the one being handled."""
        if turn != self._turn or self._timeout is None:
            return  # that key has timed out already
        self._timeout.cancel()
        self._timeout = None
        if self._waiting:
            await self._deliver(self._waiting.popleft())
