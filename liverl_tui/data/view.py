"""What the interface knows at one moment. Every pane draws from one of these, and from nothing else."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.model import Event, ReplicaStatus, ServiceStatus, Snapshot

Link = Literal[
    "connecting",  # a backend is started or lives, but does not talk to us (yet, or any more)
    "live",  # the backend talks to us
    "lost",  # it has died: what is shown comes from the files, and its services may still run
    "ended",  # the run has ended in order, or this one was opened from its directory
]

KEPT_EVENTS = 500
# States of services.
ENDED = ("stopped", "failed", "gave_up")
STARTABLE = (*ENDED, "backing_off")


def processes(snapshot: Snapshot | None) -> list[ServiceStatus]:
    """The services that can be started and stopped: environments are built, not run."""
    return [s for s in snapshot.services if s.kind != "environment"] if snapshot is not None else []


def actors(snapshot: Snapshot | None) -> tuple[ReplicaStatus, ...]:
    """The replicas that are no services of the run: verl keeps them as actors in Ray."""
    if snapshot is None:
        return ()
    services = {service.name for service in snapshot.services}
    return tuple(replica for replica in snapshot.replicas.items if replica.name not in services)


class View(msgspec.Struct, frozen=True):
    """A snapshot and how we came by it. ``events``: the newest last, ``KEPT_EVENTS`` at most."""

    link: Link = "connecting"
    why: str = ""  # in words, where the link is not live, or live and silent
    snapshot: Snapshot | None = None
    events: tuple[Event, ...] = ()

    @property
    def live(self) -> bool:
        return self.link == "live"
