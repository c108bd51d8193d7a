"""The sessions of a run as several processes behind one socket: the work of each test is the same as that of one."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit.session_service import TOOL, USER, Service, reading_replica, service_of
from kit.token_replica import TokenReplica, call_text
from kit.trained import sampled_parts

from liverl.embedded.tokenizer import EOS_ID, decode
from liverl.sessions.layout import LOCK
from liverl.sessions.shares import owner

OF = 4
NAMES = [f"task-{number:08d}" for number in range(12)]


@pytest.fixture
async def replica() -> AsyncIterator[TokenReplica]:
    async with reading_replica() as made:
        yield made


@pytest.fixture
async def service(tmp_path: Path, replica: TokenReplica) -> AsyncIterator[Service]:
    async with service_of(tmp_path, replica, processes=OF) as made:
        yield made


class Agent:
    """One agent, whose client repeats a request that got no answer, as the usual packages do."""

    def __init__(self, opened: dict[str, Any]) -> None:
        self.opened = opened
        self.messages: list[Any] = [USER]
        self.refused: list[str] = []

    async def turn(self, http: aiohttp.ClientSession) -> None:
        body = {"model": "m", "messages": self.messages, "tools": [TOOL]}
        headers = {"x-api-key": self.opened["key"]}
        url = f"{self.opened['openai_url']}/chat/completions"
        while True:
            try:
                async with http.post(url, json=body, headers=headers) as response:
                    text = await response.text()
                    if response.status != 200:
                        self.refused.append(f"{response.status}: {text}")
                        return
                    reply = (await response.json())["choices"][0]["message"]
                    break
            except aiohttp.ClientConnectorError as error:
                self.refused.append(str(error))
                return
            except aiohttp.ClientError:
                continue
        answer = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}
        self.messages += [reply, answer]

    @property
    def turns(self) -> int:
        return len(self.messages) // 2


async def talk(http: aiohttp.ClientSession, agents: list[Agent], turns: int) -> None:
    async def one(agent: Agent) -> None:
        for _ in range(turns):
            await agent.turn(http)

    await asyncio.gather(*map(one, agents))
    assert [each.refused for each in agents] == [[]] * len(agents)


async def opened(service: Service, names: list[str]) -> list[Agent]:
    return [Agent(await service.open(name)) for name in names]


async def rows_are_whole(service: Service, agents: list[Agent]) -> None:
    """Each agent's session is one row with each of its replies once."""
    for agent in agents:
        status, body = await service.control("POST", f"/sessions/{agent.opened['id']}/finish")
        parts = [part for row in body["rows"] for part in sampled_parts(row)]
        assert len(body["rows"]) == min(agent.turns, 1)
        texts = [decode(token for token in part if token != EOS_ID) for part in parts]
        wanted = [call_text("read_file", path=f"{turn}.txt") for turn in range(agent.turns)]
        assert (status, texts) == (200, wanted)


