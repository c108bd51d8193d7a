"""The live processes of all services, from shared scans of /proc."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from liverl.procs import procfs, tree
from liverl.supervise.services import state_machine
from liverl.supervise.services.failpoints import blockpoint
from liverl.supervise.services.keeper_manager import KeeperManager
from liverl.supervise.services.leader import LeaderProcess
from liverl.supervise.services.records import Records
from liverl.supervise.services.state_machine import MachineState
from liverl.util.atomic_file import write_atomic
from liverl.util.pace import Pace

SCAN_AT_LEAST = 15.0  # seconds between two scans on the largest hosts
SCAN_ANYWAY = 60.0  # seconds between two scans while no process is started


class Scanned(Protocol):
    """The part of an instance that its process tree is found by."""

    @property
    def name(self) -> str:
        """Of its service."""

    @property
    def busy(self) -> bool:
        """Whether a start is still being carried out, also one that a stop has overtaken."""

    @property
    def key(self) -> str:
        """Of the tree of its newest process."""

    def key_of(self, generation: int) -> str:
        """Of the tree of one of its processes."""

    @property
    def process(self) -> LeaderProcess | None:
        """The newest one."""

    @property
    def machine(self) -> MachineState:
        """What is known of it."""


class ProcessScan:
    """Keeps the process tree of each instance. ``instances()`` yields the instances of all services; ``interval``:
    seconds between two scans."""

    def __init__(
        self,
        keeper_manager: KeeperManager,
        attempt: int,
        records: Records,
        instances: Callable[[], Iterable[Scanned]],
        interval: float,
        pace: Pace,
    ) -> None:
        self.trees = tree.Trees(keeper_manager.run, str(keeper_manager.run_dir))
        self.tables = 0  # number of process tables read so far
        self._keeper_manager = keeper_manager
        self._attempt = attempt
        self._records = records
        self._instances = instances
        self._interval = interval
        self._pace = pace
        # Newest pid and trees of the last scan
        self._scanned: tuple[int | None, frozenset[str]] | None = None
        self._scanned_at = 0.0  # monotonic seconds
        self._table: dict[int, procfs.Proc] = {}
        # Half of the processes of many hosts; with their inodes, see ``scan_again``
        self._kernel_threads: dict[int, tuple[int, procfs.Proc]] = {}
        self._table_at = 0.0  # monotonic seconds
        self._table_cost = 0.0  # seconds of CPU
        self._table_spawning = False  # whether a process was being started when the table was read
        self._written_trees: dict[str, list[tree.Member]] = {}  # content of members.json
        self._writing: asyncio.Future[None] | None = None

    def set_keeper(self, pid: int) -> None:
        """Note the keeper's pid: it adopts orphans, and neither it nor the backend belongs to a service."""
        self.trees.keeper_pid = pid
        self.trees.not_ours = frozenset({os.getpid(), pid})

    def _leaders(self) -> dict[str, tree.Member]:
        """The leader of each tree that may have processes. A tree that was found empty is left out, since the number
        of its session can be reused."""
        return {
            instance.key_of(instance.process.generation): instance.process.member
            for instance in self._instances()
            if instance.process is not None
            and instance.process.tick > 0
            and instance.machine.state in (*state_machine.LIVE, "stopping", "preparing")
            and instance.machine.generation == instance.process.generation
        }

    def live_members(self, instance: Scanned) -> set[tree.Member]:
        """The live processes of one instance. The process table is read anew unless it is at most three times as old
        as a scan takes."""
        leaders = self._leaders()
        alone = all(key == instance.key for key in leaders)
        # Unattributed processes are counted to the ending instance only if they cannot belong to another one.
        ending = instance.key if instance.machine.leader_gone and alone else None
        table = self._processes()
        live = self.trees.update(leaders, ending=ending, table=table, spawning=self._table_spawning)
        return live.get(instance.key, set())

    @property
    def table_lasts(self) -> float:
        """Seconds for which ``live_members`` still looks at the process table that it has read last."""
        return max(0.0, self._table_at + 3 * self._table_cost - time.monotonic())

    def _processes(self) -> dict[int, procfs.Proc]:
        """The process table, shared by all services that end at the same time: on a large host a scan is expensive."""
        if time.monotonic() - self._table_at > 3 * self._table_cost:
            began = time.thread_time()
            entries = procfs.scan_again(self._kernel_threads)
            self._kernel_threads = {pid: entry for pid, entry in entries.items() if entry[1].kernel}
            self._table = {pid: proc for pid, (_, proc) in entries.items()}
            self._table_at = time.monotonic()
            self._table_spawning = self._keeper_manager.spawning
            self._table_cost = time.thread_time() - began  # to wait for others costs nobody anything
            self.tables += 1
        return self._table

    async def scan_and_pause(self) -> float:
        """Scan once; returns the seconds until the next scan."""
        began = time.thread_time()
        blockpoint("scan")
        if self._may_have_grown():
            self._scan()
        cost = time.thread_time() - began
        # On a host with thousands of processes a scan is expensive: it may take 0.05 % of a core, a quarter of what
        # an idle backend may cost (tests/bench/supervise.py). SCAN_AT_LEAST keeps it frequent enough to see workers.
        return self._pace.until_next(min(max(self._interval, cost * 2000), SCAN_AT_LEAST))

    def _may_have_grown(self) -> bool:
        """Whether a process may have been started since the last scan, or that was ``SCAN_ANYWAY`` seconds ago."""
        now, newest = time.monotonic(), (procfs.newest_pid(), frozenset(self._leaders()))
        if newest[0] is not None and newest == self._scanned and now - self._scanned_at < SCAN_ANYWAY:
            return False
        # A process that is being started is attributed by the scan after its start.
        self._scanned = None if self._keeper_manager.spawning else newest
        self._scanned_at = now
        return True

    def members_have_exited(self) -> None:
        """Note that processes of the last scan are gone: the next scan is needed, also if no process was started."""
        self._scanned = None

    def _scan(self) -> None:
        """Update every tree and write it to members.json: for a worker that has left its session and cleared its
        environment, that file is the only proof to which service it belongs."""
        live = self.trees.look(self._leaders(), spawning=self._keeper_manager.spawning)
        trees = {key: sorted(members) for key, members in live.items() if members}
        if trees != self._written_trees and self._writing is None:
            self._written_trees = trees
            self._writing = asyncio.get_running_loop().run_in_executor(None, self._write, trees)
            self._writing.add_done_callback(self._written)

    def _write(self, trees: dict[str, list[tree.Member]]) -> None:
        data = msgspec.json.encode({"attempt": self._attempt, "trees": trees})
        try:
            write_atomic(self._keeper_manager.run_dir / "members.json", data)
        except OSError as error:
            self._records.write_failed(f"members.json: {error.strerror}")
            self._written_trees = {}  # the next scan tries again

    def _written(self, _: asyncio.Future[None]) -> None:
        self._writing = None

    def members(self) -> dict[str, list[int]]:
        """Live pids by service name, from the last scan, all generations together."""
        pids: dict[str, list[int]] = {}
        for key, members in self.trees.members.items():
            name = key.rpartition(".")[0] or key
            pids.setdefault(name, []).extend(pid for pid, _ in members)
        return pids

    def stuck(self) -> list[str]:
        """Services that cannot be ended, in words: processes that could not be killed, starts that have not
        finished."""
        problems = []
        for instance in self._instances():
            if instance.machine.stuck:
                members = sorted(self.trees.members.get(instance.key, ()))
                procs = [procfs.read_proc(pid) for pid, tick in members if procfs.alive(pid, tick)]
                states = ", ".join(f"pid {proc.pid} ({proc.state})" for proc in procs if proc is not None)
                # Without processes only the exit status is missing: a keeper that waits for a disk reports it late.
                if states:
                    problems.append(f"{instance.name}: {states}")
            elif instance.busy and instance.machine.state in state_machine.ENDED:
                # The exec or the directory is on a file system that hangs, and the keeper hangs with it.
                problems.append(f"{instance.name}: its start has not finished")
        return problems

    async def sweep_strays(self, grace: float = 3.0) -> list[int]:
        """End the processes below the keeper that belong to no service: TERM, then KILL after a third of ``grace``
        seconds. Returns the pids that are alive after ``grace``, sorted."""
        began = time.monotonic()
        while True:
            live = self.trees.update(self._leaders(), ending=tree.STRAYS)
            alive = {member for members in live.values() for member in members}
            passed = time.monotonic() - began
            if not alive or passed > grace:
                return sorted(pid for pid, _ in alive)
            tree.send_all(alive, signal.SIGTERM if passed < grace / 3 else signal.SIGKILL)
            await asyncio.sleep(0.05)
