"""Named points at which a drill may kill the backend with SIGKILL: ``LIVERL_CRASH_AT=point[:service]``.

Only the environment variable arms them; without it each call is one comparison. ``mid_swap`` has the stages
``spawned`` (the new process exists), ``ready`` (it serves) and ``promoted`` (the old one is yet to drain) in the
place of a service; ``mid_scale`` is when a new number is wanted and nothing has been done about it.
"""

from __future__ import annotations

import os
import signal

_ARMED = os.environ.get("LIVERL_CRASH_AT")


def crashpoint(point: str, service: str = "") -> None:
    """Die here, if this point (of this service) is the armed one."""
    if _ARMED is not None and _ARMED in (point, f"{point}:{service}"):
        os.kill(os.getpid(), signal.SIGKILL)
