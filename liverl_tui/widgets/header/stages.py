"""The stages of a run's start, and how far each of them is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from liverl.model import ServiceStatus, Snapshot
from liverl_tui.text.status_label import (
    SnapshotIndex,
    StatusLabel,
    of_replica,
    of_service,
    ready_now,
    standing,
)
from liverl_tui.text.words import GLYPH, STYLE

# A stage has the label of the service whose state comes first here.
_WORST = (
    "failed",
    "gave_up",
    "backing_off",
    "degraded",
    "stopping",
    "starting",
    "preparing",
    "waiting",
    "stopped",
    "ready",
)
_MANAGED = ("environment", "ray", "replica", "proxy", "sessions", "trainer", "task")
# verl's trainer starts the replicas, and what carries the trials waits for them
_VERL = ("environment", "ray", "trainer", "replica", "proxy", "sessions", "task")
_NAMES = {"environment": "environments", "replica": "replicas", "task": "tasks"}
_SHORT = {"environment": "env"}


class Stage(NamedTuple):
    """One stage: the services of one kind. ``share``: how many are ready, as ``1/2``; may be empty. ``done``: all of
    them are ready, or for tasks, stopped; ``label`` then matters only if it says something else than ``ready``."""

    name: str
    short: str
    label: StatusLabel
    share: str = ""
    done: bool = False


def stages(snapshot: Snapshot, now: float) -> tuple[Stage, ...]:
    """The stages that this run has, in the order in which they start. ``now``: Unix time."""
    run_stages = []
    for kind in _MANAGED if snapshot.topology == "managed" else _VERL:
        services = [s for s in snapshot.services if s.kind == kind]
        if kind == "replica":
            if snapshot.replicas.expected or snapshot.replicas.items:
                run_stages.append(_replicas(snapshot, now))
            elif services:  # of a run that is watched, by their logs
                run_stages.append(_stage(kind, services, now))
        elif services:
            stage = _stage(kind, services, now)
            if kind != "task" or not stage.done:  # a task that is done needs no stage
                run_stages.append(stage)
    return tuple(run_stages)


def _stage(kind: str, services: Sequence[ServiceStatus], now: float) -> Stage:
    stands = {s.name for s in services if standing(s, now) is not None}
    worst = min(services, key=lambda s: (s.name not in stands, _WORST.index(s.state), s.since))
    ready = "stopped" if kind == "task" else "ready"
    done = sum(s.state == ready and s.name not in stands for s in services)
    count = f"{done}/{len(services)}" if len(services) > 1 and done < len(services) else ""
    name, label = _NAMES.get(kind, kind), of_service(worst, now)
    return Stage(name, _SHORT.get(kind, kind), label, count, done == len(services))


def _replicas(snapshot: Snapshot, now: float) -> Stage:
    """All replicas as one stage, with the label of the replica that is furthest behind."""
    replicas = snapshot.replicas
    snapshot_index = SnapshotIndex(snapshot)
    count = f"{ready_now(snapshot_index, now)}/{replicas.expected}"
    behind = [(r, of_replica(r, snapshot_index, now)) for r in replicas.items]
    behind = [(r, s) for r, s in behind if r.state != "ready" or s.problem]
    if behind:
        rank = {state: place for place, state in enumerate(_WORST)}
        worst = min(
            behind, key=lambda rs: (rank.get(rs[0].state, 0), rs[0].progress or 0.0, rs[0].since or 0.0)
        )
        return Stage("replicas", "replicas", worst[1], count)
    if replicas.ready < replicas.expected:
        return Stage("replicas", "replicas", StatusLabel(GLYPH["waiting"], "missing", "warn"), count)
    return Stage("replicas", "replicas", StatusLabel(GLYPH["ready"], "ready", STYLE["ready"]), count, True)
