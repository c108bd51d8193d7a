"""The sessions of a run as several processes behind one socket: the work of each test is the same as that of one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit.session_service import TOOL, USER, Service
from kit.token_replica import TokenReplica, call_text
from kit.trained import sampled_parts

from liverl.embedded.tokenizer import EOS_ID, decode
from liverl.sessions.shares import owner

NAMES = [f"task-{number:08d}" for number in range(12)]


@pytest.fixture
async def replica() -> AsyncIterator[TokenReplica]:
    made = TokenReplica(lambda _prompt, turn: call_text("read_file", path=f"{turn}.txt"))
    yield made
    await made.stop()


@pytest.fixture
async def service(tmp_path: Path, replica: TokenReplica) -> AsyncIterator[Service]:
    made = Service(tmp_path)
    made.settings["processes"] = 2
    made.list_replicas(await replica.start())
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    made.listener.close()


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
        (row,) = body["rows"]
        texts = [decode(token for token in part if token != EOS_ID) for part in sampled_parts(row)]
        wanted = [call_text("read_file", path=f"{turn}.txt") for turn in range(agent.turns)]
        assert (status, texts) == (200, wanted)


def pids(service: Service) -> list[int]:
    return [each["pid"] for each in service.report()["processes"]]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


async def test_one_client_for_all_sessions_of_both_processes(
    service: Service, replica: TokenReplica
) -> None:
    process = service.start()
    await service.serving()
    assert {owner(name, 2) for name in NAMES} == {0, 1}
    agents = await opened(service, NAMES)
    # Fewer connections than agents, so that each one is for sessions of both processes in turn.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=3)) as http:
        await talk(http, agents, 4)
        for path, status in (("/health", 200), ("/nothing", 404), ("/sess/task-1/v1/models", 404)):
            async with http.get(f"http://127.0.0.1:{service.listener.getsockname()[1]}{path}") as response:
                assert response.status == status
    calls = len(NAMES) * 4
    await service.until(lambda: service.report()["counters"].get("num_calls") == calls)
    report = service.report()
    assert (report["pid"], report["open"], report["in_flight"]) == (process.pid, len(NAMES), 0)
    assert sum(each["open"] for each in report["processes"]) == len(NAMES)
    assert min(each["open"] for each in report["processes"]) > 0
    status, facts = await service.control("GET", "/sessions")
    assert (status, facts["open"], facts["counters"]["num_calls"]) == (200, len(NAMES), calls)
    assert (await service.control("GET", "/sessions", key="x"))[0] == 401
    assert (await service.control("GET", f"/sessions/{NAMES[0]}"))[1]["counters"]["num_calls"] == 4
    assert (await service.control("POST", "/sessions", {"id": 1}))[0] == 400
    await rows_are_whole(service, agents)
    assert len(replica.replies) == calls
    process.send_signal(signal.SIGTERM)
    assert await service.ended() == 0
    log = service.text()
    assert "generation 1 is serving on http://127.0.0.1:" in log and "; replicas: 1; processes: 2" in log
    assert "Traceback" not in log


async def test_kill_9_of_one_of_four_under_load_loses_nothing(
    service: Service, replica: TokenReplica
) -> None:
    service.settings["processes"] = 4
    service.start()
    await service.serving()
    agents = await opened(service, NAMES)
    async with aiohttp.ClientSession() as http:
        await talk(http, agents, 1)
        before = pids(service)
        victim = Counter(owner(name, 4) for name in NAMES).most_common(1)[0][0]
        replica.gate.clear()
        talking = asyncio.ensure_future(talk(http, agents, 6))
        await service.until(lambda: service.report()["in_flight"] == len(NAMES))
        os.kill(before[victim], signal.SIGKILL)
        replica.gate.set()
        await talking
    calls = len(NAMES) * 7
    await service.until(lambda: service.report()["counters"].get("num_calls") == calls)
    unchanged = [old == new for old, new in zip(before, pids(service), strict=True)]
    assert unchanged == [number != victim for number in range(4)]
    assert [each["restarts"] for each in service.report()["processes"]] == [int(not u) for u in unchanged]
    await rows_are_whole(service, agents)
    assert service.report()["counters"]["num_calls"] == calls, "none was sampled twice"
    assert f"process {victim + 1} of 4 has ended (SIGKILL); starting it again" in service.text()


async def test_the_others_end_with_a_front_that_is_killed_and_the_next_one_goes_on(
    service: Service, replica: TokenReplica
) -> None:
    process = service.start()
    await service.serving()
    agents = await opened(service, NAMES)
    async with aiohttp.ClientSession() as http:
        await talk(http, agents, 2)
        workers = pids(service)
        process.send_signal(signal.SIGKILL)
        await service.ended()
        service.settings["processes"] = 3
        service.start()
        await service.serving()
        assert all(map(gone, workers))
        assert service.report()["open"] == len(NAMES)
        await talk(http, agents, 2)
    half = agents[:6]
    await rows_are_whole(service, half)
    service.processes[-1].send_signal(signal.SIGTERM)
    assert await service.ended() == 0
    service.settings["processes"] = 1
    service.start()
    await service.serving()
    report = service.report()
    assert (report["open"], report["finished"]) == (len(NAMES) - 6, 6)
    assert report["counters"]["num_calls"] == len(NAMES) * 4
    await rows_are_whole(service, agents)  # of those that have ended: the same again


async def test_it_drains_and_a_second_signal_cuts(service: Service, replica: TokenReplica) -> None:
    process = service.start()
    await service.serving()
    first, second = await opened(service, [next(n for n in NAMES if owner(n, 2) == k) for k in (0, 1)])
    async with aiohttp.ClientSession() as http:
        replica.gate.clear()
        running = [asyncio.ensure_future(agent.turn(http)) for agent in (first, second)]
        await service.until(lambda: service.report()["in_flight"] == 2)
        process.send_signal(signal.SIGTERM)
        await service.until(lambda: service.report()["state"] == "draining")
        assert process.poll() is None
        replica.gate.set()
        await asyncio.gather(*running)
        assert await service.ended() == 0
        assert service.text().count("replies cut: 0") == 2
        process = service.start()
        await service.serving()
        replica.gate.clear()
        running = [asyncio.ensure_future(agent.turn(http)) for agent in (first, second)]
        await service.until(lambda: service.report()["in_flight"] == 2)
        process.send_signal(signal.SIGTERM)
        await service.until(lambda: service.report()["state"] == "draining")
        process.send_signal(signal.SIGINT)
        assert await service.ended() == 0
        assert service.text().count("replies cut: 1") == 2
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert first.refused == second.refused == []


async def test_a_new_list_counts_when_all_have_it(service: Service) -> None:
    process = service.start()
    await service.serving()
    wanted = service.list_replicas("http://127.0.0.1:1", draining=("http://127.0.0.1:2",))
    process.send_signal(signal.SIGHUP)
    await service.until(lambda: service.report()["config_sha"] == wanted)
    assert service.report()["backends"] == ["http://127.0.0.1:1"]
    assert service.text().count("replicas: http://127.0.0.1:1, http://127.0.0.1:2 (draining)") == 2
    status, answer = await service.control("PUT", "/backends", [{"url": "http://127.0.0.1:3", "model": "m"}])
    assert (status, answer) == (200, {"listed": 1})
    await service.until(lambda: service.report()["backends"] == ["http://127.0.0.1:3"])
