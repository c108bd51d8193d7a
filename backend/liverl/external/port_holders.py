"""Who really listens on a port: every process that has the listening socket open, and who of them was first.

A proxy with workers has one socket that its parent bound and all of its workers listen on. Their command line says
``multiprocessing.spawn`` and not what they do, and they go on listening when their parent is killed: only the
socket's inode tells. psutil cannot: ``net_connections`` names one process of each socket, and neither inode nor user.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from liverl.procs import procfs
from liverl.procs.tree import Member


@dataclass(frozen=True)
class HolderProcess:
    """``uid``: of the user it runs as. ``argv``: empty where it cannot be read."""

    pid: int
    tick: int
    ppid: int
    uid: int
    argv: tuple[str, ...] = ()

    @property
    def member(self) -> Member:
        return self.pid, self.tick


@dataclass(frozen=True)
class PortHolders:
    """A listening port. ``roots``: the processes that hold its socket and whose parent does not (the parent with
    its workers; or the workers alone, once their parent has gone). ``unseen``: users of sockets that nobody whom
    we can see holds."""

    inodes: frozenset[int]
    address: str  # local address of one of its sockets
    holders: tuple[HolderProcess, ...]
    roots: tuple[HolderProcess, ...]
    unseen: tuple[int, ...] = ()


def resolve(
    sockets: Iterable[tuple[str, int, int]],
    open_by: Mapping[int, Collection[int]],
    processes: Mapping[int, HolderProcess],
) -> PortHolders | None:
    """Who holds ``sockets`` (local address, inode, uid). ``open_by``: pid -> inodes of the sockets it has open. None
    without any socket. Pure."""
    found = list(sockets)
    if not found:
        return None
    inodes = frozenset(inode for _, inode, _ in found)
    pids = {pid for pid, opened in open_by.items() if pid in processes and not inodes.isdisjoint(opened)}
    holders = sorted((processes[pid] for pid in pids), key=lambda p: (p.tick, p.pid))
    seen = {inode for pid in pids for inode in open_by[pid]}
    return PortHolders(
        inodes=inodes,
        address=found[0][0],
        holders=tuple(holders),
        roots=tuple(p for p in holders if p.ppid not in pids),
        unseen=tuple(dict.fromkeys(uid for _, inode, uid in found if inode not in seen)),
    )


def look(port: int) -> PortHolders | None:
    """Who listens on ``port`` now; None if nobody does."""
    sockets = list(procfs.listeners(port))
    return _held(sockets) if sockets else None


def look_again(known: PortHolders) -> PortHolders | None:
    """Who holds the very sockets of ``known``, listening or only bound; None if nobody does any more."""
    found = _held([(known.address, inode, -1) for inode in known.inodes])
    return found if found is not None and found.holders else None


def _held(sockets: list[tuple[str, int, int]]) -> PortHolders | None:
    wanted = {inode for _, inode, _ in sockets}
    open_by: dict[int, set[int]] = {}
    processes: dict[int, HolderProcess] = {}
    for name in os.listdir("/proc"):
        if name[0] not in "123456789":
            continue
        opened = wanted & sockets_of(int(name))
        process = read(int(name)) if opened else None
        if process is not None:
            open_by[process.pid], processes[process.pid] = opened, process
    return resolve(sockets, open_by, processes)


def sockets_of(pid: int) -> set[int]:
    """Inodes of the sockets that a process has open; none where we may not look."""
    found = set()
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                try:
                    target = os.readlink(entry.path)
                except OSError:
                    continue  # closed meanwhile
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    except OSError:
        return set()  # gone, or another user's
    return found


def read(pid: int) -> HolderProcess | None:
    """One process; None when it has gone."""
    proc = procfs.read_proc(pid)
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    if proc is None or proc.zombie:
        return None
    return HolderProcess(pid, proc.tick, proc.ppid, uid, procfs.arguments(pid))


def own_addresses() -> frozenset[str]:
    """The IPv4 and IPv6 addresses of this host's interfaces, without zones (``%eth0``)."""
    import psutil

    internet = (socket.AF_INET, socket.AF_INET6)
    found = (one for of in psutil.net_if_addrs().values() for one in of if one.family in internet)
    return frozenset(one.address.partition("%")[0] for one in found)
