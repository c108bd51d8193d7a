"""Who lives: the process trees of all services, from scans of /proc that they share."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable

import msgspec

from liverl.procs import procfs, tree
from liverl.supervise.services import state_machine
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.keeper_manager import KeeperManager
from liverl.supervise.services.records import Records
from liverl.util.atomic_file import write_atomic
from liverl.util.ticks import until_tick

SCAN_AT_LEAST = 15.0  # seconds between two scans on the largest hosts


class ProcessScan:
    """``instances()`` gives all of them; ``interval`` is in seconds."""

    def __init__(
        self,
        keeper_manager: KeeperManager,
        attempt: int,
        records: Records,
        instances: Callable[[], Iterable[Instance]],
        interval: float,
    ) -> None:
        self.trees = tree.Trees(keeper_manager.run, str(keeper_manager.run_dir))
        self.tables = 0  # how many were read: two looks at one table are one look
        self._keeper_manager = keeper_manager
        self._attempt = attempt
        self._records = records
        self._instances = instances
        self._interval = interval
        self._table: dict[int, procfs.Proc] = {}
        self._table_at = self._table_cost = 0.0  # monotonic seconds
        self._table_spawning = False  # whether something was being started when it was read
        self._told: dict[str, list[tree.Member]] = {}
        self._writing: asyncio.Future[None] | None = None

    def set_keeper(self, pid: int) -> None:
        self.trees.keeper_pid = pid
        self.trees.not_ours = frozenset({os.getpid(), pid})

    def _leaders(self) -> dict[str, tree.Member]:
        """Of trees that may live. One that was found empty is over: its session's number can come again."""
        return {
            instance.key_of(instance.process.generation): instance.process.member
            for instance in self._instances()
            if instance.process is not None
            and instance.process.tick > 0
            and instance.machine.state in (*state_machine.LIVE, "stopping", "preparing")
            and instance.machine.generation == instance.process.generation
        }

    def live_members(self, instance: Instance) -> set[tree.Member]:
        """What lives of one tree, by a table that is at most a few milliseconds old."""
        leaders = self._leaders()
        alone = all(key == instance.key for key in leaders)
        # Strays without any sign are counted to the one that ends only if they cannot be another's.
        ending = instance.key if instance.machine.leader_gone and alone else None
        table = self._processes()
        live = self.trees.update(leaders, ending=ending, table=table, spawning=self._table_spawning)
        return live.get(instance.key, set())

    def _processes(self) -> dict[int, procfs.Proc]:
        """The process table, one for all services that end together: on a large host a scan is dear."""
        now = time.monotonic()
        if now - self._table_at > 3 * self._table_cost:
            self._table = procfs.scan()
            self._table_at = time.monotonic()
            self._table_spawning = self._keeper_manager.spawning
            self._table_cost = self._table_at - now
            self.tables += 1
        return self._table

    async def scan_and_pause(self) -> float:
        """One scan; returns seconds until the next."""
        began = time.thread_time()
        self._scan()
        cost = time.thread_time() - began
        # On a host with thousands of processes a scan is dear: at most 0.05 % of a core, a quarter of what the
        # backend may cost when idle (tests/bench/supervise.py), but never so seldom that workers go unseen.
        return until_tick(min(max(self._interval, cost * 2000), SCAN_AT_LEAST))

    def _scan(self) -> None:
        """Look at every tree, and note members that are new: they are the only proof of a worker that has left
        its session and wiped its environment."""
        live = self.trees.look(self._leaders(), spawning=self._keeper_manager.spawning)
        known = {key: sorted(members) for key, members in live.items() if members}
        if known != self._told and self._writing is None:
            self._told = known
            self._writing = asyncio.get_running_loop().run_in_executor(None, self._write, known)
            self._writing.add_done_callback(self._written)

    def _write(self, known: dict[str, list[tree.Member]]) -> None:
        data = msgspec.json.encode({"attempt": self._attempt, "trees": known})
        try:
            write_atomic(self._keeper_manager.run_dir / "members.json", data)
        except OSError as error:
            self._records.write_failed(f"members.json: {error.strerror}")
            self._told = {}  # the next scan tries again

    def _written(self, _: asyncio.Future[None]) -> None:
        self._writing = None

    def members(self) -> dict[str, list[int]]:
        """Live pids per service, from the last scan, for sampling CPU and memory."""
        found: dict[str, list[int]] = {}
        for key, members in self.trees.members.items():
            name = key.rpartition(".")[0] or key
            found.setdefault(name, []).extend(pid for pid, _ in members)
        return found

    def stuck(self) -> list[str]:
        """The processes that could not be killed, in words."""
        found = []
        for instance in self._instances():
            if instance.machine.stuck:
                members = sorted(self.trees.members.get(instance.key, ()))
                procs = [procfs.read_proc(pid) for pid, tick in members if procfs.alive(pid, tick)]
                states = ", ".join(f"pid {proc.pid} ({proc.state})" for proc in procs if proc is not None)
                found.append(f"{instance.name}: {states}")
            elif instance.busy and instance.machine.state in state_machine.ENDED:
                # An exec or a directory on a file system that hangs, and the keeper with it.
                found.append(f"{instance.name}: its start has not finished")
        return found

    async def sweep_strays(self, grace: float = 3.0) -> list[int]:
        """End whatever still hangs under the keeper although no service claims it: TERM, then KILL after a third
        of ``grace`` seconds. Returns the pids that are left after it."""
        began = time.monotonic()
        while True:
            live = self.trees.update(self._leaders(), ending=tree.STRAYS)
            left = {member for members in live.values() for member in members}
            passed = time.monotonic() - began
            if not left or passed > grace:
                return sorted(pid for pid, _ in left)
            tree.send_all(left, signal.SIGTERM if passed < grace / 3 else signal.SIGKILL)
            await asyncio.sleep(0.05)
