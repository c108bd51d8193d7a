"""Lines of trials, written by the event loop itself while their storage is fast: a thread for each of them costs three
times what the writing does, as it and the event loop wait for each other."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable

from liverl.util import clocks

# Seconds of one write after which the next ones are given to threads, as all others wait meanwhile.
SLOW_S = 0.02
AGAIN_S = 10.0  # seconds until one is tried here again


class ShortWrites:
    """Where the next write is done."""

    def __init__(self) -> None:
        self._threads_until = 0.0  # on ``clocks.ran``

    async def run(self, write: Callable[[], None], *, here: bool) -> None:
        """Write. ``here``: whether it is a short one, which the event loop may do. Raises what ``write`` raises."""
        began = clocks.ran()
        if not here or began < self._threads_until:
            await asyncio.to_thread(write)
            return
        waits = _waits()
        try:
            write()
        finally:
            ended = clocks.ran()
            if ended - began > SLOW_S and _waits() != waits:  # for the storage, not for a core
                self._threads_until = ended + AGAIN_S


def _waits() -> int:
    """How often this thread has waited for something by itself."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
