"""Finds and removes what the trials of a run have left in Docker or Kubernetes. Blocking; every question has a
deadline."""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from msgspec.structs import replace

from liverl.agents.harbor.owned import TEMP, start_tick
from liverl.model import Sandbox, SandboxesEnd
from liverl.rundir.index import ssh_line
from liverl.sandboxes.docker import Docker, DockerError, Kind, Thing
from liverl.sandboxes.ledgers import Begun, lost, read
from liverl.sandboxes.whose import Place, Trials, owned, place_of, short
from liverl.util.plural import plural, quantity
from liverl.util.remove_tree import remove_tree

if TYPE_CHECKING:
    from liverl.sandboxes.kubernetes.sweep import PodsEnd

LOOK_S = 10.0  # seconds for a look that removes nothing
ENDS = 3  # rounds without progress after which what is left stays: it is used by somebody else, or the daemon is ill
_PAUSE_S = 0.3  # between two rounds: a removal that the daemon has begun needs a moment
# A container's network, volume and image can only go after it.
_ORDER: tuple[Kind, ...] = ("container", "network", "volume", "image")
_CLUSTER = "the cluster"
_SHOWN = 3  # things that one sentence names


def lost_trials(run_dir: Path) -> frozenset[str]:
    """The trials whose sandboxes nobody will end any more, as far as this host can tell.

    Raises:
        OSError: a file cannot be read.
    """
    begun = read(run_dir)
    return lost(begun.docker) | lost(begun.pods)


def open_trials(run_dir: Path) -> int:
    """The number of trials whose sandboxes nobody has ended.

    Raises:
        OSError: a file cannot be read.
    """
    begun = read(run_dir)
    return len(begun.docker.open) + len(begun.pods.open)


def look(run_dir: Path, seconds: float = LOOK_S) -> SandboxesEnd | None:
    """What the run has there now, as ``left`` and ``kept``; nothing is changed. None: it never began anything. Does not
    raise: what could not be asked is in the answer."""
    until = time.monotonic() + seconds
    begun = _begun(run_dir)
    if isinstance(begun, SandboxesEnd):
        return begun
    docker = _Sweep(run_dir, begun, until, None, False).look()
    return _both(docker, _pods(begun.pods, until, False, None, False))


def sweep(
    run_dir: Path, seconds: float, *, only: Collection[str] | None = None, kept: bool = False
) -> SandboxesEnd | None:
    """Remove what the run has there, for at most ``seconds``. ``only``: of these trials; ``kept``: also what
    ``environment_delete: false`` keeps, whose containers are only stopped otherwise. None: the run has begun nothing
    there. Does not raise: what could not be asked or removed is in the answer."""
    until = time.monotonic() + seconds
    begun = _begun(run_dir)
    if isinstance(begun, SandboxesEnd):
        return begun
    docker = _Sweep(run_dir, begun, until, only, kept).carry_out()
    return _both(docker, _pods(begun.pods, until, True, only, kept))


def _begun(run_dir: Path) -> Begun | SandboxesEnd:
    """What the ledgers say; if they cannot be read, the answer that says so."""
    try:
        return read(run_dir)
    except OSError as error:
        return SandboxesEnd(unknown=(f"the ledger of sandboxes cannot be read: {error}",))


def _pods(
    found: Trials, until: float, remove: bool, only: Collection[str] | None, kept: bool
) -> PodsEnd | None:
    if not found.begun:
        return None
    # Here, since a backend whose trials have no pods needs no HTTP client.
    from liverl.sandboxes.kubernetes.sweep import end_pods

    return end_pods(found, until - time.monotonic(), remove=remove, only=only, kept=kept)


def _both(docker: SandboxesEnd | None, pods: PodsEnd | None) -> SandboxesEnd | None:
    if pods is None:
        return docker
    end = docker or SandboxesEnd()
    return replace(
        end,
        left=(*end.left, *pods.left),
        kept=(*end.kept, *pods.kept),
        unknown=(*end.unknown, *pods.unknown),
        pods=pods.removed,
    )


