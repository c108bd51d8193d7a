"""Named points at which a test can kill the backend with SIGKILL: ``LIVERL_CRASH_AT=point[:service]``.

Only the environment variable activates them; without it each call costs one comparison. ``mid_swap`` takes a stage
instead of a service: ``spawned`` (the new process exists), ``ready`` (it serves) or ``promoted`` (the replaced one
does not drain yet). ``mid_scale`` is after a new number of replicas was recorded, before any was started or stopped.
"""

from __future__ import annotations

import os
import signal

_ACTIVE = os.environ.get("LIVERL_CRASH_AT")


def crashpoint(point: str, service: str = "") -> None:
    """Kill this process with SIGKILL if ``LIVERL_CRASH_AT`` names this point, or this point of this service."""
    if _ACTIVE is not None and _ACTIVE in (point, f"{point}:{service}"):
        os.kill(os.getpid(), signal.SIGKILL)
