"""What probes and polls ask of a server: no more connections and requests than they need to know what they tell."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from liverl.plan.spec import Probe
from liverl.supervise.services import probes
from liverl.supervise.services.probes import Http, Target, bearer, watch

READY = Probe("http", port="http", path="/health", interval=2.0, timeout=5.0, failures=1)
LIVE = msgspec.structs.replace(READY, interval=5.0, timeout=10.0, failures=1)


@dataclass
class Server:
    """Answers every request with ``status``."""

    port: int = 0
    status: int = 200
    hangs: bool = False
    connections: int = 0
    requests: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with pytest.raises(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                server.requests.append(head.split()[1].decode())
                server.asked.set()
                if server.hangs:
                    continue
                writer.write(f"HTTP/1.1 {server.status} X\r\nContent-Length: 2\r\n\r\nok".encode())
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


class Steps:
    """Pauses that end when the test says so: by the interval of the probe that waits."""

    def __init__(self) -> None:
        self._waiting: defaultdict[float, asyncio.Queue[asyncio.Future[None]]] = defaultdict(asyncio.Queue)
        self._next: dict[float, asyncio.Future[None]] = {}

    async def pause(self, seconds: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[seconds].put_nowait(over)
        await over

    async def begin(self, probe: Probe) -> None:
        """Let a probe begin a check."""
        (self._next.pop(probe.interval, None) or await self._waiting[probe.interval].get()).set_result(None)

    async def check(self, probe: Probe) -> None:
        """Let a probe check once."""
        await self.begin(probe)
        self._next[probe.interval] = await self._waiting[probe.interval].get()


async def test_a_live_probe_does_not_ask_what_the_ready_probe_has_just_been_told(tmp_path: Path) -> None:
    steps, http = Steps(), Http()
    told: list[tuple[str, str | None]] = []
    looked: list[tuple[str, str | None]] = []
    async with serving() as server:
        target = Target("127.0.0.1", {"http": server.port}, tmp_path / "log", 0, tmp_path, 1, 1)
        watching = asyncio.create_task(
            watch(
                READY, READY, LIVE, target, http, lambda *it: told.append(it), already_up=True,
                pause=steps.pause, looked=lambda *it: looked.append(it),
            )
        )  # fmt: skip
        await steps.check(READY)
        await steps.check(LIVE)
        assert len(server.requests) == 1  # the ready probe's
        assert looked == [("ready", None), ("live", None)]
        await steps.check(LIVE)  # nobody has asked since
        assert len(server.requests) == 2
        server.status = 503
        await steps.check(READY)
        await steps.check(LIVE)  # a failure of the other is none of its own
        assert len(server.requests) == 4
        assert [what for what, _ in told] == ["down", "dead"]
        watching.cancel()
        await http.close()


async def test_a_live_probe_asks_a_server_that_does_not_answer_the_ready_probe_any_more(
    tmp_path: Path,
) -> None:
    """It has answered since the last live check, and hangs now: the live probe would learn it an interval later."""
    steps, http = Steps(), Http()
    async with serving() as server:
        target = Target("127.0.0.1", {"http": server.port}, tmp_path / "log", 0, tmp_path, 1, 1)
        watching = asyncio.create_task(
            watch(READY, READY, LIVE, target, http, lambda *_: None, already_up=True, pause=steps.pause)
        )
        await steps.check(READY)
        server.hangs = True
        for probe in (READY, LIVE):
            server.asked.clear()
            await steps.begin(probe)
            async with asyncio.timeout(60.0):
                await server.asked.wait()
        assert len(server.requests) == 3
        watching.cancel()
        await http.close()


@pytest.mark.parametrize("live", [{"path": "/alive"}, {"timeout": 1.0}, {"token_file": "t"}])
async def test_a_live_probe_that_asks_something_else_asks_for_itself(
    live: dict[str, object], tmp_path: Path
) -> None:
    steps, http, probe = Steps(), Http(), msgspec.structs.replace(LIVE, **live)
    (tmp_path / "t").write_text("secret")
    async with serving() as server:
        target = Target("127.0.0.1", {"http": server.port}, tmp_path / "log", 0, tmp_path, 1, 1)
        watching = asyncio.create_task(
            watch(READY, READY, probe, target, http, lambda *_: None, already_up=True, pause=steps.pause)
        )
        await steps.check(READY)
        await steps.check(probe)
        assert len(server.requests) == 2
        watching.cancel()
        await http.close()


async def test_probes_of_all_services_check_at_the_same_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services that became ready at different times: the backend wakes once for them."""
    clock, pauses = [100.0], asyncio.Queue[float]()

    async def sleep(seconds: float) -> None:
        pauses.put_nowait(clock[0] + seconds)
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(probes.asyncio, "sleep", sleep)
    http, target = Http(), Target("127.0.0.1", {}, tmp_path / "log", 0, tmp_path, 1, 1)
    watching = []
    for clock[0] in (100.3, 100.6):
        live = msgspec.structs.replace(LIVE, interval=4.0)
        watching.append(
            asyncio.create_task(watch(READY, READY, live, target, http, lambda *_: None, already_up=True))
        )
        assert [await pauses.get(), await pauses.get()] == pytest.approx([102.0, 104.0])
    for one in watching:
        one.cancel()


async def test_each_probe_makes_a_connection_and_polls_keep_theirs() -> None:
    http = Http()
    async with serving() as server:
        url = f"http://127.0.0.1:{server.port}"
        for _ in range(3):
            await http.poll(f"{url}/health", 5.0)
        assert server.connections == 3
        for _ in range(3):
            await http.poll(f"{url}/metrics", 5.0, kept=True)
        assert server.connections == 4
        await http.close()


def test_a_token_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    assert bearer(path) == {"Authorization": "Bearer one"}
    path.write_text("three\n")
    assert bearer(path) == {"Authorization": "Bearer three"}
    path.unlink()
    with pytest.raises(FileNotFoundError):
        bearer(path)
    assert bearer(None) == {}


def test_a_token_behind_links_is_read_again_once_they_lead_to_another_one(tmp_path: Path) -> None:
    """A secret as the kubelet mounts it: ``token`` is a link that stays, through another one that is replaced."""
    for name, token in (("..1", "first"), ("..2", "later")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(token)
    data, path = tmp_path / "..data", tmp_path / "token"
    data.symlink_to("..1")
    path.symlink_to("..data/token")
    assert bearer(path) == {"Authorization": "Bearer first"}
    (tmp_path / "new").symlink_to("..2")
    (tmp_path / "new").replace(data)
    assert bearer(path) == {"Authorization": "Bearer later"}
