"""The real LiteLLM behind our runner, with clients that want to take it away from the others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from kit.components import LITELLM
from proxykit import MODEL, Proxy, ToyReplica, replicas, say, served, wait_for

from liverl.environments import default_cache_dir, ensure

pytestmark = [pytest.mark.stack]  # LiteLLM starts in the first test's time

CHAT = "/v1/chat/completions"
MAX_BODY = 1 << 20
DESCRIPTORS = 1024


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    python = asyncio.run(ensure(LITELLM, default_cache_dir(), lambda text, share: say(text)))
    proxy = Proxy(python, tmp_path_factory.mktemp("run"))
    proxy.open_files = DESCRIPTORS
    proxy.extra_env = {
        "LIVERL_MAX_BODY_BYTES": str(MAX_BODY),
        "LIVERL_HEAD_TIMEOUT": "10",
        "LIVERL_BODY_TIMEOUT": "5",
        "LIVERL_WRITE_TIMEOUT": "3",
    }
    with served(proxy):
        yield proxy


@pytest.fixture
async def replica(proxy: Proxy) -> AsyncIterator[ToyReplica]:
    async with replicas("a") as (one,):
        await proxy.reload(1, one.url)
        yield one


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}


async def ask(
    proxy: Proxy, trial: str, data: Any, path: str = CHAT, expect100: bool = False
) -> tuple[int, Any]:
    timeout = aiohttp.ClientTimeout(total=60)
    headers = {"authorization": f"Bearer {proxy.keys.run}.{trial}", "content-type": "application/json"}
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(proxy.url + path, data=data, headers=headers, expect100=expect100) as answer,
    ):
        return answer.status, await answer.json()


def connect(proxy: Proxy, sent: bytes) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", proxy.port))
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # it may be closed already
        sock.send(sent)
    return sock


def request(proxy: Proxy, trial: str, body: bytes) -> bytes:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {proxy.keys.run}.{trial}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.slow
async def test_half_open_connections_leave_the_others_served(proxy: Proxy, replica: ToyReplica) -> None:
    before = proxy.status(1)["dropped"]
    with contextlib.ExitStack() as stack:
        for _ in range(1300):
            stack.enter_context(connect(proxy, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"))
        asked = [ask(proxy, f"calm-{number}", json.dumps(chat())) for number in range(20)]
        assert [status for status, _ in await asyncio.gather(*asked)] == [200] * 20
        status = await wait_for(
            lambda: (now := proxy.status(1))["dropped"] > before + 800 and now, 60, "they are counted"
        )
        assert status["descriptors"] < DESCRIPTORS and status["descriptor_limit"] == DESCRIPTORS
        assert status["cooled_down"] == [] and status["turned_away"] == 0
        # the rest goes when its time is over
        await wait_for(lambda: proxy.status(1)["connections"] < 5, 60, "all half-open connections are closed")


async def test_a_request_that_does_not_come_is_not_waited_for(proxy: Proxy, replica: ToyReplica) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
    # the same on a connection that has shown a key
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request(proxy, "slow", json.dumps(chat()).encode()))
    async with asyncio.timeout(60):
        assert b" 200 " in await reader.readline()
        writer.write(b"POST / HTTP/1.1\r\nHo")
        await reader.read()
    writer.close()


async def test_connections_without_a_key_are_closed_with_their_answer(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"POST /v1/x%1b[2J%0ay HTTP/1.1\r\nHost: x\r\nContent-Length: 900000000\r\n\r\n")
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert b" 401 " in answer.splitlines()[0] and b"connection: close" in answer
    writer.close()
    log = proxy.log(1).read_text()
    assert "401 POST /v1/x%1b[2J%0ay\n" in log and "\x1b[2J" not in log


async def test_a_key_is_asked_for_before_a_body(proxy: Proxy) -> None:
    for headers, word in (("", b" 401 "), (f"Authorization: Bearer {proxy.keys.run}\r\n", b" 100 ")):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n{headers}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        writer.write(head.encode())
        async with asyncio.timeout(60):
            assert word in await reader.readline()
        writer.close()


async def test_a_body_that_does_not_come_is_answered_with_408(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request(proxy, "late", b"x" * 100)[:-50])
    async with asyncio.timeout(60):
        assert b" 408 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/models\r\n\r\n",
        b"GET /v1/models HTTP/0.9\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_only_http_1_is_served(proxy: Proxy, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(sent)
    async with asyncio.timeout(60):
        line = await reader.readline()
    assert not line or line.split()[1] in (b"400", b"505"), line
    writer.close()


@pytest.mark.parametrize("way", ["declared", "chunked", "expect"])
async def test_a_body_above_the_limit_is_answered_with_413(
    proxy: Proxy, replica: ToyReplica, way: str
) -> None:
    data = json.dumps(chat(user="x" * MAX_BODY)).encode()

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 50_000):
            yield data[start : start + 50_000]

    sent = parts() if way == "chunked" else data
    before = proxy.status(1)["too_large"]
    status, body = await ask(proxy, f"large-{way}", sent, expect100=way == "expect")
    assert status == 413 and "proxy.max_body_bytes allows 1,048,576" in body["error"]["message"]
    await wait_for(lambda: proxy.status(1)["too_large"] == before + 1, 60, "it is counted")
    (record,) = await proxy.records(f"large-{way}", count=1)
    assert record["failure"]["status_code"] == 413 and not replica.seen
    assert len(json.dumps(record)) < 20_000
    fits = json.dumps(chat(messages=[{"role": "user", "content": "x" * (MAX_BODY - 1000)}]))
    assert (await ask(proxy, "fits", fits))[0] == 200


async def test_a_huge_body_is_not_kept_in_memory(proxy: Proxy, replica: ToyReplica) -> None:
    """200 MB of one client: the proxy grew by a gigabyte, and others waited for 19 s."""

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"model":"policy","messages":[],"user":"'
        for _ in range(200):
            yield b"x" * (1 << 20)

    before = peak(proxy)
    big = asyncio.create_task(ask(proxy, "huge", parts()))
    assert (await ask(proxy, "beside-huge", json.dumps(chat())))[0] == 200
    status, _ = await big
    assert status == 413
    assert peak(proxy) - before < 64 << 10, "kB"


def leave(pid: int, more: int) -> None:
    """Let a process open only so many ``more`` descriptors than it has."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = (number for number in itertools.count() if number not in used)
    limit = next(itertools.islice(free, more, None))
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))


