"""The rules for what waits for resources of the Ray cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.causes.verdict.ray_shortage import ID, amount, shortage, wanted
from liverl.diagnose.tracker import GOING, Resolved, Window
from liverl.model import Symptom

# Ray's monitor counts every 5 s. What asks for more than one CPU is a placement group, or an actor that keeps what it
# gets: at a healthy start it is placed at once, and counted as waiting once at most.
GROUP_HOLD_S = 6.0
# Actors need a CPU while they are created, and wait for each other's.
HOLD_S = 20.0


def group_waits(window: Window) -> Iterator[Symptom | Resolved]:
    """verl asks Ray for more than the cluster has free, and waits without a time limit of its own.

    - ``ray status`` shows resources that another job uses -> wait, or end that job
    - Ray was started with fewer than the host has -> start it again with those that the alert names
    - the host has no more -> ask for less: ``infrastructure.ngpus_per_node``
    """
    yield from _waits(window, groups=True)


def actor_waits(window: Window) -> Iterator[Symptom | Resolved]:
    """It is raised later for a request for at most one CPU or GPU: while actors are created, they wait for each
    other's for a moment."""
    yield from _waits(window, groups=False)


def _waits(window: Window, *, groups: bool) -> Iterator[Symptom | Resolved]:
    load = window.beside.ray_load
    found = shortage(load) if load is not None and window.now.state in GOING else None
    if load is None or found is None or (amount(wanted(load) or {}) > 1) != groups:
        return
    yield Symptom(
        id=ID,
        severity=found.severity,
        title=found.title,
        cause=found.cause,
        fix=f"{found.fix} Look with: {found.command}",
        evidence=found.evidence,
    )
