"""The limit of open files (RLIMIT_NOFILE) of processes: read, and raised for the services of a run."""

from __future__ import annotations

import resource

WANTED = 65536  # open files and connections of one service
_LIMIT = resource.RLIMIT_NOFILE


def raised(soft: int, hard: int) -> int:
    """Return the soft limit that a service gets where its starter has ``soft`` and ``hard``: never a lower one."""
    reachable = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    return soft if soft == resource.RLIM_INFINITY else max(soft, reachable)


def service_limit() -> int:
    """Return how many files a service of ours can open on this host."""
    limit = raised(*resource.getrlimit(_LIMIT))
    return WANTED if limit == resource.RLIM_INFINITY else limit


def raise_limit(pid: int) -> bool:
    """Raise the soft limit of a process, which its later children inherit. Whether it is allowed and the process is
    there."""
    try:
        soft, hard = resource.prlimit(pid, _LIMIT)
        wanted = raised(soft, hard)
        if wanted != soft:
            resource.prlimit(pid, _LIMIT, (wanted, hard))
    except (OSError, ValueError):
        return False
    return True
