"""Deadlines instead of sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Seconds of patience: a busy machine takes long for everything, and only what never comes is a fault.
PATIENCE_S = 120.0


def wait_until(condition: Callable[[], T], seconds: float = PATIENCE_S, what: str = "the condition") -> T:
    """Poll until ``condition()`` is true and return its value.

    Raises:
        AssertionError: it did not become true in time.
    """
    give_up = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < give_up, f"{what} did not come within {seconds:g} s"
        time.sleep(0.02)


async def until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait, while others of this loop run, until ``condition()`` is true.

    Raises:
        AssertionError: it did not become true in time.
    """
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"the condition did not come within {seconds:g} s"
        await asyncio.sleep(0.01)
