"""The state of the interface at one moment: the only source from which panes draw."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.model import Event, ReplicaStatus, ServiceStatus, Snapshot

Link = Literal[
    "connecting",  # the backend is starting, or runs but does not answer
    "live",  # connected to the backend
    "lost",  # the backend has died or refused us; files are shown, and services may still run
    "ended",  # the run has ended
    "demo",  # a recorded run is played; ``why`` is set while it stands still
]

ITS_CLOCK = ", its clock "  # before the time of day in a recording, in ``why`` and ``playing``
KEPT_EVENTS = 500  # newest events kept for display
# States of services: not running, and those in which a start makes sense.
ENDED = ("stopped", "failed", "gave_up")
STARTABLE = (*ENDED, "backing_off")


def processes(snapshot: Snapshot | None) -> list[ServiceStatus]:
    """Return the services that are processes; environments are built, not run."""
    return [s for s in snapshot.services if s.kind != "environment"] if snapshot is not None else []


def actors(snapshot: Snapshot | None) -> tuple[ReplicaStatus, ...]:
    """Return the replicas that are no services of the run: those that verl manages as Ray actors."""
    if snapshot is None:
        return ()
    services = {service.name for service in snapshot.services}
    return tuple(replica for replica in snapshot.replicas.items if replica.name not in services)


_WHY_NO_BACKEND = {"ended": "this run has ended", "demo": "this is a recorded run"}


def why_no_backend(link: Link) -> str:
    """Why no backend answers, while ``link`` is neither live nor connecting."""
    return _WHY_NO_BACKEND.get(link, "no backend is running")


class View(msgspec.Struct, frozen=True):
    """A snapshot with its origin. ``events``: oldest first, at most ``KEPT_EVENTS``."""

    link: Link = "connecting"
    why: str = ""  # reason of the link in words; also set if a live backend stops answering
    snapshot: Snapshot | None = None  # None until the first one
    events: tuple[Event, ...] = ()
    silent: bool = False  # the backend's process lives, but does not answer; ``why`` says more
    playing: str = ""  # of a recorded run that is played: how far it is, in words
    speed: float = 1.0  # the same: times as fast as recorded

    @property
    def live(self) -> bool:
        """Whether the interface is connected to the backend."""
        return self.link == "live"

    @property
    def over(self) -> bool:
        """Whether nothing of what is shown changes any more: the run has ended, or its recording is at its end."""
        return self.link == "ended" or (self.demo and bool(self.why) and not self.playing)

    @property
    def demo(self) -> bool:
        """Whether a recorded run is played, whose files are removed when the interface closes."""
        return self.link == "demo"
