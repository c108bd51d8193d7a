"""Ray seen through its dashboard, by GET only. Nothing joins the cluster: an actor's address is taken from the ports on
which its process listens, which needs that process on this host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from liverl.causes.verdict.ray_shortage import RayLoad
from liverl.external import ray_cluster
from liverl.external.port_holders import own_addresses
from liverl.external.ray_cluster import RayCluster
from liverl.model import ServiceState
from liverl.procs import procfs
from liverl.supervise.services.probes import Http
from liverl.verl.discovery.names import parse_name
from liverl.verl.discovery.ray_rest import ActorTimes, RayActor, RayError, RayRest, pending_notes, placed
from liverl.watch.http import Refused, get
from liverl.watch.replicas import TIMEOUT, Candidate

_STATES: dict[str, ServiceState] = {
    "DEPENDENCIES_UNREADY": "waiting",
    "PENDING_CREATION": "waiting",
    "ALIVE": "ready",
    "RESTARTING": "starting",
    "DEAD": "failed",
}


class RayFacts(msgspec.Struct, frozen=True):
    """``problem``: why the dashboard gives no answer, None if it does; ``version``: Ray's; ``actors``: named ones that
    live, for the processes of the trainer; ``load``: of the cluster, while an actor has no process yet."""

    address: str = ""
    problem: str | None = None
    version: str = ""
    replicas: tuple[Candidate, ...] = ()
    others: int = 0
    load: RayLoad | None = None


class PlainHttp(Http):
    """``Http`` without a session: each request in a thread, without aiohttp's event loop machinery."""

    async def get(
        self, url: str, timeout: float, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """See ``Http.get``.

        Raises:
            OSError: no answer.
        """
        try:
            return await asyncio.to_thread(get, url, timeout, headers)
        except Refused as error:
            raise OSError(str(error)) from None


class RayWatch:
    """Asks the dashboard at ``address`` (host:port)."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._times: dict[str, ActorTimes] = {}
        self._ports: dict[str, str | None] = {}  # incarnation -> address, once it has answered
        self._own = own_addresses()

    def look(self) -> RayFacts:
        """Ray's state now."""
        try:
            return asyncio.run(self._look())
        except RayError as error:
            return RayFacts(self.address, str(error))

    async def _look(self) -> RayFacts:
        rest = RayRest(PlainHttp(), f"http://{self.address}", self._token())
        version = await rest.version()
        actors = await placed(rest, [a for a in await rest.actors() if parse_name(a.name)], self._times)
        notes = await pending_notes(rest, actors)
        newest = _newest(actors)
        replicas = [self._replica(a, notes.get(a.incarnation, "")) for a in newest if _counts(a)]
        waits = any(_STATES.get(one.state) == "waiting" for one in newest)
        load = await rest.load() if waits else None
        return RayFacts(self.address, None, version, tuple(replicas), len(newest) - len(replicas), load)

    def _token(self) -> Path | None:
        running = ray_cluster.running(lambda _pid: False)
        cluster: RayCluster | None = next((one for one in running if one.api == self.address), None)
        return Path(cluster.token_file) if cluster is not None and cluster.token_file else None

    def _replica(self, actor: RayActor, note: str) -> Candidate:
        state = _STATES.get(actor.state, "waiting")
        address, why = None, note or actor.death or f"Ray: {actor.state}"
        here = actor.ip is None or actor.ip in self._own
        if state == "ready":
            address = self._address(actor) if here else None
            why = (
                "" if address else "its address is not known: no port of its process answers GET /health yet"
            )
            if not here:
                why = f"it runs on host {actor.ip}; watch there to see its load"
        return Candidate(
            name=actor.name,
            address=address,
            pid=actor.pid if here and actor.pid and procfs.alive(actor.pid, None) else None,
            started_at=actor.started_at,
            kind="verl",
            state=state,
            why=why,
        )

    def _address(self, actor: RayActor) -> str | None:
        """The port of the actor's process that serves HTTP; Ray's own ports speak another protocol."""
        known = self._ports.get(actor.incarnation)
        if known is not None or actor.pid is None:
            return known
        for port in sorted(procfs.listening(actor.pid)):
            for host in dict.fromkeys((actor.ip or "127.0.0.1", "127.0.0.1")):
                try:
                    status, _ = get(f"http://{host}:{port}/health", TIMEOUT)
                except Refused:
                    continue
                if status in (200, 503):
                    self._ports[actor.incarnation] = f"http://{host}:{port}"
                    return self._ports[actor.incarnation]
        return None


def _counts(actor: RayActor) -> bool:
    name = parse_name(actor.name)
    return name is not None and name.counted


def _newest(actors: list[RayActor]) -> list[RayActor]:
    """One actor per name: one that lives before one that is dead, the newest of several. Pure."""
    best: dict[str, RayActor] = {}
    for actor in actors:
        old = best.get(actor.name)
        if old is None or (not actor.dead, actor.started_at or 0.0) >= (not old.dead, old.started_at or 0.0):
            best[actor.name] = actor
    return [best[name] for name in sorted(best)]
