"""Which processes belong to which service, and how they are signalled.

No single sign proves a tree: a session ends at ``setsid``, parentage at a double fork, the environment tag
at ``setproctitle`` or a scrubbed environment (measured: it is wiped every time). The tree is therefore the
union of descent, session, process group, tag and every member (pid + start tick) seen in an earlier scan; a
stray that hangs under the keeper and bears no sign is counted to the service whose leader has just ended, unless
the keeper is starting something: its fork looks just so until it has become its service.
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
    """The memory of who belongs to whom. Keys are ``service.generation``."""

    run: str  # value prefix of LIVERL_RUN: project/name
    run_dir: str = ""  # value of LIVERL_RUN_DIR: two runs in different roots may bear one name
    keeper_pid: int | None = None
    not_ours: frozenset[int] = frozenset()  # backend, keeper
    members: dict[str, set[Member]] = field(default_factory=dict)
    _tags: dict[Member, str | None] = field(default_factory=dict)
    _foreign: dict[int, tuple[int, Proc]] = field(default_factory=dict)  # with the inodes of scan_again

    def look(self, leaders: Mapping[str, Member], *, spawning: bool = False) -> dict[str, set[Member]]:
        """``update`` for regular looks: processes that were nobody's of ours stay so, and are not read again."""
        found = procfs.scan_again(self._foreign)
        live = self.update(leaders, table={pid: proc for pid, (_, proc) in found.items()}, spawning=spawning)
        ours = {pid for members in live.values() for pid, _ in members} | self.not_ours
        self._foreign = {
            pid: entry
            for pid, entry in found.items()
            if pid not in ours
            and entry[1].ppid != self.keeper_pid
            and not entry[1].zombie
            # One whose parent has just ended may come to hang under the keeper: it is looked at again.
            and (entry[1].ppid in found or entry[1].ppid <= 1)
        }
        return live

    def seed(self, key: str, members: Iterable[Member]) -> None:
        """Make members known that a journal or a spawn tells of."""
        self.members.setdefault(key, set()).update(members)

    def forget(self, key: str) -> None:
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
        """Scan, attribute and remember; returns the live members of every key.

        ``leaders``: the leader of each generation we know, ended ones included (a session keeps its number).
        ``ending``: the key that unclaimed strays under the keeper are counted to. ``spawning``: one of them may be
        about to become a service; they are nobody's then, and are asked again the next time.
        """
        table = procfs.scan() if table is None else table
        strays = None if spawning else ending or STRAYS
        for key, leader in leaders.items():
            self.members.setdefault(key, set()).add(leader)
        owner = self._known(table)
        # A session outlives its leader and keeps its number; a number that another process has is not ours.
        sessions = {
            pid: key for key, (pid, tick) in leaders.items() if pid not in table or table[pid].tick == tick
        }
        for name, known in self.members.items():
            for pid, tick in known:
                # A member that made its own session passes it on to its children.
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
            key: found | {leaders[key]} if key in leaders else found
            for key, found in live.items()
            if found or key in leaders
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
        for key, known in self.members.items():
            for member in known:
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
        owner[pid] = None  # cuts a cycle, should /proc ever show one
        key = sessions.get(proc.session) or sessions.get(proc.pgrp)
        if key is None and proc.ppid > 1 and proc.ppid in table and proc.ppid != self.keeper_pid:
            key = self._claim(proc.ppid, table, owner, sessions, read_tag, strays)
        if key is None:
            key = self._tag(proc, read_tag)
        if key is None and proc.ppid == self.keeper_pid:
            key = strays
            if key is None:
                self._tags.pop((pid, proc.tick), None)  # its environment may become another
        owner[pid] = key
        return key

    def _tag(self, proc: Proc, read_tag: Callable[[int], str | None]) -> str | None:
        """The key told by LIVERL_RUN=<run>/<service>/<generation>, if it is of our run."""
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
    """Signal exactly this process, never one that has its pid now. False if it has gone.

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
    """Signal every member; returns in words what could not be signalled."""
    problems = []
    for member in members:
        try:
            send(member, number)
        except PermissionError:
            user = procfs.user_of(member[0])
            problems.append(f"no permission to signal pid {member[0]} (user {user})")
    return problems
