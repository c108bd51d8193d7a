"""When periodic work wakes up."""

from __future__ import annotations

import time


def until_tick(seconds: float) -> float:
    """Seconds until the monotonic clock shows a multiple of ``seconds``, and at least half of it.

    Loops that wake together share one turn of the event loop; an idle backend's cost is its wake-ups.
    """
    left = seconds - time.monotonic() % seconds
    return left if left >= seconds / 2 else left + seconds
