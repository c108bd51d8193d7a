"""The leader of a service's process tree: which process it is, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from liverl.model import Exit
from liverl.procs import procfs, tree
from liverl.procs.exit_status import kernel_exit

if TYPE_CHECKING:
    from liverl.supervise.services.keeper_manager import KeeperManager

# The keeper tells of an exit within milliseconds, if it is not at a slow disk; the kernel may take some seconds for a
# process that init has yet to reap (measured 1.75 s).
EXIT_PATIENCE = 4.0


@dataclass
class LeaderProcess:
    """The newest process of an instance."""

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
        return (self.pid, self.tick)


class LeaderHost(Protocol):
    """What a leader needs of the supervisor."""

    keeper_manager: KeeperManager

    def now(self) -> float: ...
    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class Leader:
    """Watches one process at a time; ``ended(generation, exit)`` is called at least once for each that ends."""

    def __init__(self, host: LeaderHost, ended: Callable[[int, Exit], None]) -> None:
        self.process: LeaderProcess | None = None
        self._host = host
        self._ended = ended
        self._told: dict[int, Exit] = {}
        self._news = asyncio.Event()

    def take(self, process: LeaderProcess) -> None:
        """Hold on to a process: its pidfd tells of its end even if nobody else does."""
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
        """Let go of the process, without touching it."""
        if self.process is not None and self.process.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self.process.pidfd)
            os.close(self.process.pidfd)
            self.process.pidfd = -1

    def _readable(self, process: LeaderProcess) -> None:
        asyncio.get_running_loop().remove_reader(process.pidfd)
        self._host.spawn_task(self.resolve(process))

    def told(self, generation: int, exit_: Exit) -> None:
        """The keeper's word on a generation."""
        self._told[generation] = exit_
        self._news.set()
        if self.process is not None and self.process.generation == generation:
            self._ended(generation, exit_)

    async def resolve(self, process: LeaderProcess) -> None:
        """Find out how a dead leader ended: from the keeper, else the kernel, else it is unknown."""
        give_up = self._host.now() + EXIT_PATIENCE
        while process.generation not in self._told:
            told = kernel_exit(process.pidfd) if process.pidfd >= 0 else None
            if told is None and self._host.now() >= give_up:
                await self._host.keeper_manager.heard()
                told = self._told.get(process.generation, Exit())
            if told is not None:
                self._ended(process.generation, told)
                return
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._news.wait()
        self._ended(process.generation, self._told[process.generation])
