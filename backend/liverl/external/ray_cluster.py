"""Which Ray a script has started: told by the process that serves its dashboard.

Ray's own command line of that process names everything that is needed: where it serves, where its GCS is, and the
Python that has this very Ray.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from liverl.external import port_holders
from liverl.external.litellm import option
from liverl.procs import procfs

_SCRIPT = ("ray", "dashboard", "dashboard.py")
_TOKEN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN")


@dataclass(frozen=True)
class RayDashboard:
    """``first`` and ``retries``: Ray takes the first free port of these. ``served``: it answers more than usage
    statistics (``include_dashboard=False`` leaves those alone)."""

    python: str
    host: str
    first: int
    retries: int
    gcs: str  # host:port
    served: bool


@dataclass(frozen=True)
class RayCluster:
    """A Ray that runs. ``env``: what lets a client in; may hold a token. ``token_file`` "" = no token, or its file
    is not known."""

    pid: int
    tick: int
    api: str  # host:port of the dashboard
    gcs: str
    python: str
    token_file: str
    env: Mapping[str, str]
    served: bool
    ours: bool  # it runs in the trainer's process tree

    @property
    def identity(self) -> tuple[int, int, str]:
        return self.pid, self.tick, self.api


def parse(argv: tuple[str, ...]) -> RayDashboard | None:
    """What the command line of a dashboard says; None if it is of something else. Pure."""
    script = next((word for word in argv[1:4] if Path(word).parts[-3:] == _SCRIPT), None)
    gcs, port = option(argv, "--gcs-address"), option(argv, "--port")
    if script is None or not gcs or not port or not port.isdigit() or not os.path.isabs(argv[0]):
        return None
    retries = option(argv, "--port-retries") or "0"
    modules = option(argv, "--modules-to-load")
    return RayDashboard(
        python=argv[0],
        host=option(argv, "--host") or "127.0.0.1",
        first=int(port),
        retries=int(retries) if retries.isdigit() else 0,
        gcs=gcs,
        served=modules is None or "StateHead" in modules,
    )


def reachable(host: str) -> str:
    """An address under which a client on this host reaches a server that listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(host, host)


def running(ours: Callable[[int], bool]) -> list[RayCluster]:
    """Every Ray of this user on this host, newest first. ``ours``: whether a pid is in the trainer's process tree."""
    found = [cluster for pid in _pids() if (cluster := _cluster(pid, ours)) is not None]
    return sorted(found, key=lambda cluster: cluster.tick, reverse=True)


def choose(clusters: Iterable[RayCluster], api: str, *, wanted: bool) -> RayCluster | None:
    """The one that serves the run: in the trainer's tree, or the one at ``api`` (host:port) where its tree has none;
    ``wanted``: the one at ``api`` and no other. Pure."""
    known = list(clusters)
    ours = [] if wanted else [cluster for cluster in known if cluster.ours]
    at = [cluster for cluster in known if cluster.api == api]
    return next(iter(ours or at), None)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name[0] in "123456789"]


def _cluster(pid: int, ours: Callable[[int], bool]) -> RayCluster | None:
    told = parse(procfs.arguments(pid))
    process = port_holders.read(pid) if told is not None else None
    # Another user's command line could name any program as its Python.
    if told is None or process is None or process.uid != os.geteuid():
        return None
    env = procfs.whole_environment(pid) or {}
    token = {name: env[name] for name in _TOKEN if name in env}
    host = reachable(told.host)
    return RayCluster(
        pid=pid,
        tick=process.tick,
        api=f"{host}:{_port(pid, told)}",
        gcs=told.gcs,
        python=told.python,
        token_file=_token_file(token),
        env=token,
        served=told.served,
        ours=ours(pid),
    )


def _port(pid: int, told: RayDashboard) -> int:
    """The port that it has got."""
    if not told.retries:
        return told.first
    listening = procfs.listening(pid)
    tried = range(told.first, told.first + told.retries + 1)
    return next((port for port in tried if port in listening), told.first)


def _token_file(env: Mapping[str, str]) -> str:
    if env.get("RAY_AUTH_MODE", "").lower() != "token" or "RAY_AUTH_TOKEN" in env:
        return ""
    path = env.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token")
    return path if os.path.isfile(path) else ""
