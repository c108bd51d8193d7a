"""Named points at which a test can kill the backend, or hold up its main loop.

``LIVERL_CRASH_AT=point[:service]``: SIGKILL. ``mid_swap`` takes a stage instead of a service: ``spawned`` (the new
process exists), ``ready`` (it serves) or ``promoted`` (the replaced one does not drain yet). ``mid_scale`` is after a
new number of replicas was recorded, before any was started or stopped.

``LIVERL_BLOCK_AT=point:FILE``: a wait that holds up the main loop (``scan``), or the thread of the look before the
trainer starts (``second_look``), while FILE exists, at most ``BLOCK_S`` seconds.
``FILE.blocked`` exists from then on until it has waited: it stays where the process ends before, and no other waits
then.

Only the environment variables activate them; without them each call costs one comparison.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_ACTIVE = os.environ.get("LIVERL_CRASH_AT")
_POINT, _, _FILE = os.environ.get("LIVERL_BLOCK_AT", "").partition(":")
BLOCK_S = 300.0  # seconds; longer than several commands, one after another, on a slow machine


def crashpoint(point: str, service: str = "") -> None:
    """Kill this process with SIGKILL if ``LIVERL_CRASH_AT`` names this point, or this point of this service."""
    if _ACTIVE is not None and _ACTIVE in (point, f"{point}:{service}"):
        os.kill(os.getpid(), signal.SIGKILL)


def blockpoint(point: str) -> None:
    """Hold up the caller, as a call that does not return would, if ``LIVERL_BLOCK_AT`` names this point and its file
    exists."""
    if not _FILE or point != _POINT or not os.path.exists(_FILE):
        return
    marker, until = Path(f"{_FILE}.blocked"), time.monotonic() + BLOCK_S
    if marker.exists():
        return
    marker.touch()
    while os.path.exists(_FILE) and time.monotonic() < until:
        time.sleep(0.02)
    marker.unlink()
