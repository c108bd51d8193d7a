"""The end of a step's last trials: when they are late, and that it is counted over all workers."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.verl_runtime.kinds.tail_kill import StepTail, TailRules

RULES = TailRules(target=0.75, grace=0.2, least=4)


@pytest.mark.parametrize(
    ("begun", "done", "late"),
    [(4, 2, False), (4, 3, True), (4, 4, False), (3, 3, False), (8, 5, False), (8, 6, True), (0, 0, False)],
)
def test_when_the_rest_of_a_step_is_late(begun: int, done: int, late: bool) -> None:
    assert RULES.reached(begun, done) is late


@given(begun=st.integers(0, 50), done=st.integers(0, 50), least=st.integers(0, 50))
def test_with_a_target_of_one_nothing_is_late(begun: int, done: int, least: int) -> None:
    assert not TailRules(target=1.0, least=least).reached(begun, done)


class Workers:
    """Workers that run trials of one step."""

    def __init__(self, folder: Path, rules: TailRules = RULES) -> None:
        self.tails = [StepTail(rules, folder / "step_0001", f"w{number}") for number in range(2)]
        self.tasks: list[asyncio.Task[None]] = []

    async def _trial(self, worker: int, end: asyncio.Event) -> None:
        async with self.tails[worker].trial():
            await end.wait()

    async def begin(self, worker: int, trials: int) -> list[asyncio.Event]:
        """Begin trials; what ends each."""
        ends = [asyncio.Event() for _ in range(trials)]
        self.tasks += [asyncio.create_task(self._trial(worker, end)) for end in ends]
        await asyncio.sleep(0)
        return ends

    async def end(self, *ends: asyncio.Event) -> None:
        for end in ends:
            end.set()
        await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def late(tail: StepTail, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await tail.late.wait()
    except TimeoutError:
        return False
    return True


async def test_the_rest_of_all_workers_is_late_after_the_grace(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    first, second = await workers.begin(0, 3), await workers.begin(1, 1)
    await workers.end(*first)
    began = time.monotonic()
    assert await late(workers.tails[1], 5.0)
    assert time.monotonic() - began >= RULES.grace
    assert not second[0].is_set()
    await workers.close()


async def test_too_few_are_done(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    first = await workers.begin(0, 3)
    await workers.begin(1, 1)
    await workers.end(*first[:2])
    assert not await late(workers.tails[0], 1.0)
    await workers.close()


async def test_trials_that_begin_in_the_grace_count(tmp_path: Path) -> None:
    workers = Workers(tmp_path, TailRules(target=0.75, grace=0.6, least=4))
    first = await workers.begin(0, 4)
    await workers.end(*first[:3])
    assert not await late(workers.tails[0], 0.3)
    await workers.begin(1, 4)
    assert not await late(workers.tails[0], 1.5)
    await workers.close()


async def test_a_step_that_is_too_small_is_left_alone(tmp_path: Path) -> None:
    workers = Workers(tmp_path, TailRules(target=0.5, grace=0.0, least=4))
    first = await workers.begin(0, 3)
    await workers.end(*first[:2])
    assert not await late(workers.tails[0], 0.5)
    await workers.begin(1, 1)
    assert await late(workers.tails[0], 5.0)
    await workers.close()


async def test_without_a_target_nothing_is_written(tmp_path: Path) -> None:
    workers = Workers(tmp_path, TailRules())
    (end,) = await workers.begin(0, 1)
    await workers.end(end)
    assert not (tmp_path / "step_0001").exists()
    await workers.close()


async def test_a_file_that_is_none_is_left_out(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    first = await workers.begin(0, 4)
    (tmp_path / "step_0001" / "w9.json").write_text("{")
    await workers.end(*first[:3])
    assert await late(workers.tails[0], 5.0)
    await workers.close()
