"""The rule for actors that wait for resources of the Ray cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.causes.ray_shortage import ID, shortage
from liverl.diagnose.tracker import GOING, Resolved, Window
from liverl.model import Symptom

HOLD_S = 12.0  # Ray's monitor counts every 5 s: what is placed at once is seen as waiting twice at most


def actor_waits(window: Window) -> Iterator[Symptom | Resolved]:
    """verl asks Ray for more than is free, and waits."""
    load = window.beside.ray_load
    found = shortage(load) if load is not None and window.now.state in GOING else None
    if found is not None:
        yield Symptom(
            id=ID,
            severity=found.severity,
            title=found.title,
            cause=found.cause,
            fix=f"{found.fix} Look with: {found.command}",
            evidence=found.evidence,
        )
