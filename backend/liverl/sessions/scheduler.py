"""Lets requests wait while their replica's KV cache is nearly full; ``admission`` says which ones."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from liverl.sessions.admission import Admission, KvCache, Rules, SampleRequest

MOST_WAITING = 1000  # requests that may wait for one replica


class NotAdmitted(Exception):
    """A request has waited for as long as it may."""


class _Replica:
    """One replica's requests and its last reading. ``read_at``: seconds of the monotonic clock."""

    def __init__(self, rules: Rules, most_waiting: int) -> None:
        self.admission = Admission(rules, most_waiting)
        self.read_at = float("-inf")
        self.reading = asyncio.Lock()
        self.waiting: dict[SampleRequest, asyncio.Event] = {}

    def admit(self) -> None:
        """Wake the requests that pass now."""
        for request in self.admission.admit(time.monotonic()):
            self.waiting.pop(request).set()


class Scheduler:
    """The requests of all replicas of one host."""

    def __init__(
        self,
        rules: Rules,
        poll: float,
        read: Callable[[Any], Awaitable[KvCache | None]],
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """``poll``: seconds for which a reading holds; ``read``: reads the cache of a replica, None if that cannot be
        read; ``most_waiting``: requests that may wait for one replica."""
        self._rules, self._poll, self._read, self._most_waiting = rules, poll, read, most_waiting
        self._replicas: weakref.WeakKeyDictionary[Any, _Replica] = weakref.WeakKeyDictionary()

    @property
    def poll(self) -> float:
        """Seconds for which a reading holds: earlier, a refused request need not come again."""
        return self._poll

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return sum(replica.admission.waiting for replica in self._replicas.values())

    @property
    def known(self) -> set[str]:
        """The sessions of which anything is remembered: those that have not ended."""
        return {name for replica in self._replicas.values() for name in replica.admission.known}

    @contextlib.asynccontextmanager
    async def place(
        self, engine: object, request: SampleRequest, seconds: float | None
    ) -> AsyncIterator[float]:
        """Wait until ``request`` may be sampled by ``engine``; while the context is open, it is in flight. Yields the
        seconds for which it has waited in the queue. ``seconds``: the longest time to wait, None for no limit.

        Raises:
            QueueFull: too many requests wait.
            NotAdmitted: it was not admitted within ``seconds``.
        """
        replica = self._replicas.get(engine)
        if replica is None:
            replica = self._replicas[engine] = _Replica(self._rules, self._most_waiting)
        await self._refresh(engine, replica)
        began = time.monotonic()
        try:
            admitted = replica.admission.ask(request, began)
            replica.admit()  # those of the same session
            if not admitted:
                await self._wait(engine, replica, request, None if seconds is None else began + seconds)
            yield 0.0 if admitted else time.monotonic() - began
        finally:
            replica.waiting.pop(request, None)
            replica.admission.release(request, time.monotonic())
            replica.admit()

    async def _wait(
        self, engine: object, replica: _Replica, request: SampleRequest, until: float | None
    ) -> None:
        """Wait for a request's turn, with a new reading every ``poll`` seconds."""
        woken = replica.waiting[request] = asyncio.Event()
        while not woken.is_set():
            left = self._poll if until is None else min(self._poll, until - time.monotonic())
            if left <= 0:
                raise NotAdmitted
            turn = asyncio.ensure_future(woken.wait())
            try:
                await asyncio.wait({turn}, timeout=left)
            finally:
                turn.cancel()
            if not woken.is_set():
                await self._refresh(engine, replica)
                replica.admit()

    async def _refresh(self, engine: object, replica: _Replica) -> None:
        """Read the cache again if the last reading holds no longer. Requests share a reading."""
        async with replica.reading:
            if time.monotonic() - replica.read_at < self._poll:
                return
            cache = await self._read(engine)
            replica.read_at = time.monotonic()
            replica.admission.read(cache, replica.read_at)

    def forget(self, session: str) -> None:
        """The session has ended."""
        for replica in self._replicas.values():
            replica.admission.forget(session)