class _Sweep:
    def __init__(
        self, run_dir: Path, begun: Begun, until: float, only: Collection[str] | None, kept: bool
    ) -> None:
        self._run_dir, self._until, self._only, self._kept = run_dir, until, only, kept
        self._run_id, self._trials = begun.run_id, begun.docker
        self._unknown: list[str] = []
        self._why: dict[tuple[str, str], str] = {}

    def look(self) -> SandboxesEnd | None:
        places = self._places()
        if places is None:
            return None
        left: list[Sandbox] = []
        kept: list[Sandbox] = []
        for place in places:
            for thing in self._owned(place, places[place]) or ():
                (kept if thing.kept else left).append(_told(thing, ""))
        return SandboxesEnd(left=tuple(left), kept=tuple(kept), unknown=tuple(self._unknown))

    def carry_out(self) -> SandboxesEnd | None:
        places = self._places()
        if places is None:
            return None
        counts = dict.fromkeys(_ORDER, 0)
        left: list[Sandbox] = []
        kept: list[Sandbox] = []
        for place, open_trials in places.items():
            removed, stays, keeps = self._empty(place, open_trials)
            for kind in removed:
                counts[kind] += 1
            left += stays
            kept += keeps
        if self._only is None:
            self._unknown += _temps_left(self._trials)
        return SandboxesEnd(
            counts["container"],
            counts["network"],
            counts["volume"],
            counts["image"],
            tuple(left),
            tuple(kept),
            tuple(self._unknown),
        )

    def _places(self) -> Mapping[Place, int] | None:
        """The daemons that can be asked from here, with the number of open trials; None: nothing was begun."""
        if not self._trials.begun:
            return None
        wanted = [e for e in self._trials.begun.values() if self._only is None or e.trial in self._only]
        counts: dict[Place, int] = {}
        for entry in wanted:
            place = place_of(entry)
            counts[place] = counts.get(place, 0) + (entry.trial in self._trials.open)
        here = socket.gethostname()
        for place in [place for place in counts if place.host not in ("", here)]:
            if number := counts.pop(place):
                whose = f"the sandboxes of {quantity(number, 'trial')} ran on {place.host}, whose Docker"
                self._unknown.append(f"{whose} cannot be asked from {here}: {self._by_hand(place.host)}")
        return counts

    def _by_hand(self, host: str) -> str:
        return ssh_line(host, f"liverl-tui clean --sandboxes {shlex.quote(str(self._run_dir))}")

    def _owned(self, place: Place, open_trials: int) -> list[Thing] | None:
        """The run's things at a daemon; None if it cannot be asked, which matters only while trials are open."""
        try:
            things = self._docker(place).things()
        except DockerError as error:
            if open_trials:
                whose = f"the sandboxes of {quantity(open_trials, 'trial')}"
                where = dict(place.variables).get("DOCKER_HOST") or dict(place.variables).get(
                    "DOCKER_CONTEXT"
                )
                self._unknown.append(
                    f"Docker{f' at {where}' if where else ''} cannot be asked for {whose}: {error}"
                )
            return None
        found = owned(things, self._run_id, self._trials)
        return [thing for thing in found if self._only is None or thing.trial in self._only]

    def _docker(self, place: Place) -> Docker:
        return Docker(dict(place.variables), self._until)

    def _empty(self, place: Place, open_trials: int) -> tuple[list[Kind], list[Sandbox], list[Sandbox]]:
        """Remove the run's things at one daemon; returns the kinds of what went, what stays, and what is kept."""
        seen: dict[tuple[str, str], Thing] = {}
        there: list[Thing] = []
        idle, before = 0, -1
        while True:
            found = self._owned(place, open_trials)
            if found is None:  # it was answering before: nothing is known to have gone since
                break
            there = found
            goes = [thing for thing in there if self._kept or not thing.kept]
            seen |= {_key(thing): thing for thing in goes}
            idle = idle + 1 if len(goes) == before else 0
            before = len(goes)
            if not goes or idle >= ENDS or time.monotonic() >= self._until:
                break
            docker = self._docker(place)
            for kind in _ORDER:
                if names := [thing.id for thing in goes if thing.kind == kind]:
                    why = docker.remove(kind, names)
                    self._why |= {(kind, name): why for name in names}
            if idle:
                Event().wait(_PAUSE_S)
        stays = {_key(thing): thing for thing in there if self._kept or not thing.kept}
        keeps = [thing for thing in there if thing.kept and not self._kept]
        if running := [thing.id for thing in keeps if thing.running]:
            self._docker(place).stop(running)
        gone = [thing.kind for key, thing in seen.items() if key not in stays]
        return (
            gone,
            [_told(thing, self._why.get(key) or "there was no time left") for key, thing in stays.items()],
            [_told(thing, "harbor_agent.environment_delete is false") for thing in keeps],
        )


