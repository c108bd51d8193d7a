"""Calls that may never return: a driver that hangs must hold up neither a run's start nor the backend's end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BlockingCalls(Generic[T]):
    """One call at a time, each in a thread that a process does not wait for when it exits."""

    def __init__(self) -> None:
        self._running: asyncio.Future[T] | None = None

    @property
    def busy(self) -> bool:
        """Whether a call has not returned yet."""
        return self._running is not None and not self._running.done()

    async def call(self, work: Callable[[], T], seconds: float) -> T:
        """What ``work`` returns, or raises.

        Raises:
            TimeoutError: it has not returned within ``seconds``, or an earlier one has not yet.
        """
        if self.busy:
            assert self._running is not None
            await asyncio.wait([self._running], timeout=seconds)
            if self.busy:
                raise TimeoutError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(lambda f: f.cancelled() or f.exception())  # also where nobody waits any more
        self._running = future

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - it is raised where it is waited for
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=run, name="aside", daemon=True).start()
        await asyncio.wait([future], timeout=seconds)
        if not future.done():
            raise TimeoutError
        return future.result()
