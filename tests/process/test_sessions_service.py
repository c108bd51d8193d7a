"""The sessions of a run as a process of their own, between an agent and a scripted replica."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit import sdk_agent
from kit.injected import StopClock
from kit.sdk_agent import CALLS, WAYS, way_of
from kit.session_service import USER, Service, reading_replica, service_of
from kit.token_replica import TokenReplica
from kit.trained import sampled_parts

from liverl.embedded.tokenizer import EOS_ID, decode
from liverl.sessions.server import PING_S
from liverl.sessions.settings import SOCKET
from liverl.util.deadline import within

BEGUN_S = 400.0  # seconds; what the usual packages import takes seconds of CPU of each agent


def answered(reply: dict[str, Any]) -> list[Any]:
    return [reply, {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}]


@pytest.fixture
async def replica() -> AsyncIterator[TokenReplica]:
    async with reading_replica() as made:
        yield made


@pytest.fixture
async def service(tmp_path: Path, replica: TokenReplica) -> AsyncIterator[Service]:
    async with service_of(tmp_path, replica) as made:
        yield made


async def test_it_serves_reports_and_stops(service: Service) -> None:
    process = service.start()
    await service.serving()
    opened = await service.open()
    port = service.listener.getsockname()[1]
    assert opened["openai_url"] == f"http://127.0.0.1:{port}/sess/task-00000001/v1"
    assert (await service.chat(opened))["tool_calls"]
    assert (service.dir / SOCKET).stat().st_mode & 0o777 == 0o600
    status, _ = await service.control("GET", "/sessions", key="sk-replica")
    assert status == 401
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/health") as response:
        assert response.status == 200
    await service.until(lambda: service.report()["counters"].get("num_calls") == 1)
    report = service.report()
    assert (report["pid"], report["open"], report["in_flight"]) == (process.pid, 1, 0)
    process.send_signal(signal.SIGTERM)
    assert await service.ended() == 0
    assert service.report()["state"] == "draining"
    log = service.text()
    for words in (
        "restored 0 open sessions",
        f"is serving on http://127.0.0.1:{port}; replicas: 1",
        "stopped",
    ):
        assert words in log
    assert '"POST /sess/task-00000001/v1/chat/completions HTTP/1.1" 200' in log
    assert "/health" not in log, "polls are not logged"
    assert opened["key"] not in log and "sk-control" not in log


async def test_killed_within_a_turn_it_goes_on_with_the_same_prefix(
    service: Service, replica: TokenReplica
) -> None:
    service.start()
    await service.serving()
    opened = await service.open()
    reply = await service.chat(opened)
    replica.gate.clear()
    replica.begun.clear()
    cut = asyncio.ensure_future(service.chat(opened, *answered(reply)))
    await within(replica.begun.wait(), 60)
    service.processes[-1].send_signal(signal.SIGKILL)
    with pytest.raises(aiohttp.ClientError):
        await cut
    await service.ended()
    again = asyncio.ensure_future(service.chat(opened, *answered(reply)))  # waits in the run's socket
    await asyncio.sleep(0)
    service.start()
    replica.gate.set()
    second = await again
    assert "restored 1 open sessions" in service.text()
    assert (await service.open())["key"] == opened["key"], "the same session, asked for again"
    status, body = await service.control("POST", f"/sessions/{opened['id']}/finish")
    (row,) = body["rows"]
    assert status == 200 and second["tool_calls"]
    kept = [token for token, mine in zip(
        row["traj_acc_ids"][row["initial_prompt_token_len"] :], row["traj_response_mask"], strict=True
    ) if mine]  # fmt: skip
    assert kept == [*replica.replies[0], *replica.replies[-1]], "each reply once, as it was sampled"


def sdk_agent_of(way: str, opened: dict[str, Any], folder: Path) -> subprocess.Popen[bytes]:
    """Start an agent with a package of OpenAI or Anthropic and its own retries, in the directory of its trial."""
    (folder / "task.json").write_text(json.dumps({"messages": [USER]}))
    given = {
        "LIVERL_TRIAL": opened["id"],
        "LIVERL_TASK": str(folder / "task.json"),
        "LIVERL_REWARD": str(folder / "reward"),
    }
    for api in ("openai", "anthropic"):
        values = {"BASE_URL": opened[f"{api}_url"], "API_KEY": opened["key"], "MODEL": "m"}
        given |= {f"{api.upper()}_{name}": value for name, value in values.items()}
    with open(folder / "log", "wb") as log:
        argv = [sys.executable, sdk_agent.__file__]
        return subprocess.Popen(argv, env={**os.environ, **given}, cwd=folder, stdout=log, stderr=log)


async def test_agents_with_the_usual_packages_lose_no_call_when_it_is_killed(
    service: Service, replica: TokenReplica
) -> None:
    replica.reply = lambda _prompt, turn: f"reply {turn}"
    service.start()
    await service.serving()
    replica.gate.clear()
    names = (f"task-{number:08x}" for number in itertools.count())
    folders, agents = {}, {}
    try:
        for way in WAYS:
            opened = await service.open(next(name for name in names if way_of(name) == way))
            folders[way] = service.dir / "trials" / "step_0001" / opened["id"]
            agents[way] = sdk_agent_of(way, opened, folders[way])
        await service.until(lambda: service.report()["in_flight"] == len(WAYS), BEGUN_S)
        # Replies take long: a stream that begins before there is one would end with the service.
        long = time.monotonic() + PING_S + 1
        await service.until(lambda: time.monotonic() > long)
        service.processes[-1].send_signal(signal.SIGKILL)
        await service.ended()
        service.start()
        await service.serving()
        replica.gate.set()
        for way, process in agents.items():
            status = await asyncio.to_thread(process.wait, BEGUN_S)
            assert status == 0, f"{way}: {(folders[way] / 'log').read_text()}"
    finally:
        for process in agents.values():
            process.kill()
            process.wait()
    for folder in folders.values():
        calls = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
        assert [call["text"] for call in calls if "text" in call] == [f"reply {n}" for n in range(CALLS)]
        status, body = await service.control("POST", f"/sessions/{folder.name}/finish")
        (row,) = body["rows"]
        texts = [decode(token for token in part if token != EOS_ID) for part in sampled_parts(row)]
        assert (status, texts) == (200, [f"reply {n}" for n in range(CALLS)])


async def test_a_compacted_conversation_is_one_row_with_the_replies_that_it_keeps(
    service: Service, replica: TokenReplica
) -> None:
    service.settings["rewrite"] = "recompute"
    service.start()
    await service.serving()
    opened = await service.open()
    first = answered(await service.chat(opened))
    second = answered(await service.chat(opened, *first))
    await service.chat(opened, *first, *second)
    assert replica.scored == []
    # The first turn is left out, so that the second one follows the task.
    third = await service.chat(opened, *second)
    assert third["tool_calls"]
    status, body = await service.control("POST", f"/sessions/{opened['id']}/finish")
    (row,) = body["rows"]
    (prompt,) = replica.scored
    assert (status, row["kind"]) == (200, "rewrite")
    begin = row["initial_prompt_token_len"]
    trained = [begin + at for at, bit in enumerate(row["traj_response_mask"]) if bit]
    earlier = [at for at in trained if at < len(prompt)]
    text = "<function=read_file>\n<parameter=path>\n1.txt\n</parameter>\n</function>"
    assert text in decode(prompt[at] for at in earlier) and prompt[earlier[-1]] == EOS_ID
    assert earlier == list(range(begin, begin + len(earlier)))
    for at in earlier:
        assert row["traj_response_logprobs"][at - begin] == pytest.approx(-at / 1000)
    assert [row["traj_acc_ids"][at] for at in trained[len(earlier) :]] == replica.replies[3]
    await service.until(lambda: service.report()["counters"].get("recomputed") == 1)


async def test_stopped_within_a_turn_it_sends_the_reply_and_the_next_process_takes_what_came_meanwhile(
    service: Service, replica: TokenReplica
) -> None:
    process = service.start()
    await service.serving()
    first, second = await service.open(), await service.open("task-00000002")
    replica.gate.clear()
    running = asyncio.ensure_future(service.chat(first))
    await within(replica.begun.wait(), 60)
    process.send_signal(signal.SIGTERM)
    await service.until(lambda: service.report()["state"] == "draining")
    late = asyncio.ensure_future(service.chat(second))
    assert not running.done() and process.poll() is None
    replica.gate.set()
    assert (await running)["tool_calls"]
    assert await service.ended() == 0
    assert "replies cut: 0" in service.text()
    assert not late.done()
    service.start()
    assert (await late)["tool_calls"]
    assert len(replica.replies) == 2


async def test_signals_that_come_together_are_one_request(
    service: Service, replica: TokenReplica, tmp_path: Path
) -> None:
    """They come together by a clock that stands: on a slow machine the last one may be taken much later."""
    process = service.start(**StopClock(tmp_path / "stops").env)
    await service.serving()
    opened = await service.open()
    replica.gate.clear()
    running = asyncio.ensure_future(service.chat(opened))
    await within(replica.begun.wait(), 60)
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.05)  # so that they do not merge to one signal
    await service.until(lambda: service.report()["state"] == "draining")
    replica.gate.set()
    assert (await running)["tool_calls"]
    assert await service.ended() == 0
    assert "replies cut: 0" in service.text()


async def test_a_second_signal_cuts_what_is_being_sampled(service: Service, replica: TokenReplica) -> None:
    process = service.start()
    await service.serving()
    opened = await service.open()
    replica.gate.clear()
    running = asyncio.ensure_future(service.chat(opened))
    await within(replica.begun.wait(), 60)
    process.send_signal(signal.SIGTERM)
    await service.until(lambda: service.report()["state"] == "draining")
    process.send_signal(signal.SIGINT)
    assert await service.ended() == 0
    assert "replies cut: 1" in service.text()
    with pytest.raises((aiohttp.ClientError, AssertionError)):
        await running


async def test_it_takes_over_a_new_list_and_keeps_the_old_one_if_that_is_broken(service: Service) -> None:
    (service.dir / "sessions" / "replicas.json").unlink()
    process = service.start()
    await service.serving()
    assert (service.report()["backends"], service.report()["config_sha"]) == ([], "")
    wanted = service.list_replicas("http://127.0.0.1:1", draining=("http://127.0.0.1:2",))
    process.send_signal(signal.SIGHUP)
    await service.until(lambda: service.report()["config_sha"] == wanted)
    assert service.report()["backends"] == ["http://127.0.0.1:1"]
    assert "replicas: http://127.0.0.1:1, http://127.0.0.1:2 (draining)" in service.text()
    (service.dir / "sessions" / "replicas.json").write_text("[{")
    process.send_signal(signal.SIGHUP)
    await service.until(lambda: service.report()["error"])
    assert service.report()["config_sha"] == wanted
    assert "keeping the previous list" in service.text()


@pytest.mark.parametrize(
    ("changes", "env", "words"),
    [
        ({"rewrite": "zero"}, {}, "Invalid enum value 'zero'"),
        ({"colour": 1}, {}, "unknown field `colour`"),
        ({"scheduler": {"poll": 5}}, {}, "missing required field `rules` - at `$.scheduler`"),
        ({"control_key_file": "/nowhere"}, {}, "/nowhere"),
        ({}, {"LIVERL_LISTEN_FD": ""}, "LIVERL_LISTEN_FD is ''"),
        ({}, {"LIVERL_LISTEN_FD_SANDBOXES": "x"}, "LIVERL_LISTEN_FD_SANDBOXES is 'x'"),
    ],
)
async def test_wrong_settings_are_one_line(
    service: Service, changes: dict[str, Any], env: dict[str, str], words: str
) -> None:
    service.settings |= changes
    service.start(**env)
    assert await service.ended() == 2
    assert service.text().startswith("error: ") and words in service.text()
    assert service.text().count("\n") == 1


@pytest.mark.parametrize(
    ("given", "bridge", "told"),
    [
        ("", True, "127.0.0.2"),
        ("me.lan", True, "me.lan"),
        ("", False, "127.0.0.1"),
        ("me.lan", False, "me.lan"),
    ],
)
async def test_agents_get_the_address_for_sandboxes_and_both_serve(
    service: Service, given: str, bridge: bool, told: str
) -> None:
    service.settings["host"] = given
    with socket.create_server(("127.0.0.2", 0)) as second:
        service.more = [second.fileno()] if bridge else []
        service.start(**({"LIVERL_LISTEN_FD_SANDBOXES": str(second.fileno())} if bridge else {}))
        await service.serving()
        port = second.getsockname()[1] if bridge else service.listener.getsockname()[1]
        assert f"is serving on http://{told}:{port}; " in service.text()
        for listener in (service.listener, second)[: 1 + bridge]:
            host, number = listener.getsockname()
            async with (
                aiohttp.ClientSession() as http,
                http.get(f"http://{host}:{number}/health") as response,
            ):
                assert response.status == 200