def _temps_left(found: Trials) -> Iterator[str]:
    """Remove the temporary files of Harbor's processes whose worker has died; yields what cannot be removed."""
    entries = {entry.temp: entry for entry in found.begun.values() if entry.temp}
    for temp, entry in entries.items():
        # A ledger is a file: it must not be able to name anything else.
        if not os.path.basename(temp).startswith(TEMP) or entry.host != socket.gethostname():
            continue
        try:
            owner = os.lstat(temp).st_uid
        except OSError:
            continue  # it has gone
        if owner != os.geteuid() or start_tick(entry.pid) == entry.tick:
            continue
        for error in remove_tree(temp)[:1]:
            yield f"temporary files of Harbor's in {temp} cannot be removed: {error.strerror or error}"


def _key(thing: Thing) -> tuple[str, str]:
    return thing.kind, thing.id


def _told(thing: Thing, why: str) -> Sandbox:
    return Sandbox(thing.kind, short(thing), thing.trial, why)


def removed_words(end: SandboxesEnd) -> str:
    """What was removed, as ``2 containers, 1 network``; "" if nothing was."""
    counts = (
        (end.containers, "container"), (end.networks, "network"), (end.volumes, "volume"), (end.images, "image"),
        (end.pods, "pod"),
    )  # fmt: skip
    return ", ".join(quantity(number, noun) for number, noun in counts if number)


def left_words(end: SandboxesEnd) -> str:
    """What is left, and where, in one sentence; "" if nothing is known to be left."""
    if not end.left:
        return ""
    names = ", ".join(f"{one.kind} {one.name} ({one.why})" for one in end.left[:_SHOWN])
    more = f" and {len(end.left) - _SHOWN} more" if len(end.left) > _SHOWN else ""
    return f"left in {place_words(end)}: {names}{more}"


def kept_words(end: SandboxesEnd) -> str:
    """What is kept on request, and how it goes; "" if nothing is."""
    number = sum(one.kind in ("container", "pod") for one in end.kept)
    if not end.kept:
        return ""
    noun = "pod" if place_words(end) == _CLUSTER else "container"
    what = quantity(number, noun) if number else quantity(len(end.kept), "thing")
    verb = plural(number or len(end.kept), "is", "are")
    return f"{what} {verb} kept in {place_words(end)} (harbor_agent.environment_delete: false)"


def place_words(end: SandboxesEnd) -> str:
    """Where these sandboxes are or were, as far as they tell."""
    things = (*end.left, *end.kept)
    pods = end.pods or any(one.kind == "pod" for one in things)
    return _CLUSTER if pods and not end.containers and all(one.kind == "pod" for one in things) else "Docker"


def command(run_dir: str | os.PathLike[str], *, kept: bool = False) -> str:
    """The command that removes what is left."""
    return f"liverl-tui clean --sandboxes{' --kept' if kept else ''} {os.fspath(run_dir)}"
