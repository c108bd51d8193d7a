"""What the environments of a run are once it has ended. Pure, and apart from their building: viewers do not build."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from liverl.model import ServiceStatus


def unused(services: Iterable[ServiceStatus], ended_at: float) -> list[ServiceStatus]:
    """The services of a run that has ended at the Unix time ``ended_at``: nothing uses its environments any more, or
    looks whether they are still there, so none of them is ready. Why one has failed stays. Pure."""
    return [
        msgspec.structs.replace(
            service, state="stopped", why="the run has ended", since=ended_at, progress=None
        )
        if service.kind == "environment" and service.state not in ("failed", "stopped")
        else service
        for service in services
    ]
