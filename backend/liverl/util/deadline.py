"""Waiting with an end, for code that also runs on Python 3.10: ``asyncio.timeout`` is newer, and ``asyncio.wait_for``
loses a cancellation that meets its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def not_held_up() -> float:
    """Of what nothing holds up: no second is left out of its time."""
    return 0.0


async def within(
    awaitable: Awaitable[T], seconds: float | None, held_up: Callable[[], float] = not_held_up
) -> T:
    """The result of ``awaitable``, which is cancelled when it takes longer than ``seconds`` (None: no limit), or when
    the caller is cancelled. ``held_up``: grows by the seconds which do not count.

    Raises:
        TimeoutError: it took longer.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        left, before = seconds, held_up()
        while True:
            done, _ = await asyncio.wait({task}, timeout=None if left is None else max(0.0, left))
            if done:
                break
            now = held_up()
            left, before = now - before, now
            if left <= 0.0:
                raise TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    try:
        return task.result()
    finally:
        del (
            task,
            done,
        )  # an error would refer to this frame, and what the callers hold stay for the cycle collector
