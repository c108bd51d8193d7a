"""Attributes processes to services, and signals them.

No single criterion is enough: ``setsid`` leaves the session, a double fork loses the parent, and
``setproctitle`` or a scrubbed environment removes the tag. The tree of a service is therefore the union of
its descendants, session, process group, tagged processes and all members (pid + start tick) of earlier scans.

A process without any of these that was reparented to the keeper is attributed to the service whose leader
just ended, unless the keeper is spawning: a fresh fork looks the same until it has become its service.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from liverl.procs import procfs
from liverl.procs.procfs import Proc

Member = tuple[int, int]  # pid, start tick
STRAYS = "(stray)"


@dataclass
class Trees:
    """Remembers which processes belong to which service. Keys are ``service.generation``."""

    run: str  # value prefix of LIVERL_RUN: project/name
    run_dir: str = ""  # value of LIVERL_RUN_DIR: runs in different roots may have the same name
    keeper_pid: int | None = None
    not_ours: frozenset[int] = frozenset()  # backend, keeper
    members: dict[str, set[Member]] = field(default_factory=dict)
    _tags: dict[Member, str | None] = field(default_factory=dict)
    _foreign: dict[int, tuple[int, Proc]] = field(default_factory=dict)  # with the inodes of scan_again

    def look(self, leaders: Mapping[str, Member], *, spawning: bool = False) -> dict[str, set[Member]]:
        """Like ``update``, for periodic scans: processes that did not belong to this run are not read again."""
        entries = procfs.scan_again(self._foreign)
        live = self.update(
            leaders, table={pid: proc for pid, (_, proc) in entries.items()}, spawning=spawning
        )
        ours = {pid for members in live.values() for pid, _ in members} | self.not_ours
        self._foreign = {
            pid: entry
            for pid, entry in entries.items()
            if pid not in ours
            and entry[1].ppid != self.keeper_pid
            and not entry[1].zombie
            # A process whose parent just ended may be reparented to the keeper: check it again.
            and (entry[1].ppid in entries or entry[1].ppid <= 1)
        }
        return live

    def seed(self, key: str, members: Iterable[Member]) -> None:
        """Add members known from a journal or a spawn."""
        self.members.setdefault(key, set()).update(members)

    def forget(self, key: str) -> None:
        """Drop a service generation and its members."""
        self.members.pop(key, None)

    def update(
        self,
        leaders: Mapping[str, Member],
        *,
        ending: str | None = None,
        table: Mapping[int, Proc] | None = None,
        read_tag: Callable[[int], str | None] = procfs.environment_tag,
        spawning: bool = False,
    ) -> dict[str, set[Member]]:
        """Scan all processes, attribute them to services, remember them, and return the live members by key.

        ``leaders``: leader of each known generation, ended ones included (a session keeps its number).
        ``ending``: key that gets the unattributed processes reparented to the keeper. ``spawning``: the
        keeper is starting a service; unattributed processes stay so and are checked again in the next scan.
        """
        table = procfs.scan() if table is None else table
        strays = None if spawning else ending or STRAYS
        for key, leader in leaders.items():
            self.members.setdefault(key, set()).add(leader)
        owner = self._known(table)
        # A session outlives its leader and keeps its number. If another process has that pid now, it is not ours.
        sessions = {
            pid: key for key, (pid, tick) in leaders.items() if pid not in table or table[pid].tick == tick
        }
        for name, remembered in self.members.items():
            for pid, tick in remembered:
                # The session of a member that called setsid is inherited by its children.
                proc = table.get(pid)
                if proc is not None and proc.tick == tick and proc.session == pid:
                    sessions.setdefault(pid, name)
        for pid in table:
            self._claim(pid, table, owner, sessions, read_tag, strays)
        live: dict[str, set[Member]] = {key: set() for key in self.members}
        for pid, whose in owner.items():
            if whose is not None and not table[pid].zombie:
                live.setdefault(whose, set()).add((pid, table[pid].tick))
        self.members = {
            key: live_members | {leaders[key]} if key in leaders else live_members
            for key, live_members in live.items()
            if live_members or key in leaders
        }
        self._tags = {member: tag for member, tag in self._tags.items() if self._is(table, member)}
        return live

    @staticmethod
    def _is(table: Mapping[int, Proc], member: Member) -> bool:
        proc = table.get(member[0])
        return proc is not None and proc.tick == member[1]

    def _known(self, table: Mapping[int, Proc]) -> dict[int, str | None]:
        owner: dict[int, str | None] = dict.fromkeys(self.not_ours)
        if self.keeper_pid is not None:
            owner[self.keeper_pid] = None
        owner = {pid: key for pid, key in owner.items() if pid in table}
        for key, remembered in self.members.items():
            for member in remembered:
                if self._is(table, member) and member[0] not in owner:
                    owner[member[0]] = key
        return owner

    def _claim(
        self,
        pid: int,
        table: Mapping[int, Proc],
        owner: dict[int, str | None],
        sessions: Mapping[int, str],
        read_tag: Callable[[int], str | None],
        strays: str | None,
    ) -> str | None:
        if pid in owner:
            return owner[pid]
        proc = table[pid]
        owner[pid] = None  # guards against a cycle
        key = sessions.get(proc.session) or sessions.get(proc.pgrp)
        if key is None and proc.ppid > 1 and proc.ppid in table and proc.ppid != self.keeper_pid:
            key = self._claim(proc.ppid, table, owner, sessions, read_tag, strays)
        if key is None:
            key = self._tag(proc, read_tag)
        if key is None and proc.ppid == self.keeper_pid:
            key = strays
            if key is None:
                self._tags.pop((pid, proc.tick), None)  # exec may have changed its environment
        owner[pid] = key
        return key

    def _tag(self, proc: Proc, read_tag: Callable[[int], str | None]) -> str | None:
        """Return the key in LIVERL_RUN=<run>/<service>/<generation>, or None if the tag is not of this run."""
        member = (proc.pid, proc.tick)
        if member not in self._tags:
            tag = read_tag(proc.pid)
            ours = tag is not None and tag.startswith(self.run + "/")
            if ours and self.run_dir:
                ours = procfs.environment_tag(proc.pid, b"LIVERL_RUN_DIR") == self.run_dir
            self._tags[member] = tag if ours else None
        tag = self._tags[member]
        if tag is None:
            return None
        service, _, generation = tag[len(self.run) + 1 :].rpartition("/")
        if not service or service in ("backend", "keeper", "client"):
            return None
        return f"{service}.{generation}"


def send(member: Member, number: signal.Signals) -> bool:
    """Signal exactly this process, never another one with the same pid. Return False if it is gone.

    Raises:
        PermissionError: it runs as another user.
    """
    pid, tick = member
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if procfs.start_tick(pid) != tick:
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def send_all(members: Iterable[Member], number: signal.Signals) -> list[str]:
    """Signal every member; return a message for each that could not be signalled."""
    problems = []
    for member in members:
        try:
            send(member, number)
        except PermissionError:
            user = procfs.user_of(member[0])
            problems.append(f"no permission to signal pid {member[0]} (user {user})")
    return problems
