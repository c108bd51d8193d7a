"""Which things of a daemon are a run's. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from liverl.agents.harbor.docker_endpoint import SOCKET, Endpoint
from liverl.agents.harbor.owned import Entry
from liverl.sandboxes.docker import Thing


class Trials(msgspec.Struct, frozen=True):
    """What the ledgers of a run say. ``begun``: by trial; ``over``: trials whose sandboxes Harbor has ended; ``lost``:
    those whose Harbor process died."""

    begun: dict[str, Entry]
    over: frozenset[str]
    lost: frozenset[str]

    @property
    def open(self) -> frozenset[str]:
        """Trials whose sandboxes nobody has ended."""
        return frozenset(self.begun) - self.over


class Place(NamedTuple):
    """A daemon. ``variables``: by which it is found, sorted; ``host``: the machine that it is on, "" if the variables
    alone find it, from anywhere."""

    variables: tuple[tuple[str, str], ...]
    host: str


def trials_of(entries: Iterable[Entry], run_id: str, *, pods: bool = False) -> Trials:
    """Those of one run in Docker, or with ``pods`` in a cluster: a copied directory has the ledgers of the
    original as well."""
    begun: dict[str, Entry] = {}
    over: set[str] = set()
    lost: set[str] = set()
    for entry in entries:
        if entry.event == "begun":
            if entry.run_id != run_id or bool(entry.cluster) != pods:
                continue
            begun[entry.trial] = entry
        elif entry.event == "over":
            over.add(entry.trial)
        elif entry.event == "lost":
            lost.add(entry.trial)
    return Trials(begun, frozenset(over), frozenset(lost))


def place_of(entry: Entry) -> Place:
    """The daemon that has the sandboxes of a trial."""
    address = entry.address or entry.daemon.get("DOCKER_HOST", "")
    if not address and "DOCKER_CONTEXT" not in entry.daemon:
        address = SOCKET
    local = Endpoint(address).is_local
    return Place(tuple(sorted(entry.daemon.items())), entry.host if local else "")


def docker_words(place: Place) -> str:
    """How a user calls the docker program for a daemon: with the variables that have no option of their own before it,
    such as ``DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=/c docker -H tcp://d:2376``."""
    given = dict(place.variables)
    host, context = given.pop("DOCKER_HOST", ""), given.pop("DOCKER_CONTEXT", "")
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(given.items()))
    where = f" -H {shlex.quote(host)}" if host else f" -c {shlex.quote(context)}" if context else ""
    return f"{before}docker{where}"


def without_worker(trials: Trials, host: str, ticks: Mapping[int, int | None]) -> frozenset[str]:
    """The trials whose sandboxes nobody will end any more: Harbor's process, or the worker that had started it, has
    died. ``host``: this one; ``ticks``: start of the processes that live on it, by pid."""
    dead = {
        name
        for name, entry in trials.begun.items()
        if entry.host == host and ticks.get(entry.pid) != entry.tick
    }
    return trials.open & (trials.lost | dead)


def owned(things: Sequence[Thing], run_id: str, trials: Trials) -> list[Thing]:
    """The things of the run, each with its trial: those with its label; without any such label those of exactly the
    Compose projects in its ledger; and images by their exact names, ``<project>-<service>``."""
    projects = {entry.project: entry for entry in trials.begun.values()}
    labelled = [thing for thing in things if thing.run_id == run_id]
    others = {thing.project for thing in things if thing.run_id not in ("", run_id)}
    found = list(labelled)
    for thing in things:
        entry = projects.get(thing.project)
        if thing.project and entry is not None and not thing.run_id and thing.project not in others:
            found.append(msgspec.structs.replace(thing, trial=entry.trial, kept=entry.kept))
    images = {
        f"{entry.project}-{service}": (entry.trial, entry.kept)
        for entry in trials.begun.values()
        if entry.project not in others
        for service in entry.services
    }
    images |= {
        f"{thing.project}-{thing.service}": (thing.trial, thing.kept)
        for thing in labelled
        if thing.project and thing.service
    }
    for thing in things:
        if thing.kind == "image" and thing.name in images:
            trial, kept = images[thing.name]
            found.append(msgspec.structs.replace(thing, trial=trial, kept=kept))
    return found


def short(thing: Thing) -> str:
    """The name by which a user finds it."""
    return os.path.basename(thing.name) or thing.id[:12]
