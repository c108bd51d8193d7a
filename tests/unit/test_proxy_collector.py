"""LiteLLM's garbage is collected between the loop's callbacks only: inside an allocation it may end the process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from liverl.proxy.runtime import collector

# A generator that was left at its yield resets variables when it is collected, as LiteLLM's context managers do; the
# sweep lets the collection fall on each allocation of the set. On 3.11 it ends with SIGSEGV without ``hold``.
LEFT = """
import contextvars, gc, sys
sys.path.insert(0, sys.argv[1])
import collector

collector.hold()
variables = [contextvars.ContextVar(str(number)) for number in range(60)]

def generator():
    cycle = yield
    try:
        yield
    finally:
        for variable in variables * 2:
            variable.set(object())

def leave():
    left = generator()
    next(left)
    left.send([left])

for variable in variables:
    variable.set(object())
for number in range(2000):
    leave()
    gc.set_threshold(gc.get_count()[0] + number % 7)
    variables[number % 60].set(object())
    for variable in variables:
        variable.get()
"""


class Cycle:
    """Garbage that only a collection ends."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The functions in which the collector ran, from ``hold`` on."""
    monkeypatch.setattr(collector, "NEEDED", True)
    inside: list[str] = []

    def note(phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            inside.append(sys._getframe(1).f_code.co_name)

    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # the interpreter's own, whatever was set here before
    collector.hold()
    gc.callbacks.append(note)
    try:
        yield inside
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*thresholds)
        gc.enable()


async def test_garbage_is_collected_and_nowhere_else(held: list[str]) -> None:
    task = asyncio.create_task(collector.collect())
    for _ in range(5):
        gone = [weakref.ref(Cycle()) for _ in range(5000)]
        async with asyncio.timeout(60):
            while any(ref() is not None for ref in gone):
                [[] for _ in range(5000)]  # what the interpreter's own thresholds count
                await asyncio.sleep(0)
    task.cancel()
    assert len(held) >= 5 and set(held) == {"collect"}


async def test_what_was_loaded_before_is_not_looked_at_again(held: list[str]) -> None:
    loaded, before = [[number] for number in range(1000)], gc.get_freeze_count()
    task = asyncio.create_task(collector.collect())
    await asyncio.sleep(0)
    assert gc.get_freeze_count() - before > len(loaded)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_left_generator_that_resets_variables_does_no_harm() -> None:
    folder = Path(collector.__file__).parent
    done = subprocess.run([sys.executable, "-c", LEFT, str(folder)], check=False)
    assert done.returncode == 0
