"""Waiting with an end, for code that also runs on Python 3.10: ``asyncio.timeout`` is newer, and ``asyncio.wait_for``
loses a cancellation that meets its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(awaitable: Awaitable[T], seconds: float | None) -> T:
    """The result of ``awaitable``, which is cancelled when it takes longer than ``seconds`` (None: no limit), or when
    the caller is cancelled.

    Raises:
        TimeoutError: it took longer.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait({task}, timeout=None if seconds is None else max(0.0, seconds))
        if not done:
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
