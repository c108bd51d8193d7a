"""How often the process behind each replica's URL has ended although nobody had asked for it.

A request that was in flight each time may have ended them. So it is better to miss such an end than to count another
one: stops by a command or a person, weight updates, and ends that the host has caused are not counted.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Collection

from liverl.model import Exit
from liverl.serving.endpoint import ReplicaEndpoint
from liverl.serving.replica_source import ReplicaSource
from liverl.supervise.services.supervisor import Supervisor

# Signals by which people and batch systems end processes, and how a shell words them.
_ASKED = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
_MOST = 256  # URLs that are remembered


class ReplicaDeaths:
    """``counts``: by URL, also of replicas that are no longer listed."""

    def __init__(
        self,
        supervisor: Supervisor,
        source: ReplicaSource | None,
        updating: Callable[[str], Awaitable[bool]],
        changed: Callable[[], None],
    ) -> None:
        """``source``: of verl's replicas. ``updating``: whether the weights of the replica of that name were being
        updated just now; ``changed``: called after a death was counted."""
        self.counts: dict[str, int] = {}
        self._supervisor, self._source = supervisor, source
        self._updating, self._changed = updating, changed
        self._served: dict[str, tuple[int, str]] = {}  # replica -> generation that has served, and its URL

    def restore(self, counts: dict[str, int]) -> None:
        """Take over what an earlier backend of this attempt has counted."""
        self.counts.update(counts)

    def served(self, name: str, generation: int, url: str) -> None:
        """A process of a replica serves, or has served under an earlier backend."""
        self._served[name] = (generation, url)

    def look(self, endpoints: Collection[ReplicaEndpoint]) -> None:
        """Note which replicas serve, and count the processes that have ended since. Called on every change."""
        for endpoint in endpoints:
            if endpoint.serving and endpoint.address is not None:
                self.served(endpoint.name, endpoint.generation, endpoint.address)
                continue
            generation, url = self._served.get(endpoint.name, (0, ""))
            if url and endpoint.generation != generation:
                del self._served[endpoint.name]  # its end was not seen
            elif url and self._has_ended(endpoint):
                del self._served[endpoint.name]
                if self._unasked(endpoint):
                    self._supervisor.spawn_task(self._count(endpoint.name, url))

    def _has_ended(self, endpoint: ReplicaEndpoint) -> bool:
        slot = self._supervisor.slots.get(endpoint.name)
        if slot is None:
            return endpoint.state == "failed"
        machine = slot.current.machine
        return machine.leader_gone and machine.exit is not None

    def _unasked(self, endpoint: ReplicaEndpoint) -> bool:
        supervisor, slot = self._supervisor, self._supervisor.slots.get(endpoint.name)
        if supervisor.stopping or supervisor.oom_kills.evidence(supervisor.now()):
            return False
        if slot is None:
            return self._source is not None and self._source.ended_unasked(endpoint.name)
        machine = slot.current.machine
        by_us = machine.ended_by_us or not machine.wanted
        return not by_us and machine.exit is not None and by_itself(machine.exit)

    async def _count(self, name: str, url: str) -> None:
        if await self._updating(name):
            return
        self.counts[url] = self.counts.pop(url, 0) + 1
        for oldest in list(self.counts)[:-_MOST]:
            del self.counts[oldest]
        self._changed()


def by_itself(ended: Exit) -> bool:
    """Whether a process ended without a person or a batch system that asked it to. False if its exit is not known."""
    if not ended.known:
        return False
    number = ended.signal if ended.signal is not None else (ended.code or 0) - 128
    return number not in _ASKED
