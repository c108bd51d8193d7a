"""Blocking calls with a timeout: a driver or a storage that hangs must not delay the start of a run or the exit of
the backend."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_Calls = queue.SimpleQueue[Callable[[], None] | None]


class BlockingCalls(Generic[T]):
    """Runs one blocking call at a time in a daemon thread of its own, so that a hung call blocks neither other work
    nor the exit of the process. The thread starts with the first call and ends with this object."""

    def __init__(self) -> None:
        self._running: asyncio.Future[T] | None = None
        self._calls: _Calls | None = None

    def __del__(self) -> None:
        if self._calls is not None:
            self._calls.put(None)

    @property
    def busy(self) -> bool:
        """Whether a call is still running."""
        return self._running is not None and not self._running.done()

    async def call(self, work: Callable[[], T], seconds: float | None) -> T:
        """Run ``work`` in the thread and return its result, or raise its exception. ``seconds`` None: wait for ever.

        Raises:
            TimeoutError: ``work``, or an earlier call, did not return within ``seconds``.
            RuntimeError: the thread cannot be started; the next call tries again.
        """
        if self.busy:
            assert self._running is not None
            await asyncio.wait([self._running], timeout=seconds)
            if self.busy:
                raise TimeoutError
        calls, loop = self._queue(), asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # Retrieved even if nobody awaits it.
        future.add_done_callback(lambda f: f.cancelled() or f.exception())
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
            except BaseException as raised:  # noqa: BLE001 - re-raised in the awaiting task
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
                loop.call_soon_threadsafe(settle, result, error)

        calls.put(run)
        await asyncio.wait([future], timeout=seconds)
        if not future.done():
            raise TimeoutError
        return future.result()

    def _queue(self) -> _Calls:
        if self._calls is None:
            calls: _Calls = queue.SimpleQueue()
            threading.Thread(target=_work, args=(calls,), name="blocking calls", daemon=True).start()
            self._calls = calls
        return self._calls


def _work(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call()
