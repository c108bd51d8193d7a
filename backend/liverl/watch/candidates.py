"""Where replicas may be: the processes that were found, Ray's actors, and what the proxy routes to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from liverl.external.model_list import place
from liverl.watch.processes import Found
from liverl.watch.proxy import ProxyFacts
from liverl.watch.ray import RayFacts
from liverl.watch.replicas import Candidate
from liverl.watch.scene import Scene
from liverl.watch.units import Unit, address_of


def candidates(
    scene: Scene, known: Mapping[str, Unit], proxies: Iterable[ProxyFacts], ray: RayFacts
) -> list[Candidate]:
    """Each replica once. ``known``: every service that has had a process; one that has exited stays, as failed."""
    found: list[Candidate] = []
    taken = set()
    pids = set()
    dead = {one.pid: one for one in scene.engines if one.state == "failed"}
    actors = [_without_engine(one, dead.get(one.pid)) for one in ray.replicas]
    named = (*_running(scene), *_exited(scene, known), *actors)  # Ray's names are the trainer's
    for one in (*named, *scene.engines, *_routed(scene.found, proxies)):
        spot = place(one.address) if one.address is not None else None
        if (spot is None or spot not in taken) and (one.pid is None or one.pid not in pids):
            found.append(one)
            taken.add(spot)
            pids.add(one.pid)
    return found


def _without_engine(actor: Candidate, server: Candidate | None) -> Candidate:
    """Ray's actor is alive without its engine, too. ``server``: its process, if that has none."""
    if server is None or actor.pid is None:
        return actor
    return msgspec.structs.replace(actor, state="failed", why=server.why)


def _running(scene: Scene) -> Iterator[Candidate]:
    for name, unit in scene.services.items():
        if unit.kind == "replica" and unit.process is not None:
            process = unit.process
            yield Candidate(name, address_of(process), process.pid, process.started_at, engine=process.engine)


def _exited(scene: Scene, known: Mapping[str, Unit]) -> Iterator[Candidate]:
    for name, unit in known.items():
        if unit.kind == "replica" and name not in scene.services and unit.process is not None:
            why = f"pid {unit.process.pid} has exited"
            yield Candidate(
                name, address_of(unit.process), state="failed", why=why, engine=unit.process.engine
            )


def _routed(found: Iterable[Found], proxies: Iterable[ProxyFacts]) -> Iterator[Candidate]:
    by_port = {one.port: one for one in found if one.kind == "replica"}
    for facts in proxies:
        for url in facts.replicas:
            spot = place(url)
            if spot is None:
                continue
            here = spot[0] == "localhost"
            process = by_port.get(spot[1]) if here else None
            yield Candidate(
                f"backend-{spot[1]}" if here else f"{spot[0]}-{spot[1]}",
                url,
                process.pid if process is not None else None,
                process.started_at if process is not None else None,
                engine=facts.engine if process is None else process.engine,
            )
