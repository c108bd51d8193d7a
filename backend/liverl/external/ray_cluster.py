"""Finds the Ray clusters on this host by the processes of their dashboards.

The command line of a dashboard contains all that is needed: its address, the address of the GCS, and the Python in
which this Ray is installed.
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
    """The command line of a dashboard. ``first`` and ``retries``: Ray takes the first free port of ``first`` to
    ``first + retries``. ``served``: False with ``include_dashboard=False``, which serves usage statistics only.
    ``logs``: the folder of the logs of its session, "" if it names none."""

    python: str
    host: str
    first: int
    retries: int
    gcs: str  # host:port
    served: bool
    logs: str = ""


@dataclass(frozen=True)
class RayCluster:
    """A running Ray. ``env``: the variables with which a client authenticates; may hold a token. ``token_file`` "" = no
    token, or it is not in a file. ``served`` and ``logs``: as in ``RayDashboard``."""

    pid: int
    tick: int
    api: str  # host:port of the dashboard
    gcs: str
    python: str
    token_file: str
    env: Mapping[str, str]
    served: bool
    ours: bool  # it runs in the trainer's process tree
    logs: str = ""

    @property
    def identity(self) -> tuple[int, int, str]:
        """Changes when the dashboard is another process, or has another port."""
        return self.pid, self.tick, self.api


def parse(argv: tuple[str, ...]) -> RayDashboard | None:
    """The options in the command line of a dashboard; None if this is another program. Pure."""
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
        logs=option(argv, "--log-dir") or "",
    )


def reachable(host: str) -> str:
    """The host name with which a client on this host reaches a server that listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(host, host)


def running(ours: Callable[[int], bool]) -> list[RayCluster]:
    """Every Ray of this user on this host, newest first. ``ours``: whether a pid is in the trainer's process tree."""
    clusters = [cluster for pid in _pids() if (cluster := _cluster(pid, ours)) is not None]
    return sorted(clusters, key=lambda cluster: cluster.tick, reverse=True)


def choose(clusters: Iterable[RayCluster], api: str, *, wanted: bool) -> RayCluster | None:
    """The cluster of the run: the first in the trainer's process tree, else the one at ``api`` (host:port). ``wanted``:
    only the one at ``api``. None if there is none. Pure."""
    candidates = list(clusters)
    ours = [] if wanted else [cluster for cluster in candidates if cluster.ours]
    at = [cluster for cluster in candidates if cluster.api == api]
    return next(iter(ours or at), None)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name[0] in "123456789"]


def _cluster(pid: int, ours: Callable[[int], bool]) -> RayCluster | None:
    dashboard = parse(procfs.arguments(pid))
    process = port_holders.read(pid) if dashboard is not None else None
    # Another user's command line could name any program as its Python.
    if dashboard is None or process is None or process.uid != os.geteuid():
        return None
    env = procfs.whole_environment(pid) or {}
    token = {name: env[name] for name in _TOKEN if name in env}
    host = reachable(dashboard.host)
    return RayCluster(
        pid=pid,
        tick=process.tick,
        api=f"{host}:{_port(pid, dashboard)}",
        gcs=dashboard.gcs,
        python=dashboard.python,
        token_file=_token_file(token),
        env=token,
        served=dashboard.served,
        ours=ours(pid),
        logs=dashboard.logs,
    )


def _port(pid: int, dashboard: RayDashboard) -> int:
    """The port on which the dashboard listens: the first of its range that the process has open."""
    if not dashboard.retries:
        return dashboard.first
    listening = procfs.listening(pid)
    tried = range(dashboard.first, dashboard.first + dashboard.retries + 1)
    return next((port for port in tried if port in listening), dashboard.first)


def _token_file(env: Mapping[str, str]) -> str:
    if env.get("RAY_AUTH_MODE", "").lower() != "token" or "RAY_AUTH_TOKEN" in env:
        return ""
    path = env.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token")
    return path if os.path.isfile(path) else ""
