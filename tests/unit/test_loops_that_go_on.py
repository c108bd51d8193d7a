"""Loops that run as long as their process: what one round raises ends neither them nor the other work of a round."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from liverl.sessions import service as service_module
from liverl.sessions.sampling import Limits
from liverl.sessions.service import Keys, Service
from liverl.sessions.settings import Settings
from liverl.sessions.store import Store
from liverl.util.faults import Faults
from liverl.verl_runtime import worker_sessions
from liverl.verl_runtime.kinds.tail_kill import Counts, StepTail, TailRules
from liverl.verl_runtime.worker_sessions import HostSettings, WorkerSessions
from liverl.watch.background import Background

FAULTS = [OSError(28, "No space left"), RecursionError("deep"), KeyError("x"), ValueError("y"), MemoryError()]


class Fails:
    """Raises one of ``FAULTS`` per call, each three times; the calls are counted. ``then``: called afterwards."""

    def __init__(self, then: Callable[[], Any] = dict) -> None:
        self.calls, self._then = 0, then

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.calls += 1
        if self.calls <= 3 * len(FAULTS):
            raise FAULTS[(self.calls - 1) % len(FAULTS)]
        return self._then()

    @property
    def over(self) -> bool:
        """Whether it has returned, at least once."""
        return self.calls > 3 * len(FAULTS)


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


class _Store:
    """A store of which one part fails."""

    def __init__(
        self, expire: Callable[[], Any], facts: Callable[[], Any], mend: Callable[[], Any] = dict
    ) -> None:
        self._expire, self._facts, self.mend_journals = expire, facts, mend

    async def expire(self, now: float) -> list[str]:
        self._expire()
        return []

    def facts(self) -> dict[str, Any]:
        return self._facts() or {"waiting": 0}


class _Replicas:
    listed: list[Any] = []  # noqa: RUF012

    def facts(self) -> dict[str, Any]:
        return {}


@asynccontextmanager
async def _running(work: Awaitable[Any]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _service(folder: Path) -> Service:
    (folder / "sessions").mkdir()
    settings = Settings(
        run_dir=str(folder),
        host="127.0.0.1",
        control_key_file="",
        replica_token_file="",
        max_body_bytes=1 << 20,
        rewrite="split",
        main_agent_prefix_match=256,
        request_timeout=60.0,
    )
    return Service(settings, Keys("c", ""), socket.socket(), 1)


@asynccontextmanager
async def mending(folder: Path, fails: Fails) -> AsyncIterator[Callable[[], bool]]:
    """The look at the journals; the report is written meanwhile."""
    service = _service(folder)
    store: Any = _Store(lambda: None, lambda: None, fails)
    async with _running(service._reports(store, _Replicas())):  # type: ignore[arg-type]
        yield (folder / "sessions/status.1.json").exists


@asynccontextmanager
async def expiring(folder: Path, fails: Fails) -> AsyncIterator[Callable[[], bool]]:
    """The end of sessions whose time is over; the report is written meanwhile."""
    service = _service(folder)
    store: Any = _Store(fails, lambda: None)
    async with _running(service._reports(store, _Replicas())):  # type: ignore[arg-type]
        yield (folder / "sessions/status.1.json").exists


@asynccontextmanager
async def reporting(folder: Path, fails: Fails) -> AsyncIterator[Callable[[], bool]]:
    """The report of the service; sessions end meanwhile."""
    service, ended = _service(folder), Fails()
    ended.calls = 10**9
    store: Any = _Store(ended, fails)
    async with _running(service._reports(store, _Replicas())):  # type: ignore[arg-type]
        yield lambda: ended.calls > 10**9


@asynccontextmanager
async def reporting_of_a_worker(folder: Path, fails: Fails) -> AsyncIterator[Callable[[], bool]]:
    """The report of a host in one of verl's workers."""
    host = WorkerSessions(HostSettings(str(folder), "attempt_001", "w1", "127.0.0.1"), _NoReplicas())  # type: ignore[arg-type]
    host._store.facts = fails  # type: ignore[method-assign]
    async with _running(host._write_reports()):
        yield lambda: True


@asynccontextmanager
async def counting_the_trials_of_a_step(folder: Path, fails: Fails) -> AsyncIterator[Callable[[], bool]]:
    """The watch over a step's last trials."""
    tail = StepTail(TailRules(target=0.5, grace=0.05, least=1), folder / "step", "w1")
    fails._then = lambda: Counts(4, 1)
    tail._total = fails  # type: ignore[method-assign]
    async with _running(tail._watch()):
        yield lambda: True


@asynccontextmanager
async def looking_from_outside(folder: Path, fails: Fails) -> AsyncIterator[Callable[[], bool]]:
    """The thread that reads what ``watch`` shows."""
    background = Background("test", fails, 0.001, None)
    background.start()
    try:
        yield lambda: background.wait(0)
        assert background.again(30)
    finally:
        background.close()


class _NoReplicas:
    models: list[str] = []  # noqa: RUF012

    def forget(self, session: str) -> None: ...


LOOPS = [
    expiring,
    mending,
    reporting,
    reporting_of_a_worker,
    counting_the_trials_of_a_step,
    looking_from_outside,
]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_loop_goes_on_and_says_each_kind_of_fault_once(
    loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_module, "REPORT_S", 0.0)
    monkeypatch.setattr(worker_sessions, "REPORT_S", 0.0)
    fails = Fails()
    async with loop(tmp_path, fails) as other:
        await until(lambda: fails.over)
        await until(other)  # the rest of a round
    said = [type(r.exc_info[1]) for r in caplog.records if r.levelno == logging.ERROR and r.exc_info]
    silent = {OSError} if loop is looking_from_outside else set()
    assert sorted(said, key=str) == sorted({type(fault) for fault in FAULTS} - silent, key=str)


async def test_a_session_that_cannot_be_ended_keeps_no_other_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "trials").mkdir()
    store = Store(tmp_path / "sessions", (tmp_path / "trials",), _NoReplicas())  # type: ignore[arg-type]
    for number in range(len(FAULTS) + 1):
        (tmp_path / f"trials/t{number}").mkdir()
        store.open(f"t{number}", str(tmp_path / f"trials/t{number}"), Limits(deadline=1.0))
    finish = store.finish

    async def fails(name: str) -> Any:
        if int(name[1:]) < len(FAULTS):
            raise FAULTS[int(name[1:])]
        return await finish(name)

    store.finish = fails  # type: ignore[method-assign]
    try:
        assert await store.expire(1e9) == [f"t{len(FAULTS)}"] and await store.expire(1e9) == []
    finally:
        await store.close()
    said = [r.getMessage().partition(";")[0] for r in caplog.records if r.levelno == logging.ERROR]
    assert said == [
        f"a session whose time is over cannot be ended (t{number})" for number in range(len(FAULTS))
    ]


def test_kinds_of_faults(caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults(logging.getLogger("test"))

    def first(number: int) -> None:
        raise ValueError(f"row {number}")

    def second() -> None:
        raise ValueError("row 1")

    for number in range(3):
        for what in ("one", "two"):
            with faults.logged(what):
                first(number)
        with faults.logged("one"):
            second()
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == ["one", "two", "one"]
    with pytest.raises(asyncio.CancelledError), faults.logged("one"):
        raise asyncio.CancelledError
