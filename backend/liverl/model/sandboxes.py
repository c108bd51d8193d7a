"""What the trials of a run have in Docker or Kubernetes."""

from typing import Literal

import msgspec

from liverl.model.times import UnixTime


class Sandbox(msgspec.Struct, frozen=True):
    """Something of a trial in Docker or Kubernetes. ``name``: its name there; ``trial``: empty if it is not known;
    ``why``: it is still there."""

    kind: Literal["container", "network", "volume", "image", "pod"]
    name: str
    trial: str
    why: str = ""


class SandboxStatus(msgspec.Struct, frozen=True):
    """A container of a trial. ``id``: Docker's, 12 digits; ``trial``, ``path``: its trial, and the directory of that in
    the run directory, "" if it is not known; ``since``: Unix seconds of its start, of one that has ended of its end;
    ``exit``: its exit status, None while it runs; ``oom``: it was killed because its memory was used up; ``kept``:
    ``harbor_agent.environment_delete`` is false; ``left``: nobody will end it any more, since its trial is over or the
    process that ran it has died; ``exec``: a command that opens a shell in it."""

    id: str
    name: str
    trial: str
    attempt: str
    state: str  # Docker's: created, running, paused, restarting, removing, exited, dead
    path: str = ""
    since: UnixTime | None = None
    exit: int | None = None
    oom: bool = False
    kept: bool = False
    left: bool = False
    exec: str = ""
    # Of pods only. ``reason``, ``message``: what it waits for, or why it has ended; ``logs``: the command for its log.
    logs: str = ""
    node: str = ""
    phase: str = ""  # Pending, Running, Succeeded, Failed, Unknown
    reason: str = ""
    message: str = ""
    restarts: int | None = None


class SandboxOom(msgspec.Struct, frozen=True):
    """A process in a sandbox was killed because its memory was used up. ``trial``, ``path``: see ``SandboxStatus``;
    ``at``: Unix seconds of the last time."""

    id: str
    trial: str
    at: UnixTime
    path: str = ""


class SandboxTrouble(msgspec.Struct, frozen=True):
    """What has happened to a pod of a trial. ``kind``: image_pull, config, unschedulable, crash, oom, deadline, evicted
    or node_gone; ``name``: the pod's; ``at``: Unix seconds at which it was first seen; ``reason``, ``message``: the
    API's words."""

    kind: str
    name: str
    trial: str
    at: UnixTime
    node: str = ""
    reason: str = ""
    message: str = ""
    path: str = ""


class SandboxesStatus(msgspec.Struct, frozen=True):
    """What the trials of a run have in Docker now. ``reachable``: all its daemons answered at the last look; ``why``:
    what one of them said, or why it was not asked, and ``since`` when that began (Unix seconds); ``server``:
    the address of the daemon, "" for that of this host, several joined by blanks; ``docker``: how the docker
    program is called for it, with the variables that it needs, "" if there are several; ``running``,
    ``starting`` (created), ``ended``, ``left``: numbers of containers; ``networks``: of the run;
    ``networks_free``: how many more can be created, of each daemon the fewest, None if that is not known;
    ``address_gone``: an address at which sandboxes reach the run and that this machine has no more, "" if there
    is none; ``oldest``: Unix seconds of the start of the oldest that runs; ``rows``: containers, those that are
    left first, then the oldest; ``ooms``: of the last ten minutes, the newest first, also of containers that
    have gone; both capped."""

    backend: Literal["docker", "kubernetes"] = "docker"
    reachable: bool = True
    why: str = ""
    since: UnixTime | None = None
    server: str = ""
    docker: str = ""
    running: int = 0
    starting: int = 0
    ended: int = 0
    left: int = 0
    networks: int = 0
    networks_free: int | None = None
    address_gone: str = ""
    oldest: UnixTime | None = None
    rows: tuple[SandboxStatus, ...] = ()
    ooms: tuple[SandboxOom, ...] = ()
    # Of pods only. ``troubles``: of the last ten minutes, the newest first; ``kubectl``: the beginning of commands;
    # ``start_s``: median seconds from a pod's creation until it runs; ``readable``: the kubeconfig, if it has a secret
    # and others than its owner can read it; ``more``: there are more pods than were read.
    troubles: tuple[SandboxTrouble, ...] = ()
    kubectl: str = ""
    start_s: float | None = None
    readable: str = ""
    more: bool = False


class SandboxesEnd(msgspec.Struct, frozen=True):
    """What the trials of a run had in Docker or Kubernetes. ``containers``, ``networks``, ``volumes``, ``images``,
    ``pods``: numbers of those that were removed because Harbor had not done so; ``left``: what could not be removed;
    ``kept``: what stays because ``harbor_agent.environment_delete`` is false; ``unknown``: why it is not known whether
    more is left."""

    containers: int = 0
    networks: int = 0
    volumes: int = 0
    images: int = 0
    left: tuple[Sandbox, ...] = ()
    kept: tuple[Sandbox, ...] = ()
    unknown: tuple[str, ...] = ()
    pods: int = 0
