"""Steps of the wall clock while sessions are open: a trial's time is what has passed, whatever the clock says.

The clock is stepped for this process alone: its ``time.time`` is replaced. What counts the time that has passed
(CLOCK_MONOTONIC, CLOCK_BOOTTIME) goes on as it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from fault_cases.base import Outcome, Part, Shared
from fault_cases.hosted import hosted, part, rows_of, sampled, turns
from liverl.util import clocks

HOUR, DAY = 3600.0, 86_400.0
TRIAL_S = 300.0  # the time of each trial
STEPS = {
    "a second ahead": (1.0,),
    "a second back": (-1.0,),
    "a minute ahead": (60.0,),
    "a minute back": (-60.0,),
    "the trial's time ahead": (TRIAL_S + 1,),
    "the trial's time back": (-TRIAL_S,),
    "an hour ahead": (HOUR,),
    "an hour back": (-HOUR,),
    "five days ahead": (5 * DAY,),
    "five days back": (-5 * DAY,),
    "ten years ahead": (3650 * DAY,),
    "to 1970": (-time.time() + 60,),
    "to 2038": (2**31 - time.time(),),
    "an hour ahead and back": (HOUR, 0.0),
    "an hour back and ahead": (-HOUR, 0.0),
    "ten times an hour to and fro": (HOUR, -HOUR) * 10,
}
MOMENTS = ("between two turns", "while the model samples", "before the end", "while the service is down")

_real = time.time
_offset = 0.0


def _stepped() -> float:
    return _real() + _offset


def cases() -> Iterator[Shared]:
    """Every step at every moment, on one host; and what is over must end."""
    yield Shared("steps of the clock", _all, len(STEPS) * len(MOMENTS))
    yield Shared("trials whose time is over", _over, 2)


def _all(folder: Path) -> list[Part]:
    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        found = []
        for number, (step, offsets) in enumerate(STEPS.items()):
            for place, moment in enumerate(MOMENTS):
                name = f"task-{number:04}{place:04}"
                tried = await part(f"{step}, {moment}", _one(host, replica, name, offsets, moment))
                found.append(tried)
                _set(0.0)
                replica.gate.set()
                await host.control("POST", f"/sessions/{name}/finish")
        return found

    time.time = _stepped
    return hosted(folder, work)


def _set(offset: float) -> None:
    global _offset
    _offset = offset


async def _tick(host: SessionHost) -> None:
    """What the service does every few seconds."""
    await host.store.expire(clocks.ran())


async def _step(host: SessionHost, offsets: tuple[float, ...]) -> None:
    for offset in offsets:
        _set(offset)
        await _tick(host)


async def _one(
    host: SessionHost, replica: TokenReplica, name: str, offsets: tuple[float, ...], moment: str
) -> Outcome:
    before = len(replica.replies)
    opened = await host.open(name, seconds=TRIAL_S)
    messages = await turns(host, opened, 1)
    if moment == "while the model samples":
        replica.gate.clear()
        replica.begun.clear()
        asked = asyncio.create_task(host.chat(opened, *messages))
        await replica.begun.wait()
        await _step(host, offsets)
        replica.gate.set()
        status, body = await asked
    else:
        if moment == "while the service is down":
            await host.stop()
            _set(offsets[-1])
            await host.start()
            await _tick(host)
            opened = {**opened, "openai_url": f"{host.address}/sess/{name}/v1"}
        elif moment == "between two turns":
            await _step(host, offsets)
        status, body = await host.chat(opened, *messages)
        if moment == "before the end":
            await _step(host, offsets)
    note = "" if status == 200 else f"HTTP {status}: {body['error']['message']}"[:150]
    rows = await rows_of(host, name)
    wanted = [token for reply in replica.replies[before:] for token in reply]
    lost = int(status != 200) + int(sampled(rows or []) != wanted)
    return Outcome(lost=lost, note=note)


def _over(folder: Path) -> list[Part]:
    """The other side: a trial whose time has passed is refused, and ended if nobody ends it."""

    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        async def refused() -> Outcome:
            opened = await host.open("task-00000001", seconds=0.5)
            await asyncio.sleep(0.7)  # its time; nothing tells of its end
            status, _ = await host.chat(opened, {"role": "user", "content": "x"})
            return Outcome(unstoppable=int(status == 200))

        async def long_ago() -> Outcome:
            opened = await host.open("task-00000002", deadline=time.time() - 10)
            status, _ = await host.chat(opened, {"role": "user", "content": "x"})
            return Outcome(unstoppable=int(status == 200))

        return [await part("its time has passed", refused()), await part("it had none", long_ago())]

    return hosted(folder, work)
