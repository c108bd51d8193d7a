"""Deadlines instead of sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Seconds of patience: a busy machine takes long for everything, and only what never comes is a fault.
PATIENCE_S = 120.0
# Seconds between two looks. A look asks a backend for a snapshot, or reads all of /proc: fifty of them in each second
# of each of four workers would take a core from what is waited for. What comes soon is seen soon.
SOONEST_S, LATEST_S = 0.02, 0.15


def pause(waited: float, look: float = 0.0) -> float:
    """Seconds until the next look, after ``waited`` seconds in all and ``look`` seconds for the last one: a look that
    starts a program is followed by a pause as long as itself."""
    return min(max(SOONEST_S, waited / 8), max(LATEST_S, look))


def wait_until(condition: Callable[[], T], seconds: float = PATIENCE_S, what: str = "the condition") -> T:
    """Poll until ``condition()`` is true and return its value.

    Raises:
        AssertionError: it did not become true in time.
    """
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        assert now - began < seconds, f"{what} did not come within {seconds:g} s"
        time.sleep(pause(now - began, now - looked))


async def until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait, while others of this loop run, until ``condition()`` is true.

    Raises:
        AssertionError: it did not become true in time.
    """
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"the condition did not come within {seconds:g} s"
        await asyncio.sleep(0.01)
