"""What the clients of one key have of a server: bodies that are held, and turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from kit.guarded import serving
from kit.waiting import until

from liverl.util.http_server import Caller, _Share

MOST = 1000  # bytes of a body


class Server:
    """An application whose requests wait; the name of a key is in its path."""

    def __init__(self) -> None:
        self.open: list[tuple[str, int]] = []
        self.let_go = asyncio.Event()
        self.app = web.Application(client_max_size=MOST)
        self.app.router.add_post("/{key}", self._wait)

    async def _wait(self, request: web.Request) -> web.Response:
        self.open.append((request.path, len(await request.read())))
        await self.let_go.wait()
        return web.Response()

    def gate(self, request: web.BaseRequest) -> Caller:
        return Caller(key=request.path)


@pytest.fixture
async def served() -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
    server = Server()
    async with serving(server.app, server.gate, max_body=MOST) as url:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector) as http:
            yield server, http
            server.let_go.set()


def post(http: aiohttp.ClientSession, path: str, data: Any) -> asyncio.Future[int]:
    async def one() -> int:
        async with http.post(path, data=data) as answer:
            return answer.status

    return asyncio.ensure_future(one())


async def test_the_bodies_of_one_key_wait_for_each_other_and_not_those_of_others(served: Any) -> None:
    server, http = served
    mine = [post(http, "/mine", b"x" * MOST) for _ in range(4)]
    await until(lambda: len(server.open) == 2)
    others = [post(http, f"/other{n}", b"x" * MOST) for n in range(3)]
    await until(lambda: len(server.open) == 5)
    assert [path for path, _ in server.open].count("/mine") == 2
    server.let_go.set()
    assert {await each for each in (*mine, *others)} == {200} and len(server.open) == 7


async def test_a_body_of_unknown_length_counts_as_long_as_it_is(served: Any) -> None:
    server, http = served

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 10

    mine = [post(http, "/mine", chunks()) for _ in range(20)]
    await until(lambda: len(server.open) == 20)
    server.let_go.set()
    assert {await each for each in mine} == {200} and {size for _, size in server.open} == {10}


async def test_a_body_of_unknown_length_that_is_too_large_is_refused(served: Any) -> None:
    server, http = served

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * MOST

    assert await post(http, "/mine", chunks()) == 413 and not server.open


async def test_many_small_requests_of_one_key_are_not_held_back(served: Any) -> None:
    server, http = served
    mine = [post(http, "/mine", b"x") for _ in range(200)]
    await until(lambda: len(server.open) == 200)
    server.let_go.set()
    assert {await each for each in mine} == {200}


async def test_of_one_key_one_request_begins_in_a_round_of_the_event_loop() -> None:
    share, rounds, begun = _Share(10), 0, []

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def begin() -> None:
        await share.turn()
        begun.append(rounds)

    counting = asyncio.ensure_future(count())
    await asyncio.gather(*(begin() for _ in range(20)))
    counting.cancel()
    assert len(set(begun)) == 20


async def test_what_was_awaited_and_cancelled_is_given_back() -> None:
    share = _Share(10)
    assert await share.take(8) == 8 and await share.take(2) == 2
    waiting = [asyncio.ensure_future(share.take(size)) for size in (5, 7, 30)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    share.give_back(8)
    assert await waiting[1] == 7 and not waiting[2].done()
    assert share.shrink(7, 3) == 3
    share.give_back(3)
    share.give_back(2)
    assert await waiting[2] == 10, "more than there is takes all"
    last = asyncio.ensure_future(share.take(1))
    await asyncio.sleep(0)
    share.give_back(10)
    last.cancel()  # in the same round in which it got its turn
    await asyncio.gather(last, return_exceptions=True)
    async with asyncio.timeout(60):
        assert await share.take(10) == 10
