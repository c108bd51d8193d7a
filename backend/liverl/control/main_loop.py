"""What the thread of the control socket knows of the backend's main loop, and how requests get there."""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
from collections.abc import Callable
from typing import Any

from liverl.util import clocks

WORTH_TELLING_S = 0.5  # seconds; shorter turns of the loop are ordinary


class _TimedSelector(selectors.DefaultSelector):
    """Notes when the loop has come back from waiting for events. ``since``: of ``clocks.ran``; None while it waits."""

    since: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.since = None
        try:
            return super().select(timeout)
        finally:
            self.since = clocks.ran()


class LoopWatch:
    """Says for how long the loop that it makes has been in one turn, and where. Its methods may be called from any
    thread; they cost the loop two readings of a clock per turn."""

    def __init__(self) -> None:
        self._selector = _TimedSelector()
        self._thread: int | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, for the thread that calls this."""
        self._thread = threading.get_ident()
        return asyncio.SelectorEventLoop(self._selector)

    @property
    def busy(self) -> float:
        """Seconds since the loop began its present turn; 0 while it waits for events."""
        since = self._selector.since
        return 0.0 if since is None else max(0.0, clocks.ran() - since)

    def doing(self) -> str:
        """The function of liverl that the loop's thread is in, as ``module.function, line N``; "" if in none."""
        frame = sys._current_frames().get(self._thread or 0)
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith("liverl.") and module != __name__:
                return f"{module}.{frame.f_code.co_name}, line {frame.f_lineno}"
            frame = frame.f_back
        return ""


class Handover:
    """A request on its way to the main loop: it is taken there or withdrawn, never both. ``on_taken`` is called by the
    main loop."""

    def __init__(self, on_taken: Callable[[], None] = lambda: None) -> None:
        self._settled = threading.Lock()
        self._on_taken = on_taken

    def take(self) -> bool:
        """Whether the request is to be carried out. Called once, by the main loop."""
        if not self._settled.acquire(blocking=False):
            return False
        self._on_taken()
        return True

    def withdraw(self) -> bool:
        """Whether the main loop has not taken it, and will not."""
        return self._settled.acquire(blocking=False)


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Call ``function`` soon on ``loop``, from another thread; nothing if that loop has ended."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
