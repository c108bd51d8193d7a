"""The processes in which a training may hang, to be looked at with py-spy. Read from /proc."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from liverl.model import ServiceStatus
from liverl.procs import procfs

MOST = 3  # processes that are named
# Titles of Ray's processes in which verl trains, the ones that wait for the others first.
_ORDER = tuple(
    re.compile(text)
    for text in (
        r"ray::(TaskRunner|FullyAsync)",
        r"ray::(WorkerDict|\w*TrainWorker|ActorRollout)",
        r"ray::AgentLoop",
    )
)
_KINDS = ("trainer", "ray")


def training_processes(
    services: Iterable[ServiceStatus], title: Callable[[int], str] = procfs.command_line
) -> tuple[tuple[int, str], ...]:
    """Pid and title of the processes that may hang: verl's in the tree of its trainer or of Ray, one of each kind;
    without any, the trainer itself. ``title``: the command line of a pid."""
    services = [service for service in services if service.kind in _KINDS]
    titles = {pid: title(pid) for service in services for pid in service.members}
    found: list[tuple[int, str]] = []
    for pattern in _ORDER:
        matches = sorted((pid, match[0]) for pid, text in titles.items() if (match := pattern.search(text)))
        found += matches[:1]
    trainers = ((s.pid, s.name) for s in services if s.kind == "trainer")
    return tuple(found[:MOST]) or tuple((pid, name) for pid, name in trainers if pid is not None)
