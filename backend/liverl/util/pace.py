"""How often the backend looks at a run: seldom while nothing happens and nobody watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from liverl.util.ticks import until_tick

QUIET_AFTER = 20.0  # seconds without a change after which a run that nobody watches is quiet
QUIET_PERIOD = 15.0  # seconds between two looks at a quiet run


class Pace:
    """Knows whether a run is quiet, and lengthens the pauses between two looks at it then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds and never steps back."""
        self._clock = clock
        self._changed_at = clock()
        self._watched = False
        self._pauses: set[asyncio.Future[None]] = set()

    @property
    def quiet(self) -> bool:
        """Whether nothing has changed for ``QUIET_AFTER`` seconds and nobody watches."""
        return not self._watched and self._clock() - self._changed_at >= QUIET_AFTER

    def changed(self) -> None:
        """Note that something has happened. If the run was quiet, every pause ends now."""
        if self.quiet:
            for pause in self._pauses:
                _end(pause)
        self._changed_at = self._clock()

    def watched_by(self, clients: int) -> None:
        """Note how many clients are connected. The run becomes quiet only some time after the last one has left."""
        self.changed()
        self._watched = clients > 0

    def until_next(self, seconds: float, quiet: float = QUIET_PERIOD) -> float:
        """Return the pause until the next of the looks that are ``seconds`` apart, or at least ``quiet`` seconds while
        the run is quiet (see ``until_tick``)."""
        return until_tick(max(seconds, quiet) if self.quiet else seconds)

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds``, or until a quiet run changes."""
        loop = asyncio.get_running_loop()
        pause: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _end, pause)
        self._pauses.add(pause)
        try:
            await pause
        finally:
            timer.cancel()
            self._pauses.discard(pause)


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
