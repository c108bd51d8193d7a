"""Keys one at a time. Textual hands each key to the widget that has the focus when it arrives; what the key before
it does, such as opening a dialog, comes later. Keys that come in one piece (typed ahead, or over a slow line) then
go past the dialog that they are meant for. Here a key waits until the one before it has had its effect."""

from __future__ import annotations

import asyncio
from collections import deque

from textual import events
from textual.message import Message
from textual.screen import Screen

from liverl_tui.term.private import HookedApp

PATIENCE_S = 0.25  # for the effect of a key; after that the next key is handled


class Delivered(Message):
    """Sentinel posted after each key; when it arrives, the key has been handled.

    ``again``: posted a second time, after the messages that the key itself caused.
    """

    def __init__(self, turn: int, screen: Screen[object], *, again: bool) -> None:
        super().__init__()
        self.turn = turn
        self.again = again
        self.screen = screen  # the one that the key was for


class KeysInOrder(HookedApp):
    """An app that gets its keys one at a time."""

    def __init__(self, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._ahead: deque[events.Event] = deque()
        self._turn = 0
        self._patience: asyncio.TimerHandle | None = None

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif self._patience is not None:
            self._ahead.append(event)
        else:
            await self._deliver(event)

    async def _deliver(self, event: events.Event) -> None:
        if not self.screen_stack:
            return  # we are closing
        target, screen = self.focused or self.screen, self.screen
        self._turn += 1
        await super().on_event(event)
        if target.post_message(Delivered(self._turn, screen, again=True)):
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(PATIENCE_S, self.call_next, self._go_on, self._turn)

    async def on_delivered(self, message: Delivered) -> None:
        """The key has gone through everything. A message that its widget makes of it may still be on its way up, and
        a screen that it has opened has to get its focus."""
        message.stop()
        if not self.screen_stack:
            return  # we are closing
        target = self.focused or self.screen
        if message.again and target.post_message(Delivered(message.turn, message.screen, again=False)):
            return
        if self.screen is message.screen:
            await self._go_on(message.turn)
        else:
            self.screen.call_after_refresh(self.call_next, self._go_on, message.turn)

    async def _go_on(self, turn: int) -> None:
        if turn != self._turn or self._patience is None:
            return  # it came too late, and has not been waited for
        self._patience.cancel()
        self._patience = None
        if self._ahead:
            await self._deliver(self._ahead.popleft())