def pids(service: Service) -> list[int]:
    return [each["pid"] for each in service.report()["processes"]]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def is_locked(service: Service) -> bool:
    """Whether another service would wait for this one."""
    fd = os.open(service.dir / "sessions" / LOCK, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


async def test_four_processes_do_the_work_of_one(service: Service, replica: TokenReplica) -> None:
    with socket.create_server(("127.0.0.2", 0)) as sandboxes:
        service.more, service.settings["host"] = [sandboxes.fileno()], ""
        process = service.start(LIVERL_LISTEN_FD_SANDBOXES=str(sandboxes.fileno()))
        service.more, port = [], sandboxes.getsockname()[1]
    await service.serving()
    assert {owner(name, OF) for name in NAMES} == set(range(OF))
    agents = await opened(service, NAMES)
    assert agents[0].opened["anthropic_url"] == f"http://127.0.0.2:{port}/sess/{NAMES[0]}"

    # Fewer connections than agents, so that each one is for sessions of several processes in turn.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=3)) as http:
        await talk(http, agents, 4)
        port_of_run = service.listener.getsockname()[1]
        for path, status in (("/health", 200), ("/nothing", 404), ("/sess/task-1/v1/models", 404)):
            async with http.get(f"http://127.0.0.1:{port_of_run}{path}") as response:
                assert response.status == status
    calls = len(NAMES) * 4
    await service.until(lambda: service.report()["counters"].get("num_calls") == calls)
    report = service.report()
    assert (report["pid"], report["open"], report["in_flight"]) == (process.pid, len(NAMES), 0)
    wanted = [sum(owner(name, OF) == number for name in NAMES) for number in range(OF)]
    assert [each["open"] for each in report["processes"]] == wanted
    log = service.text()
    assert f"generation 1 is serving on http://127.0.0.2:{port}; replicas: 1; processes: 4" in log

    # The trainer's part
    status, facts = await service.control("GET", "/sessions")
    assert (status, facts["open"], facts["counters"]["num_calls"]) == (200, len(NAMES), calls)
    assert (await service.control("GET", "/sessions", key="x"))[0] == 401
    assert (await service.control("GET", f"/sessions/{NAMES[0]}"))[1]["counters"]["num_calls"] == 4
    assert (await service.control("POST", "/sessions", {"id": 1}))[0] == 400
    assert (await service.control("POST", "/sessions/none/finish"))[0] == 404

    # One of them is killed while all sample.
    before = pids(service)
    victim = max(range(OF), key=lambda number: wanted[number])
    async with aiohttp.ClientSession() as http:
        replica.gate.clear()
        talking = asyncio.ensure_future(talk(http, agents, 3))
        await service.until(lambda: service.report()["in_flight"] == len(NAMES))
        os.kill(before[victim], signal.SIGKILL)
        replica.gate.set()
        # Meanwhile the trainer's requests wait for it.
        assert (await service.control("GET", "/sessions"))[1]["open"] == len(NAMES)
        await talking
        calls += len(NAMES) * 3
        await service.until(lambda: service.report()["counters"].get("num_calls") == calls)
        unchanged = [old == new for old, new in zip(before, pids(service), strict=True)]
        assert unchanged == [number != victim for number in range(OF)]
        assert [each["restarts"] for each in service.report()["processes"]] == [
            int(not same) for same in unchanged
        ]
        assert f"process {victim + 1} of 4 has ended (SIGKILL); starting it again" in service.text()
        (end,) = service.report()["process_ends"]
        told = [end[name] for name in ("process", "of", "how", "sessions", "reopened")]
        assert told == [victim + 1, OF, "SIGKILL", wanted[victim], wanted[victim]]

        # A signal ends all, once they have sent what they sample.
        await rows_are_whole(service, agents[:2])
        assert is_locked(service)
        replica.gate.clear()
        running = asyncio.ensure_future(talk(http, agents[2:], 1))
        await service.until(lambda: service.report()["in_flight"] == len(NAMES) - 2)
        process.send_signal(signal.SIGTERM)
        await service.until(lambda: service.text().count("stopping; replies being sampled") == OF)
        assert service.report()["state"] == "draining"
        for pid in pids(service):  # a batch system sends it to each process
            os.kill(pid, signal.SIGTERM)
        assert process.poll() is None
        replica.gate.set()
        await running
    assert await service.ended() == 0
    assert service.text().count("replies cut: 0") == OF
    assert "Traceback" not in service.text()

    # Another number finds all of it: each reply once, as it was sampled.
    service.settings["processes"] = 1
    service.start()
    await service.serving()
    assert is_locked(service)
    await rows_are_whole(service, agents)
    await service.until(lambda: service.report()["finished"] == len(NAMES))
    assert service.report()["counters"]["num_calls"] == calls + len(NAMES) - 2


async def test_lists_second_signals_and_the_end_of_the_front(service: Service, replica: TokenReplica) -> None:
    service.settings["processes"] = 2
    process = service.start()
    await service.serving()
    agents = await opened(service, NAMES)
    await rows_are_whole(service, agents[:2])  # none has a turn
    agents = agents[2:]
    url = service.report()["backends"][0]
    wanted = service.list_replicas(url, draining=("http://127.0.0.1:2",))
    process.send_signal(signal.SIGHUP)
    await service.until(lambda: service.report()["config_sha"] == wanted)
    assert service.report()["backends"] == [url]
    assert service.text().count(f"replicas: {url}, http://127.0.0.1:2 (draining)") == 2
    one = [{"url": url, "model": "m"}]
    assert await service.control("PUT", "/backends", one) == (200, {"listed": 1})

    # A second signal cuts what is being sampled; the clients ask again, and are answered by the next processes.
    async with aiohttp.ClientSession() as http:
        replica.gate.clear()
        running = asyncio.ensure_future(talk(http, agents, 2))
        await service.until(lambda: service.report()["in_flight"] == len(agents))
        process.send_signal(signal.SIGTERM)
        await service.until(lambda: service.report()["state"] == "draining")
        process.send_signal(signal.SIGINT)
        assert await service.ended() == 0
        cut = service.text().count("replies cut: ") - service.text().count("replies cut: 0")
        assert cut == 2
        replica.gate.set()
        service.settings["processes"] = 3
        process = service.start()
        await service.serving()
        await running
        # The others end with a front that is killed, and the next one waits for that.
        workers = pids(service)
        replica.gate.clear()
        running = asyncio.ensure_future(talk(http, agents, 2))
        await service.until(lambda: service.report()["in_flight"] == len(agents))
        process.send_signal(signal.SIGKILL)
        await service.ended()
        service.settings["processes"] = 2
        service.start()
        await service.serving()
        assert all(map(gone, workers))
        replica.gate.set()
        await running
    report = service.report()
    assert (report["open"], report["finished"]) == (len(agents), 2)
    await rows_are_whole(service, agents)
    assert (await service.control("GET", "/sessions"))[1]["counters"]["num_calls"] == len(agents) * 4
