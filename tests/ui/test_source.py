"""Where views come from: real backends that are killed, restarted, stopped in their tracks, and end."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from kit.pilots import until
from kit.processes import stop_process
from kit.runs import ToyRun, change_of, make_run, toy
from kit.screens import FakeSource, event, snapshot
from msgspec.structs import asdict

from liverl.control.client import Client
from liverl.control.messages import BackendDead, BackendSilent, CommandError, ControlError
from liverl.daemon.launch import LaunchError, start_backend
from liverl.model import Result
from liverl.rundir.layout import RunDir, read_backend, write_atomic
from liverl_tui.app.app import LiverlApp
from liverl_tui.data import source
from liverl_tui.data.source import Newest, RunSource, SharedClient
from liverl_tui.data.view import KEPT_EVENTS, View
from liverl_tui.widgets.header.header import Header


def _control_toy() -> ModuleType:
    path = Path(__file__).parents[1] / "process" / "control_toy.py"
    spec = importlib.util.spec_from_file_location("control_toy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


control_toy = _control_toy()


class Seen:
    """What a source said, in order."""

    def __init__(self, of: RunSource) -> None:
        self.source = of
        self.views: list[View] = []
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with aclosing(self.source.views()) as views:  # type: ignore[type-var]
            async for view in views:
                self.views.append(view)

    @property
    def last(self) -> View:
        return self.views[-1] if self.views else View()

    @property
    def links(self) -> list[str]:
        """The links, without repetitions."""
        found = [v.link for v in self.views]
        return [link for place, link in enumerate(found) if place == 0 or link != found[place - 1]]

    async def until(self, wanted: Callable[[View], object], seconds: float = 60.0) -> View:
        deadline = time.monotonic() + seconds
        while not wanted(self.last):
            assert time.monotonic() < deadline, f"{self.links}, at last {self.last.link}: {self.last.why}"
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.01)
        return self.last

    async def link(self, link: str, seconds: float = 60.0) -> View:
        return await self.until(lambda v: v.link == link, seconds)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def looking(run_dir: Path, **how: Any) -> AsyncIterator[Seen]:
    """Views of a run; at the end nothing of the looking is left."""
    before = asyncio.all_tasks()
    seen = Seen(RunSource(RunDir(run_dir), **{"interval": 0.05, **how}))
    try:
        yield seen
    finally:
        await seen.end()
        assert asyncio.all_tasks() == before


@pytest.fixture
def real(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    """A run of one sleeping service under the real backend, not started yet."""
    return ending(make_run(tmp_path, [toy("worker", "sleep")]))


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Callable[..., SimpleNamespace]]:
    """Starts a toy backend, in a fraction of the time."""
    started = []

    def go(**env: str) -> SimpleNamespace:
        run_dir = tmp_path / "p" / "r"
        process = control_toy.spawn(run_dir, **env)
        started.append(process)
        return SimpleNamespace(run_dir=run_dir, process=process, pid=process.pid)

    yield go
    for process in started:
        control_toy.end(process)


# -- the newest of everything


async def test_a_snapshot_is_handed_out_when_it_comes() -> None:
    newest = Newest(interval=3600.0)
    async with asyncio.timeout(60):
        for seq in (1, 2, 3):
            newest.add(event(seq, "x"))
            newest.add(snapshot(seq=seq))
            view = await newest.take()
            assert view.snapshot is not None and view.snapshot.seq == seq
            assert [e.seq for e in view.events] == list(range(1, seq + 1))


async def test_events_are_gathered_and_the_link_is_told_at_once() -> None:
    newest = Newest(interval=0.3)
    newest.say("live")
    newest.add(snapshot())
    began = time.monotonic()
    first = await newest.take()
    for number in range(1, 5_001):
        newest.add(event(number, "x"))
    second = await newest.take()
    assert time.monotonic() - began > 0.25
    assert (first.link, first.events) == ("live", ())
    assert second.snapshot is first.snapshot
    assert [e.seq for e in second.events] == list(range(5_001 - KEPT_EVENTS, 5_001))
    newest.interval = 3600.0
    newest.say("lost", "killed")
    async with asyncio.timeout(60):
        lost = await newest.take()
    assert (lost.link, lost.why, lost.events) == ("lost", "killed", second.events)


async def test_what_changes_nothing_is_not_told() -> None:
    newest = Newest(interval=0.01)
    newest.add(event(3, "x"), snapshot())
    shown = await newest.take()
    newest.say("connecting")
    newest.add(event(3, "x"), event(2, "older"), None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await newest.take()
    newest.add(event(4, "y"))
    assert [e.seq for e in (await newest.take()).events] == [3, 4]
    assert [e.seq for e in shown.events] == [3]


# -- a run under the real backend


async def test_a_backend_that_is_killed_is_lost_at_once_and_can_be_revived(
    real: ToyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "QUIET_S", 3600.0)  # it is not by its silence that it is missed
    real.start()
    real.until("worker", "ready")
    async with looking(real.run_dir) as seen:
        live = await seen.until(lambda v: v.live and v.snapshot is not None)
        assert live.snapshot is not None
        assert [e.seq for e in live.events] == [e.seq for e in real.events()][: len(live.events)]
        worker = live.snapshot.service("worker")
        os.kill(real.backends[-1], signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, real.backends[-1], 0)
        lost = await seen.link("lost")
        assert "is not running" in lost.why
        assert lost.snapshot is not None  # what was known stays on the screen
        assert lost.events
        with pytest.raises(BackendDead):
            await seen.source.command("restart", service="worker")
        await seen.source.revive()
        again = await seen.until(lambda v: v.live)
        assert again.snapshot is not None and worker is not None
        real.backends.append(again.snapshot.backend.pid)
        adopted = again.snapshot.service("worker")
        assert adopted is not None and adopted.pid == worker.pid
        assert seen.links == ["live", "lost", "live"]


async def test_the_end_of_the_run_and_its_next_attempt_are_seen(real: ToyRun) -> None:
    real.start()
    async with looking(real.run_dir) as seen:
        await seen.link("live")
        await seen.source.command("stop", now=True)
        ended = await seen.link("ended")
        assert ended.why == ""
        assert ended.snapshot is not None and ended.snapshot.result is not None
        assert ended.snapshot.result.state == "stopped"
        with pytest.raises(LaunchError, match="--resume"):
            await seen.source.revive()
        real.result()
        real.start(resume=True)  # by somebody else
        again = await seen.until(lambda v: v.live and v.snapshot is not None and v.snapshot.attempt == 2)
        assert again.events[-1].seq > ended.events[-1].seq


async def test_a_run_is_started_through_it(real: ToyRun) -> None:
    def start(**given: Any) -> None:
        real.backends.append(start_backend(real.run_dir))

    async with looking(real.run_dir, start=start) as seen:
        first = await seen.until(lambda v: v.why)
        assert (first.link, first.why, first.snapshot) == ("connecting", "starting the backend", None)
        await seen.link("live")
        assert seen.links == ["connecting", "live"]


async def test_who_leaves_while_a_backend_starts_waits_no_longer(tmp_path: Path) -> None:
    """It goes on: only the wait is over."""
    waited: list[type[BaseException]] = []
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def start(*, stops: Callable[[], int], tell: Callable[[str], None]) -> None:
        tell("waiting for the backend (pid 7): it is still starting")
        try:
            while not stops():
                time.sleep(0.01)
        except BaseException as error:
            waited.append(type(error))
            loop.call_soon_threadsafe(ended.set)
            raise

    async with looking(tmp_path, start=start) as seen:
        await seen.until(lambda v: v.why == "waiting for the backend (pid 7): it is still starting")
    async with asyncio.timeout(60):
        await ended.wait()
    assert waited[0].__name__ == "_Left"


async def test_a_backend_that_cannot_be_started_ends_the_views(tmp_path: Path) -> None:
    def start(**_: Any) -> None:
        raise LaunchError("no room", 3)

    views = RunSource(RunDir(tmp_path), start=start)
    assert [v.why async for v in views.views()] in ([], ["starting the backend"])
    assert views.error is not None and views.error.exit_code == 3


async def test_the_interface_says_what_it_waits_for_and_ends_with_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ending(FakeSource):
        async def views(self) -> AsyncIterator[View]:
            yield View("connecting", "starting the backend")
            await self.failed.wait()

        failed = asyncio.Event()

    shown = Ending()
    app, left = LiverlApp(shown), asyncio.Event()
    monkeypatch.setattr(app, "exit", lambda *_args, **_more: left.set())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "starting the backend" in app.screen.query_one(Header).text)
        assert not left.is_set()
        shown.failed.set()
        async with asyncio.timeout(60):
            await left.wait()


# -- against a toy backend


async def test_a_flood_of_events_makes_few_views(quick: Callable[..., SimpleNamespace]) -> None:
    run = quick()
    async with looking(run.run_dir, interval=0.2) as seen:
        await seen.link("live")
        began, shown = time.monotonic(), len(seen.views)
        for _ in range(5):
            await seen.source.command("emit", count=1_000)
        end = await seen.until(lambda v: v.events[-1].seq >= 5_001)
        took = time.monotonic() - began
        # Views of snapshots and of the link are not delayed here. Those of events alone wait for the interval.
        views = pairwise(seen.views[shown - 1 :])
        events_alone = [
            v for old, v in views if (v.snapshot, v.link, v.why) == (old.snapshot, old.link, old.why)
        ]
        assert len(events_alone) <= took / 0.2 + 1
        assert len(end.events) == KEPT_EVENTS
        assert [e.seq for e in end.events] == list(range(end.events[0].seq, end.events[-1].seq + 1))


async def test_a_changed_interval_opens_the_stream_again(tmp_path: Path) -> None:
    shown, intervals = RunSource(RunDir(tmp_path), interval=1.0), []

    class Streaming:
        async def stream(self, _seq: int, *, snapshots: bool, interval: float) -> AsyncIterator[Any]:
            intervals.append(interval)
            yield event(len(intervals), "one")
            shown.interval = 5.0
            yield event(9, "another")

    newest, client = Newest(1.0), cast(Client, Streaming())
    assert await shown._stream(client, newest), "it was changed"
    assert not await shown._stream(client, newest), "the backend has ended"
    assert (intervals, newest.interval, newest.seq) == ([1.0, 5.0], 5.0, 9)


async def test_a_run_is_stopped_and_resumed_through_it(real: ToyRun) -> None:
    real.start()
    async with looking(real.run_dir) as seen:
        await seen.link("live")
        await seen.source.command("stop", now=True)
        result = await seen.source.ended(1)
        assert (result.state, result.attempt) == ("stopped", 1)
        with pytest.raises(BackendDead, match="without a result"):
            await seen.source.ended(2)
        await seen.source.resume(change_of(real))
        again = await seen.until(lambda v: v.live and v.snapshot is not None and v.snapshot.attempt == 2)
        assert again.snapshot is not None
        real.backends.append(again.snapshot.backend.pid)
        assert [c.key for c in again.snapshot.changes] == ["trainer.x"]


async def test_a_run_that_was_opened_dead(quick: Callable[..., SimpleNamespace]) -> None:
    run = quick()
    run.process.kill()
    run.process.wait()
    async with looking(run.run_dir) as seen:
        lost = await seen.until(lambda v: v.events)
        assert seen.links == ["lost"]
        assert "is not running" in lost.why
        again = quick()
        await seen.until(lambda v: v.snapshot is not None and v.snapshot.backend.pid == again.pid)
        assert seen.links[-1] == "live"


async def test_a_backend_without_an_answer(
    quick: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "QUIET_S", 0.2)
    monkeypatch.setattr(source, "ANSWER_S", 0.3)
    run = quick()
    async with looking(run.run_dir) as seen:
        await seen.link("live")
        stop_process(run.pid)
        silent = await seen.until(lambda v: v.why)
        assert f"(pid {run.pid}) does not respond: a signal such as SIGSTOP" in silent.why
        assert silent.why.endswith(f"kill -CONT {run.pid}")
        assert silent.snapshot is not None and silent.silent
        os.kill(run.pid, signal.SIGCONT)
        again = await seen.until(lambda v: v.live and not v.why)
        assert not again.silent


async def test_a_backend_that_leaves_without_a_result(
    quick: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = quick()
    monkeypatch.setattr(RunDir, "read_result", lambda _self: None)
    async with looking(run.run_dir) as seen:
        await seen.link("live")
        await seen.source.command("finish", state="done", exit_code=0)
        run.process.wait()
        lost = await seen.link("lost")
        # Which of the two depends on whether the interface has already tried to connect again.
        whys = ("the backend of p/r has ended without a result", "the backend of p/r is not running")
        assert lost.why in whys


async def test_a_lost_run_that_another_backend_has_ended_meanwhile_has_ended(
    quick: Callable[..., SimpleNamespace],
) -> None:
    """Such a backend may come and go between two looks."""
    run = quick()
    async with looking(run.run_dir) as seen:
        await seen.link("live")
        run.process.kill()
        run.process.wait()
        await seen.link("lost")
        result = Result("stopped", 5, None, 7, 0.0, 1.0, 1, "stopped: killed by somebody")
        write_atomic(run.run_dir / "result.json", msgspec.to_builtins(result))
        await seen.link("ended")
        await seen.until(lambda v: v.snapshot is not None and v.snapshot.state == "stopped")


async def test_a_run_on_another_host(quick: Callable[..., SimpleNamespace]) -> None:
    run = quick()
    record = read_backend(run.run_dir)
    run.process.kill()
    run.process.wait()
    assert record is not None
    write_atomic(run.run_dir / "backend.json", {**asdict(record), "host": "n17"})
    async with looking(run.run_dir) as seen:
        lost = await seen.until(lambda v: v.events)
        assert lost.link == "lost"
        assert "is running on n17; run: ssh -t n17" in lost.why


async def test_a_backend_of_another_version_is_said_once(
    quick: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "LOOK_S", 0.02)
    run = quick()
    monkeypatch.setattr("liverl.control.messages.PROTOCOL", 99)
    async with looking(run.run_dir) as seen:
        lost = await seen.until(lambda v: v.events)
        assert lost.link == "lost"
        assert "use the same version for both" in lost.why
        count = len(seen.views)
        await asyncio.sleep(0.3)  # many looks later it is the same backend still, and nothing new is said
        assert len(seen.views) == count


async def test_a_snapshot_that_this_version_cannot_read(
    quick: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = quick()

    async def unreadable(_self: object) -> None:
        raise msgspec.ValidationError("Object missing required field `mood`")

    monkeypatch.setattr("liverl.control.client.Client.snapshot", unreadable)
    async with looking(run.run_dir) as seen:
        lost = await seen.link("lost")
        assert "cannot read a message of the backend: Object missing required field `mood`" in lost.why


async def test_commands_go_to_the_backend_and_its_refusals_come_back(
    quick: Callable[..., SimpleNamespace],
) -> None:
    run = quick()
    asked = RunSource(RunDir(run.run_dir))
    answer = await asked.command("restart", service="proxy")
    assert answer["text"].startswith("proxy restarted for the interface (pid ")
    with pytest.raises(CommandError, match="no service proxi"):
        await asked.command("restart", service="proxi")


# -- one connection for all commands


async def under_way(asked: RunSource, count: int) -> int:
    """Wait until the backend has ``count`` slow commands under way. Returns its number of connections."""
    deadline = time.monotonic() + 60
    while (told := await asked.command("rss"))["commands"] != count:
        assert time.monotonic() < deadline, told
        await asyncio.sleep(0.01)
    return int(told["clients"])


async def begin_slow(seen: Seen, count: int, **args: Any) -> asyncio.Task[dict[str, Any]]:
    """Have the backend do something that ends with ``hurry``; it is the ``count``th that is under way."""
    slow = asyncio.create_task(seen.source.command("slow", seconds=3600, **args))
    assert await under_way(seen.source, count) == 2, "no connection of its own"
    return slow


@asynccontextmanager
async def listening(run: SimpleNamespace) -> AsyncIterator[Seen]:
    """Views of a run whose backend is connected, also by the stream of snapshots: views are live before it is."""
    async with looking(run.run_dir) as seen:
        await seen.link("live")
        deadline = time.monotonic() + 60
        while (told := await seen.source.command("rss"))["clients"] < 2:
            assert time.monotonic() < deadline, told
            await asyncio.sleep(0.01)
        yield seen


async def test_commands_share_the_connection_of_the_views(quick: Callable[..., SimpleNamespace]) -> None:
    async with listening(quick()) as seen:
        one, other = (seen.source.command("restart", service=name) for name in ("proxy", "replica-0"))
        answers = await asyncio.gather(one, other)
        assert [answer["text"].partition(" ")[0] for answer in answers] == ["proxy", "replica-0"]
        assert await under_way(seen.source, 0) == 2, "one for requests, one for the stream of snapshots"
        with pytest.raises(CommandError, match="no service proxi"):
            await seen.source.command("restart", service="proxi")
        assert await under_way(seen.source, 0) == 2


async def test_a_slow_command_holds_up_neither_others_nor_the_views(
    quick: Callable[..., SimpleNamespace],
) -> None:
    async with listening(quick()) as seen:
        slow = await begin_slow(seen, 1)
        answer = await seen.source.command("restart", service="proxy")
        assert answer["text"].startswith("proxy restarted")
        await seen.source.command("state", state="stopping")
        await seen.until(lambda v: v.snapshot is not None and v.snapshot.state == "stopping")
        assert not slow.done()
        await seen.source.command("hurry")
        assert (await slow)["text"] == "slow is done"


async def test_a_command_that_is_given_up_and_fails_leaves_the_others_alone(
    quick: Callable[..., SimpleNamespace],
) -> None:
    async with listening(quick()) as seen:
        given_up = await begin_slow(seen, 1, fail=True)
        waited_for = await begin_slow(seen, 2)
        given_up.cancel()
        await asyncio.wait({given_up})
        await seen.source.command("hurry")
        assert (await waited_for)["text"] == "slow is done"
        assert await under_way(seen.source, 0) == 2


async def test_a_command_under_way_is_answered_after_the_views_have_ended(
    quick: Callable[..., SimpleNamespace],
) -> None:
    async with listening(quick()) as seen:
        slow = await begin_slow(seen, 1)
        await seen.end()
        await seen.source.command("hurry")
        assert (await slow)["text"] == "slow is done"


async def test_a_connection_that_has_ended_is_not_used_again(quick: Callable[..., SimpleNamespace]) -> None:
    async with listening(quick()) as seen:
        shared = seen.source._shared
        assert shared is not None and shared.client.connected
        shared.client._fail(ControlError("the connection was lost"))
        assert not shared.client.connected
        assert await under_way(seen.source, 0) == 3


async def test_what_a_silent_backend_was_asked_for_is_not_done_later(
    quick: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "ANSWER_S", 0.3)
    run = quick()
    async with listening(run) as seen:
        stop_process(run.pid)
        with pytest.raises(BackendSilent, match=rf"\(pid {run.pid}\) does not respond: a signal"):
            async with asyncio.timeout(60):
                await seen.source.command("emit", count=1)
        os.kill(run.pid, signal.SIGCONT)
        monkeypatch.setattr(source, "ANSWER_S", 60.0)
        await seen.source.command("emit", count=2)
        end = await seen.until(lambda v: v.events and v.events[-1].text == "1")
        assert [e.text for e in end.events[-3:]] == [f"toy backend {run.pid} serves", "0", "1"]


async def test_the_last_user_of_a_client_closes_it() -> None:
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    shared = SharedClient(SimpleNamespace(), close)  # type: ignore[arg-type]
    async with shared.use() as one:
        async with shared.use() as other:
            assert one is other is shared.client
        assert closed == []
    assert closed == [True]


async def test_it_can_be_left_at_any_moment(quick: Callable[..., SimpleNamespace]) -> None:
    run = quick()
    for turns in range(0, 600, 3):  # of the loop: over the first ones it connects, is greeted, and reads
        looking_at = Seen(RunSource(RunDir(run.run_dir)))
        for _ in range(turns):
            await asyncio.sleep(0)
        left = asyncio.create_task(looking_at.end())
        await asyncio.wait({left}, timeout=60)
        assert left.done(), f"after {turns} turns of the loop it did not end"
