"""A replica as the proxy, the trainer and the views need it, whoever started its process.

Managed replicas are services of ours; verl's are Ray actors that discovery finds. Both come as ``ReplicaEndpoint``.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from liverl.control.messages import CommandError
from liverl.model import IN_WORKERS, ServiceState
from liverl.supervise.services import state_machine
from liverl.supervise.services.slot import Slot


class ReplicaEndpoint(msgspec.Struct, frozen=True):
    """One replica. ``address``: ``http://host:port`` where it responds or will respond; None = not known.
    ``generation`` counts its processes: facts about an older one are void. ``since``: Unix time at which it entered
    ``state``."""

    name: str
    state: ServiceState
    why: str
    address: str | None
    generation: int
    restarts: int
    since: float
    gpus: tuple[str, ...]
    kind: str
    pids: tuple[int, ...] = ()  # of verl's actors; the processes of services are in their process tree
    stage: str | None = None  # of its start, if known
    progress: float | None = None  # 0..1
    ip: str | None = None  # of verl's: the address of its host; None while it is on none

    @property
    def serving(self) -> bool:
        """Whether it can answer requests: ready or degraded."""
        return self.state in state_machine.SERVING


def owned_by_verl(name: str) -> CommandError:
    """The error for a command to restart, stop or start a replica that is an actor of verl's."""
    return CommandError("foreign", f"{name} is managed by verl; restart the trainer to restart it")


def hosted_in_workers(name: str) -> CommandError:
    """The error for a command to restart, stop or start what carries the trials in topology in_process. ``name``:
    proxy or sessions."""
    return CommandError("foreign", f"this run has no service {name}: {IN_WORKERS}")


def slot_address(slot: Slot) -> str | None:
    """Where a replica of ours listens, or will listen when it is up; None without a process."""
    process = slot.current.process
    port = process.ports.get("http") if process else None
    if port is None or slot.state not in (*state_machine.LIVE, "stopping"):
        return None
    return f"http://{slot.spec.host}:{port}"


def slot_endpoints(slots: Iterable[Slot], kind: str) -> list[ReplicaEndpoint]:
    """The replicas among our services, in the order of ``slots``."""
    return [slot_endpoint(slot, kind) for slot in slots if slot.spec.kind == "replica"]


def slot_endpoint(slot: Slot, kind: str) -> ReplicaEndpoint:
    """One of our services as a replica."""
    return ReplicaEndpoint(
        name=slot.name,
        state=slot.state,
        why=slot.current.machine.why,
        address=slot_address(slot),
        generation=slot.current.machine.generation,
        restarts=slot.restarts,
        since=slot.current.machine.since,
        gpus=slot.current.process.gpus if slot.current.process else (),
        kind=kind,
    )
