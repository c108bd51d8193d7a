"""Files that are written beside the event loop: waiting for them, and a storage whose answers a test gives."""

from __future__ import annotations

import asyncio
import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path

from liverl.serving.proxy_routes import ProxyRoutes
from liverl.serving.registry import ReplicaRegistry
from liverl.util.atomic_file import write_atomic
from liverl.util.newest_file import NewestFile


async def idle(file: NewestFile, seconds: float = 60.0) -> None:
    """Wait until no write of ``file`` is under way."""
    async with asyncio.timeout(seconds):
        while file._writing is not None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)


async def lists_written(replicas: ReplicaRegistry | ProxyRoutes) -> None:
    """Wait until the lists that were published are in their files, or could not be written."""
    if isinstance(replicas, ReplicaRegistry):
        await idle(replicas._list_file)
        replicas = replicas.proxy
    await idle(replicas._file)


@dataclass
class Storage:
    """Takes the place of ``write_atomic``: each write waits until a test lets it through, by None or the error that it
    gets. SIMULATED: a storage that is slow, full or hangs."""

    answers: queue.SimpleQueue[Exception | None] = field(default_factory=queue.SimpleQueue)
    begun: list[bytes] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    def write(self, path: Path, data: bytes, mode: int) -> None:
        self.begun.append(data)
        self.threads.add(threading.get_ident())
        answer = self.answers.get(timeout=60)
        if answer is not None:
            raise answer
        write_atomic(path, data, mode)

    async def until_begun(self, writes: int) -> None:
        """Wait until so many writes have begun."""
        async with asyncio.timeout(60):
            while len(self.begun) < writes:  # noqa: ASYNC110 - a thread notes them
                await asyncio.sleep(0.001)

    async def answered(self, file: NewestFile, *answers: Exception | None) -> None:
        """Answer as many writes, and wait until none is under way."""
        for answer in answers:
            self.answers.put(answer)
        await idle(file)

    def end(self) -> None:
        """Let all threads go."""
        for _ in range(9):
            self.answers.put(None)
