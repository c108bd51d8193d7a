"""What the trials of a run have in Docker while it goes on: read by the docker program, with a deadline. Blocking."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from liverl.agents.harbor.owned import ATTEMPT, KEPT, TRIAL, Entry
from liverl.model import SandboxesStatus, SandboxOom, SandboxStatus
from liverl.sandboxes.bridge import is_here
from liverl.sandboxes.docker import Container, Docker, DockerError
from liverl.sandboxes.ledgers import Ledgers, lost
from liverl.sandboxes.whose import Place, Trials, docker_words, place_of

ROWS = 200  # containers that a snapshot names
OOMS, OOM_S = 20, 600.0  # containers whose memory was used up that are named, and for how many seconds
OVERLAP_S = 30.0  # of two looks at the events of a daemon, whose clock may be another's
OVER_S = 10.0  # seconds after a trial's end in which its container may still be going
_ENDED = ("exited", "dead", "removing")


class SeenSandboxes:
    """Looks at the containers of one run again and again; what is known stays while a daemon does not answer.
    ``ledgers``: shared with who else looks at the run's sandboxes."""

    def __init__(self, ledgers: Ledgers | None = None) -> None:
        self._ledgers = ledgers or Ledgers()
        self._last: SandboxesStatus | None = None
        self._ooms: dict[str, SandboxOom] = {}  # by the container's id
        self._asked_until: float | None = None  # Unix seconds up to which the daemons told of used up memory
        self._over: dict[str, float] = {}  # trial -> Unix time at which it was first seen to be over

    def look(
        self, run_dir: Path, now: float, seconds: float, addresses: Collection[str] = ()
    ) -> SandboxesStatus | None:
        """What there is at ``now`` (Unix seconds), asked for at most ``seconds``. ``addresses``: IPv4 addresses of this
        machine that sandboxes connect to. None: the run has begun nothing in Docker, as far as its ledgers say."""
        status = self._look(run_dir, now, seconds)
        if status is None:
            return None
        gone = next((address for address in sorted(addresses) if not is_here(address)), "")
        self._last = replace(status, address_gone=gone)
        return self._last

    def _look(self, run_dir: Path, now: float, seconds: float) -> SandboxesStatus | None:
        until = time.monotonic() + seconds
        try:
            begun = self._ledgers.read(run_dir)
        except OSError as error:
            return self._unknown(now, f"the ledger of sandboxes cannot be read: {error}")
        run_id, found = begun.run_id, begun.docker
        if not found.begun:
            return None
        open_at = {place_of(found.begun[name]) for name in found.open}
        for name in found.over:
            self._over.setdefault(name, now)
        gone = lost(found) | {name for name in found.over if now - self._over[name] > OVER_S}
        rows: list[SandboxStatus] = []
        since = self._asked_until if self._asked_until is not None else now - OOM_S
        networks, whys, servers, called = 0, [], [], list[str]()
        free: list[int | None] = []
        for place in sorted({place_of(found.begun[name]) for name in found.begun}):
            if place.host not in ("", socket.gethostname()):
                if place not in open_at:
                    continue
                whys.append(f"the Docker of {place.host} can only be asked there")
                continue
            servers.append(server_of(place))
            called.append(docker_words(place))
            docker = Docker(dict(place.variables), until)
            try:
                containers, number = docker.containers(run_id)
                if place in open_at:
                    free.append(docker.networks(local=bool(place.host)).free)
                for kill in docker.memory_kills(run_id, since - OVERLAP_S, now):
                    trial = kill.labels.get(TRIAL, "")
                    self._ooms[kill.id] = SandboxOom(kill.id[:12], trial, kill.at)
            except DockerError as error:
                if place not in open_at:  # its trials are over, and so may be the daemon
                    continue
                whys.append(f"Docker{f' at {servers[-1]}' if servers[-1] else ''}: {error}")
                continue
            networks += number
            rows += [row_of(one, place, found, gone) for one in containers]
        if whys and self._last is not None:
            return self._unknown(now, "; ".join(whys))
        self._asked_until = now
        for one in rows:
            if (
                one.oom
                and one.since is not None
                and not any(kill.id == one.id for kill in self._ooms.values())
            ):
                self._ooms[one.id] = SandboxOom(one.id, one.trial, one.since)
        self._ooms = {name: kill for name, kill in self._ooms.items() if kill.at >= now - OOM_S}
        killed = {kill.id for kill in self._ooms.values()}
        status = counted([replace(row, oom=row.oom or row.id in killed) for row in rows], networks)
        ooms = sorted(self._ooms.values(), key=lambda kill: (-kill.at, kill.id))[:OOMS]
        status = replace(status, ooms=tuple(ooms))
        status = replace(
            status,
            server=" ".join(filter(None, servers)),
            docker=called[0] if len(called) == 1 else "",
            networks_free=fewest(free),
        )
        if whys:
            status = replace(status, reachable=False, why="; ".join(whys), since=now)
        self._last = status
        return status

    def late(self, now: float, seconds: float) -> SandboxesStatus | None:
        """The status where a look did not come back."""
        return self._unknown(now, f"the program docker did not return within {seconds:g} s")

    def _unknown(self, now: float, why: str) -> SandboxesStatus:
        last = self._last or SandboxesStatus()
        since = now if last.reachable else last.since
        self._last = replace(last, reachable=False, why=why, since=since)
        return self._last


