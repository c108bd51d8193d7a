"""The processes that listen on a port: all that have the listening socket open, and which of them are parents.

A proxy with workers has one socket, which the parent binds and all workers listen on. The command line of a worker is
only ``multiprocessing.spawn``, and workers continue to listen when their parent is killed, so they are identified by
the socket's inode. psutil does not do this: ``net_connections`` gives one process per socket, no inode and no user.
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
    """A process that has the socket open. ``tick``: start time in clock ticks since boot, which identifies the process
    with its pid. ``uid``: the user it runs as. ``argv``: empty if it cannot be read."""

    pid: int
    tick: int
    ppid: int
    uid: int
    argv: tuple[str, ...] = ()

    @property
    def member(self) -> Member:
        """(pid, tick), which no other process has."""
        return self.pid, self.tick


@dataclass(frozen=True)
class PortHolders:
    """A listening port. ``roots``: the holders whose parent is no holder (the parent of workers, or the workers once
    their parent has exited). ``unseen``: uids of the owners of sockets for which no holder is visible from here."""

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
    """The holders of ``sockets`` (local address, inode, uid). ``open_by``: pid -> inodes of the sockets it has open.
    None without any socket. Pure."""
    listening = list(sockets)
    if not listening:
        return None
    inodes = frozenset(inode for _, inode, _ in listening)
    pids = {pid for pid, opened in open_by.items() if pid in processes and not inodes.isdisjoint(opened)}
    holders = sorted((processes[pid] for pid in pids), key=lambda p: (p.tick, p.pid))
    visible = {inode for pid in pids for inode in open_by[pid]}
    return PortHolders(
        inodes=inodes,
        address=listening[0][0],
        holders=tuple(holders),
        roots=tuple(p for p in holders if p.ppid not in pids),
        unseen=tuple(dict.fromkeys(uid for _, inode, uid in listening if inode not in visible)),
    )


def look(port: int) -> PortHolders | None:
    """The processes that listen on ``port`` now; None if there is no listening socket. Scans all of ``/proc``."""
    sockets = list(procfs.listeners(port))
    return _held(sockets) if sockets else None


def look_again(earlier: PortHolders) -> PortHolders | None:
    """The processes that hold the same sockets now, listening or only bound; None if there are none any more."""
    held = _held([(earlier.address, inode, -1) for inode in earlier.inodes])
    return held if held is not None and held.holders else None


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
    """Inodes of the sockets that a process has open; empty if its descriptors cannot be read."""
    inodes = set()
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                try:
                    target = os.readlink(entry.path)
                except OSError:
                    continue  # closed meanwhile
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
    except OSError:
        return set()  # it has exited, or belongs to another user
    return inodes


def read(pid: int) -> HolderProcess | None:
    """One process; None if it has exited, or is a zombie."""
    proc = procfs.read_proc(pid)
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    if proc is None or proc.zombie:
        return None
    return HolderProcess(pid, proc.tick, proc.ppid, uid, procfs.arguments(pid))


def own_interfaces() -> dict[str, bool]:
    """Name of each network interface of this host, and whether it is up."""
    import psutil

    return {name: bool(stats.isup) for name, stats in psutil.net_if_stats().items()}


def interface_of(address: str) -> str:
    """Name of this host's interface that has this IP address; "" if none has."""
    import psutil

    found = (name for name, of in psutil.net_if_addrs().items() if any(one.address == address for one in of))
    return next(found, "")


def own_addresses() -> frozenset[str]:
    """The IPv4 and IPv6 addresses of this host's interfaces, without zones (``%eth0``)."""
    import psutil

    internet = (socket.AF_INET, socket.AF_INET6)
    addresses = (one for of in psutil.net_if_addrs().values() for one in of if one.family in internet)
    return frozenset(one.address.partition("%")[0] for one in addresses)
