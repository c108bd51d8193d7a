"""The leader of a service's process tree: its identity, and its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from liverl.model import Exit
from liverl.procs import procfs, tree
from liverl.procs.exit_status import kernel_exit
from liverl.supervise.services.keeper_manager import KeeperManager

# Seconds. The keeper reports an exit within milliseconds unless it waits for a slow disk; for a process that init has
# yet to reap, the kernel may take seconds (measured: 1.75 s).
EXIT_PATIENCE = 4.0


@dataclass
class LeaderProcess:
    """The newest process of an instance. ``tick``: start tick, 0 if unknown, -1 if the pid is of an earlier boot.
    ``log_start``: byte offset in ``log`` at which it begins. ``started_at``: Unix seconds. ``gpus``: UUIDs. ``pidfd``:
    -1 if it could not be opened."""

    generation: int
    pid: int
    tick: int
    ports: dict[str, int]
    log: Path
    log_start: int
    started_at: float
    gpus: tuple[str, ...] = ()
    pidfd: int = -1

    @property
    def member(self) -> tree.Member:
        """(pid, start tick), which identifies the process even after its pid is reused."""
        return (self.pid, self.tick)


class LeaderHost(Protocol):
    """The part of the supervisor that a leader uses."""

    keeper_manager: KeeperManager

    def now(self) -> float:
        """Unix seconds."""

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background; its exceptions are reported."""


class Leader:
    """Watches one process at a time; ``ended(generation, exit)`` is called at least once for each that ends."""

    def __init__(self, host: LeaderHost, ended: Callable[[int, Exit], None]) -> None:
        self.process: LeaderProcess | None = None
        self._host = host
        self._ended = ended
        self._reported: dict[int, Exit] = {}  # by generation
        self._new_report = asyncio.Event()

    def take(self, process: LeaderProcess) -> None:
        """Watch a process instead of the previous one. Its pidfd reports the exit even if the keeper does not."""
        self.drop()
        self.process = process
        try:
            process.pidfd = os.pidfd_open(process.pid)
        except (ProcessLookupError, OSError):
            return
        if procfs.start_tick(process.pid) not in (process.tick, None):
            os.close(process.pidfd)
            process.pidfd = -1
            return
        asyncio.get_running_loop().add_reader(process.pidfd, self._readable, process)

    def drop(self) -> None:
        """Stop watching the process; no signal is sent."""
        if self.process is not None and self.process.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self.process.pidfd)
            os.close(self.process.pidfd)
            self.process.pidfd = -1

    def _readable(self, process: LeaderProcess) -> None:
        asyncio.get_running_loop().remove_reader(process.pidfd)
        self._host.spawn_task(self.resolve(process))

    def exit_reported(self, generation: int, exit_: Exit) -> None:
        """Take the exit status of a generation from the keeper or the journal."""
        self._reported[generation] = exit_
        self._new_report.set()
        if self.process is not None and self.process.generation == generation:
            self._ended(generation, exit_)

    async def resolve(self, process: LeaderProcess) -> None:
        """Get the exit status of a dead leader: from the keeper, else from the kernel, else an ``Exit`` without code
        and signal after ``EXIT_PATIENCE`` seconds."""
        give_up = self._host.now() + EXIT_PATIENCE
        while process.generation not in self._reported:
            exit_status = kernel_exit(process.pidfd) if process.pidfd >= 0 else None
            if exit_status is None and self._host.now() >= give_up:
                await self._host.keeper_manager.wait_for_exit_reports()
                exit_status = self._reported.get(process.generation, Exit())
            if exit_status is not None:
                self._ended(process.generation, exit_status)
                return
            self._new_report.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._new_report.wait()
        self._ended(process.generation, self._reported[process.generation])
