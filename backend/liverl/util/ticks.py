"""Wake-up times of periodic loops."""

from __future__ import annotations

import time


def until_tick(seconds: float) -> float:
    """Return the seconds until the monotonic clock is next a multiple of ``seconds``, at least ``seconds /
    2``.

    Loops with the same period then wake together, in one iteration of the event loop: wake-ups dominate the
    cost of an idle backend.
    """
    left = seconds - time.monotonic() % seconds
    return left if left >= seconds / 2 else left + seconds
