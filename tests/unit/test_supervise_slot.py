"""A service's place, and calls that may not return."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.plan.spec import ServiceSpec
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.slot import Slot
from liverl.util.blocking_call import BlockingCalls


def instance(state: str, *, stuck: bool = False) -> Instance:
    hub: Any = SimpleNamespace(now=lambda: 0.0)
    made = Instance(hub, ServiceSpec("a", "task", ("true",)))
    made.machine = replace(made.machine, state=state, stuck=stuck)  # type: ignore[arg-type]
    return made


def slot(*instances: Instance) -> Slot:
    return Slot(ServiceSpec("a", "task", ()), instances[0], retiring=list(instances[1:]))


async def test_what_can_still_be_ended_is_waited_for() -> None:
    """Somebody who would not die must not keep the others' last signal from them."""
    assert slot(instance("stopped")).hopeless(9, 5)
    assert slot(instance("stopping", stuck=True)).hopeless(9, 5)
    assert not slot(instance("stopping")).hopeless(9, 5)
    both = slot(instance("stopped"), instance("stopping", stuck=True))
    assert both.hopeless(9, 5) and not both.ended
    assert not slot(instance("stopped"), instance("stopping")).hopeless(9, 5)
    starts = instance("stopped")
    starts.work = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[arg-type]
    assert not slot(starts).hopeless(4, 5) and slot(starts).hopeless(6, 5)
    starts.work.cancel()


async def test_a_call_that_does_not_return_is_left_alone_until_it_does() -> None:
    free = threading.Event()
    aside = BlockingCalls[int]()
    with pytest.raises(TimeoutError):
        await aside.call(lambda: free.wait(60) and 1, 0.05)
    assert aside.busy
    with pytest.raises(TimeoutError):
        await aside.call(lambda: 2, 0.05)
    free.set()
    assert await aside.call(lambda: 3, 60) == 3, "the one that hung has returned meanwhile"
    assert not aside.busy


async def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    aside = BlockingCalls[int]()
    with pytest.raises(ZeroDivisionError):
        await aside.call(lambda: 1 // 0, 60)
    assert await aside.call(lambda: 1, 60) == 1


async def test_a_thread_that_could_not_be_started_is_started_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIMULATED: the limit of threads."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    aside = BlockingCalls[int]()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(threading.Thread, "start", refuse)
        await aside.call(lambda: 1, 60)
    assert not aside.busy
    assert await aside.call(lambda: 2, 60) == 2


def test_a_call_that_hangs_keeps_no_loop_from_its_end() -> None:
    free = threading.Event()

    async def use() -> None:
        with pytest.raises(TimeoutError):
            await BlockingCalls[bool]().call(lambda: free.wait(60), 0.01)

    asyncio.run(use())  # returns, although the thread has not
    free.set()