def with_paths(status: SandboxesStatus | None, paths: Mapping[str, str]) -> SandboxesStatus | None:
    """``status`` with the directories of the trials. ``paths``: by the name of a trial, relative to the run's."""
    if status is None:
        return None
    return replace(
        status,
        rows=tuple(replace(row, path=paths.get(row.trial, "")) for row in status.rows),
        ooms=tuple(replace(oom, path=paths.get(oom.trial, "")) for oom in status.ooms),
        troubles=tuple(replace(one, path=paths.get(one.trial, "")) for one in status.troubles),
    )


def counted(rows: list[SandboxStatus], networks: int) -> SandboxesStatus:
    """The numbers of containers, and the rows that are named. Pure."""
    running = [row for row in rows if row.state in ("running", "paused", "restarting")]
    rows = sorted(rows, key=lambda row: (not row.left, not row.oom, row.since or 0.0, row.name))
    return SandboxesStatus(
        running=len(running),
        starting=sum(row.state == "created" for row in rows),
        ended=sum(row.state in _ENDED for row in rows),
        left=sum(row.left for row in rows),
        networks=networks,
        oldest=min((row.since for row in running if row.since is not None), default=None),
        rows=tuple(rows[:ROWS]),
    )


def row_of(container: Container, place: Place, found: Trials, gone: frozenset[str]) -> SandboxStatus:
    """A container of the run. ``gone``: trials whose sandboxes nobody will end any more. Pure."""
    labels = container.labels or {}
    trial = labels.get(TRIAL, "")
    entry: Entry | None = found.begun.get(trial)
    ended = container.state in _ENDED
    kept = labels.get(KEPT) == "true"
    return SandboxStatus(
        id=container.id[:12],
        name=container.name.lstrip("/"),
        trial=trial,
        attempt=labels.get(ATTEMPT, ""),
        state=container.state,
        since=_unix(container.ended if ended else container.started),
        exit=container.exit if ended else None,
        oom=container.oom,
        kept=kept,
        left=not kept and (entry is None or trial in gone),
        exec="" if ended else f"{docker_words(place)} exec -it {container.id[:12]} sh",
    )


def server_of(place: Place) -> str:
    """By what a daemon is found; "" for that of this host."""
    variables = dict(place.variables)
    return variables.get("DOCKER_HOST") or variables.get("DOCKER_CONTEXT") or ""


def _unix(text: str) -> float | None:
    """Unix seconds of one of Docker's times; None for that of year 1, which stands for none."""
    try:
        at = (
            datetime.fromisoformat(text[:19] + "+00:00").timestamp()
            if text.endswith("Z")
            else (datetime.fromisoformat(text).timestamp())
        )
    except (ValueError, OverflowError):
        return None
    return at if at > 0 else None


def fewest(free: Sequence[int | None]) -> int | None:
    """The least of several numbers; None if there is none, or one of them is not known."""
    known = [number for number in free if number is not None]
    return min(known) if known and len(known) == len(free) else None
