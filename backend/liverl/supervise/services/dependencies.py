"""Dependencies of services, and listening sockets that are opened before their service starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from liverl.model import Event, Level
from liverl.plan.spec import BRIDGE, Dependency, ServiceSpec
from liverl.supervise.keeper.client import KeeperGone
from liverl.supervise.services import state_machine
from liverl.supervise.services.environments import Environments
from liverl.supervise.services.keeper_manager import KeeperManager
from liverl.supervise.services.prepare import PrepareProblem
from liverl.supervise.services.slot import Slot


class DependencyHost(Protocol):
    """The part of the supervisor that knows whether a dependency is met."""

    slots: dict[str, Slot]
    environments: Environments
    keeper_manager: KeeperManager
    unheld: dict[str, str]

    def found_serving(self) -> int:
        """Engines of others that serve."""

    def joined_hosts(self) -> int:
        """Hosts that have joined."""

    def say(
        self, kind: str, text: str, level: Level = "info", service: str | None = None, **data: Any
    ) -> Event:
        """Tell the user."""

    def kick(self) -> None:
        """Look at all services again."""


class StartStagger:
    """Starts replicas on GPUs one after another, ``stagger`` seconds apart, so that they do not all read the same
    weights over one disk and one bus at the same time; and of the others only ``at_once`` at a time, so that their
    imports leave some CPU to the run and to the commands that control it."""

    def __init__(self, stagger: float, at_once: int) -> None:
        self._stagger, self.at_once = stagger, at_once
        self._last_start = float("-inf")

    def full(self, spec: ServiceSpec, slots: Iterable[Slot]) -> bool:
        """Whether a service must wait because as many replicas start as may at a time. It may start when one of them
        serves or ends."""
        if spec.kind != "replica" or spec.gpus:
            return False
        starting = (slot.spec.kind == "replica" and slot.state in ("preparing", "starting") for slot in slots)
        return sum(starting) >= self.at_once

    def take(self, spec: ServiceSpec, now: float) -> float:
        """Seconds until this service may start, at ``now`` seconds; 0: it may start now, and counts as started. Always
        0 for services that are not replicas with GPUs."""
        if spec.kind != "replica" or not spec.gpus:
            return 0.0
        delay = self._last_start + self._stagger - now
        if delay > 0:
            return delay
        self._last_start = now
        return 0.0


def unmet(supervisor: DependencyHost, dependency: Dependency) -> str | None:
    """What is missing, worded to follow "waiting for"; None if the dependency is met."""
    on, wanted = dependency.on, dependency.count or 0
    if dependency.condition == "environment_ready":
        return None if on in supervisor.environments.pythons else f"environment {on}"
    if dependency.condition == "all_ready":
        # As many as are wanted now: the run may have been scaled since the plan was made.
        group = [s for s in supervisor.slots.values() if s.spec.kind == on and s.current.machine.wanted]
        wanted = len(group) or wanted
        ready = sum(s.state in state_machine.SERVING for s in group)
        return None if ready >= wanted else f"{on}s: {ready} of {wanted} ready"
    if dependency.condition == "discovered":
        serving = supervisor.found_serving()
        return None if serving >= wanted else f"{on}s: {serving} of {wanted} found"
    if dependency.condition == "joined":
        joined = supervisor.joined_hosts()
        return None if joined >= wanted else f"hosts: {joined} of {wanted} joined"
    if dependency.condition == "listening":
        server = supervisor.slots.get(on.partition(".")[0])
        if supervisor.keeper_manager.holds(on) or (server is not None and _listens_itself(server)):
            return None
        return supervisor.unheld.get(on, f"the socket {on}")
    slot = supervisor.slots.get(on)
    if slot is None:
        return f"{on}, which does not exist"
    if dependency.condition == "started":
        return None if slot.state in state_machine.LIVE else f"{on} to be started"
    if dependency.condition == "exited_0":
        return None if slot.current.machine.completed else f"{on} to complete"
    return None if slot.state == "ready" else f"{on} to be ready"


def dependents(slots: Iterable[Slot], slot: Slot) -> list[Slot]:
    """The services that depend on ``slot``, by its name or its kind; they are stopped before it."""
    names = (slot.name, slot.spec.kind)
    return [
        other
        for other in slots
        if other is not slot
        and any(
            d.on.partition(".")[0] in names and d.condition != "environment_ready"
            for d in other.spec.depends_on
        )
    ]


async def hold_sockets(supervisor: DependencyHost) -> None:
    """Open the sockets of services that others depend on with the condition ``listening``. Connections queue until the
    service accepts them. A socket that cannot be opened is noted in ``supervisor.unheld``."""
    specs = [slot.spec for slot in supervisor.slots.values()]
    names = {d.on for spec in specs for d in spec.depends_on if d.condition == "listening"}
    for name in sorted(names):
        service, _, port_name = name.partition(".")
        slot = supervisor.slots[service]
        if _listens_itself(slot) and not supervisor.keeper_manager.holds(name):
            text = "could not take over its listening socket; connections are refused while it restarts"
            supervisor.say("socket", text, "warning", service)
            continue
        for port in (p for p in slot.spec.ports if p.name == port_name or p.host == BRIDGE):
            for last_try in (False, False, True):
                try:
                    await supervisor.keeper_manager.hold_port(service, port)
                    break
                except KeeperGone:  # a new keeper is being started
                    if last_try:
                        supervisor.unheld[name] = "the keeper has exited"
                except PrepareProblem as problem:
                    supervisor.unheld[name] = str(problem)
                    break
    supervisor.kick()


def _listens_itself(slot: Slot) -> bool:
    """Whether a service that outlived an earlier keeper is up: it still owns the socket that this keeper could not
    get."""
    return slot.state in state_machine.LIVE
