"""Requests to stop that come as signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

SAME_REQUEST_S = 2.0


class StopRequests:
    """Counts how often a process was asked to stop.

    A batch system that ends a job sends SIGTERM to each of its processes, several times within milliseconds. So a
    SIGTERM that comes soon after the first request belongs to that request. Each SIGINT is one of its own: somebody
    has pressed Ctrl-C again.
    """

    def __init__(self, window: float = SAME_REQUEST_S, clock: Callable[[], float] = time.monotonic) -> None:
        """``window``: seconds after the first request in which a SIGTERM is no other one."""
        self.count = 0
        self.newest = ""  # name of the newest signal that was a request of its own
        self._window = window
        self._clock = clock
        self._first = 0.0  # when the first request came

    def received(self, number: int) -> bool:
        """Note that signal ``number`` has come; whether it is a request of its own."""
        now = self._clock()
        if self.count and number == signal.SIGTERM and now - self._first < self._window:
            return False
        if not self.count:
            self._first = now
        self.count += 1
        self.newest = signal.Signals(number).name
        return True

    def requested(self) -> None:
        """Note a request that came otherwise than as a signal, such as a command. Only the first one counts."""
        if not self.count:
            self._first = self._clock()
            self.count = 1