async def status_of(proxy: Proxy, trial: str) -> int:
    """The status of an answer that need not be JSON."""
    headers = {"authorization": f"Bearer {proxy.keys.run}.{trial}"}
    timeout = aiohttp.ClientTimeout(total=60)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(proxy.url + CHAT, json=chat(), headers=headers) as answer,
    ):
        return answer.status


async def test_without_descriptors_the_proxy_says_so_and_blames_no_replica(
    proxy: Proxy, replica: ToyReplica
) -> None:
    status = proxy.status(1)
    pid, before = status["pid"], status["turned_away"]
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    replica.hold = asyncio.Event()
    first = asyncio.create_task(ask(proxy, "first", json.dumps(chat())))
    await wait_for(lambda: replica.seen, 60, "a request is at the replica")
    leave(pid, 3)
    try:
        others = [asyncio.create_task(status_of(proxy, f"other-{n}")) for n in range(3)]
        done, _ = await asyncio.wait(others, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert done, "a request for which nothing is left is answered at once"
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        replica.hold.set()
    assert (await first)[0] == 200, "what was under way goes on"
    answers = [await other for other in others]
    assert max(answers) >= 500
    told = await wait_for(
        lambda: (now := proxy.status(1))["turned_away"] > before and now, 60, "they are counted"
    )
    assert told["cooled_down"] == [], "the replica is not to blame"
    assert (await ask(proxy, "after", json.dumps(chat())))[0] == 200


def peak(proxy: Proxy) -> int:
    """The most memory that the serving process has had, in kB."""
    lines = Path(f"/proc/{proxy.status(1)['pid']}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def test_who_does_not_read_is_cut_off(proxy: Proxy, replica: ToyReplica) -> None:
    replica.endless = True
    before = proxy.status(1)["dropped"]
    with contextlib.ExitStack() as stack:
        for number in range(5):
            body = json.dumps(chat(stream=True)).encode()
            stack.enter_context(connect(proxy, request(proxy, f"deaf-{number}", body)))
        await wait_for(lambda: len(replica.seen) == 5, 60, "all streams have begun")
        assert (await ask(proxy, "beside", json.dumps(chat())))[0] == 200
        await wait_for(lambda: replica.in_flight == 0, 60, "the replica computes for nobody")
        await wait_for(lambda: proxy.status(1)["dropped"] == before + 5, 60, "they are counted")
    (record,) = await proxy.records("deaf-0", count=1)
    assert record["failure"]["error_type"] == "client_disconnected"


BAD = {
    "list": b"[]",
    "text": b"hello",
    "deep": b'{"model":"policy","messages":[],"x":' + b"[" * 600 + b"]" * 600 + b"}",
    "very-deep": b"[" * 100_000,
    "content": json.dumps(chat(messages=[{"role": "user", "content": 3}])).encode(),
    "calls": json.dumps(chat(messages=[{"role": "assistant", "tool_calls": 3}])).encode(),
    "format": json.dumps(chat(response_format=3)).encode(),
    "address": json.dumps(chat(api_base="http://127.0.0.1:9")).encode(),
}


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
@pytest.mark.parametrize("name", BAD)
async def test_a_body_that_litellm_cannot_take_is_answered_with_400(
    proxy: Proxy, replica: ToyReplica, name: str, path: str
) -> None:
    lines = len(proxy.log(1).read_text().splitlines())
    trial = f"bad-{name}-{len(path)}"
    status, body = await ask(proxy, trial, BAD[name], path)
    assert status == 400 and body["error"]["type"] == "invalid_request_error"
    (record,) = await proxy.records(trial, count=1)
    assert record["success"] is False and record["failure"]["status_code"] == 400
    told = proxy.log(1).read_text().splitlines()[lines:]
    (line,) = (line for line in told if f"trial={trial} " in line)
    assert line.startswith(f"liverl-proxy: 400 POST {path} ") and not replica.seen
    assert not any("Traceback" in line for line in told)


async def test_a_record_that_cannot_be_written_is_told(proxy: Proxy, replica: ToyReplica) -> None:
    before = proxy.status(1)["unrecorded"]
    (proxy.run_dir / "trials").mkdir(exist_ok=True)
    (proxy.run_dir / "trials" / "blocked").write_text("a file, no directory")
    assert (await ask(proxy, "blocked", json.dumps(chat())))[0] == 200
    await wait_for(lambda: proxy.status(1)["unrecorded"] == before + 1, 60, "it is counted")
    assert (await ask(proxy, "unblocked", json.dumps(chat())))[0] == 200
    await proxy.records("unblocked", count=1)
    status = await wait_for(
        lambda: (now := proxy.status(1))["error"] is None and now, 60, "the next one is written"
    )
    assert "Not a directory" in status["record_error"] and status["unrecorded"] == before + 1
    assert "trials/blocked/litellm-trajectory.jsonl" in proxy.log(1).read_text()


async def test_a_client_that_leaves_in_its_request_is_no_error(proxy: Proxy, replica: ToyReplica) -> None:
    whole = request(proxy, "leaves", json.dumps(chat()).encode())
    connect(proxy, whole[:-5]).close()
    (record,) = await proxy.records("leaves", count=1)
    assert record["failure"]["error_type"] == "client_disconnected" and not replica.seen
