"""What a node of a Ray cluster has of what a run needs there. ``look`` runs on the node, as a Ray task without CPUs.

Its code travels with the task, so it imports nothing but the standard library, and only inside functions.
"""

from typing import Any

ORIGINS = ("ray", "verl", "vllm")  # packages whose origin is told, too


def look(question: dict[str, Any]) -> dict[str, Any]:
    """The facts for ``liverl.hosts.checks.NodeFacts``. ``question``: ``paths`` (key -> path that must be seen),
    ``writable`` (keys of those that must be writable), ``reach`` (name -> ``host:port``), ``packages`` (names), and
    ``seconds`` that a connection may take."""
    import platform
    import socket
    import time

    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "at": time.time(),
        "shm_total": _shared_memory(),
        "unseen": unseen(question["paths"], question["writable"]),
        "unreached": _unreached(question["reach"], question["seconds"]),
        "versions": {name: _version(name) for name in question["packages"]},
        "origins": {name: _origin(name) for name in ORIGINS},
    }


def _shared_memory() -> int:
    """Bytes of /dev/shm in all; 0 if there is none."""
    import os

    try:
        stats = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return stats.f_frsize * stats.f_blocks


def unseen(paths: dict[str, str], writable: list[str]) -> dict[str, str]:
    """Key -> why its path cannot be used here; without those that can."""
    import os

    found = {}
    for key, path in paths.items():
        try:
            os.stat(path)
        except OSError as error:
            found[key] = error.strerror or str(error)
            continue
        if not os.access(path, os.R_OK):
            found[key] = "not readable by this user"
        elif key in writable and not os.access(path, os.W_OK):
            found[key] = "not writable by this user"
    return found


def _unreached(reach: dict[str, str], seconds: float) -> dict[str, str]:
    """Name -> why nothing answers at its address from here; without those where something does."""
    import socket

    found = {}
    for name, address in reach.items():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), seconds).close()
        except OSError as error:
            found[name] = error.strerror or str(error)
    return found


def _version(name: str) -> str:
    """The installed version of a package; "" = it is not there."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name) or ""  # None: its folder of metadata is empty
    except importlib.metadata.PackageNotFoundError:
        return ""


def _origin(name: str) -> str:
    """The file from which a package would be imported here; "" = it would not be found."""
    import importlib.util

    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    return "" if spec is None or spec.origin is None else spec.origin
