"""Connections whose request has not come cost a server little, and what is no request is answered at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from liverl.util.http_server import Caller, HttpServer

HEAD = b"GET /here HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[HttpServer, int]]:
    async def here(request: web.Request) -> web.Response:
        return web.Response(text=f"here {(await request.read()).decode()}")

    app = web.Application()
    app.router.add_route("*", "/here", here)
    server = HttpServer(app, lambda _: Caller(), max_body=1 << 20)
    port = await server.listen("127.0.0.1")
    try:
        yield server, port
    finally:
        async with asyncio.timeout(60):  # with half-open ones, too
            await server.close()


def parsers(server: HttpServer) -> int:
    """How many connections aiohttp knows of, each with a parser and a task."""
    inner = server._runner.server
    assert inner is not None
    return len(inner.connections)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        return await reader.readline()


async def test_a_half_open_connection_has_no_parser_and_no_task() -> None:
    async with serving() as (server, port):
        open_ = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in open_:
            writer.write(HEAD[:-2])
        await until(lambda: len(server.connections) == 20)
        before = len(asyncio.all_tasks())
        reader, writer = open_[0]
        for byte in HEAD[-2:]:
            writer.write(bytes([byte]))
            await writer.drain()
        assert await answer(reader) == b"HTTP/1.1 200 OK\r\n"
        assert parsers(server) == 1 and len(asyncio.all_tasks()) <= before + 1
        open_[1][1].write_eof()  # and never a head
        assert await answer(open_[1][0]) == b""
        await until(lambda: len(server.connections) == 19)
    for reader, writer in open_[2:]:
        assert await answer(reader) == b"", "closed with the server"
        writer.close()


@pytest.mark.parametrize("size", [1, 7, len(HEAD) - 1, 1000])
async def test_a_request_in_pieces_is_what_it_is_as_a_whole(size: int) -> None:
    body = b"POST /here HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    both = body + HEAD[:-2] + b"Connection: close\r\n\r\n"
    async with serving() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for start in range(0, len(both), size):
            writer.write(both[start : start + size])
            await writer.drain()
        async with asyncio.timeout(60):
            found = await reader.read()
        assert found.count(b"HTTP/1.1 200 OK") == 2 and b"here abc" in found
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"get / HTTP/1.1\n",
        b"\r\n\r\n\r\nnothing\n",
        b"GET /here HTTP/1.1\nHost: x\n\n",
        b"GET /" + b"x" * 9000,
        b"GET / HTTP/1.1\r\nX: " + b"x" * 9000,
    ],
    ids=["TLS", "lower case", "empty lines", "bare line feeds", "a long path", "a long field"],
)
async def test_what_is_no_head_is_answered_at_once(sent: bytes) -> None:
    """Long before the time for a head is over."""
    async with serving() as (server, port):
        assert server.limits.head_timeout >= 10
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(server.limits.head_timeout / 2):
            status = await reader.readline()
        assert status.split()[1] == b"400", status
        writer.close()
