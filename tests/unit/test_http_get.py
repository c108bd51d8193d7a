"""The client that asks the same servers every second: what it understands, and what it leaves to a general one."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvicorn
from aiohttp import web

from liverl.supervise.services.probes import Http
from liverl.util import http_get
from liverl.util.http_get import Getter, UnusualError

BODY = "größe 1\n" * 9000  # of several reads
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nwiki\r\nA \r\npedia\r\n in\r\n"
    b"0\r\nTrailer: x\r\n\r\n"
)


@dataclass
class Server:
    """``requests``: what was sent on each connection so far. ``ended``: connections that the client has closed."""

    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    ended: asyncio.Queue[None] = field(default_factory=asyncio.Queue)


@asynccontextmanager
async def says(
    *pieces: bytes, ends: bool = False, once: bool = False, after: asyncio.Event | None = None
) -> AsyncIterator[Server]:
    """A server that answers each request with these pieces, one at a time. ``ends``: and closes the connection;
    ``once``: only its first one. ``after``: when it says the first piece once more."""
    server = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        number = server.connections
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                server.requests.append(head)
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if after is not None:
                    await after.wait()
                    writer.write(pieces[0])
                if ends and not (once and number > 1):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            server.ended.put_nowait(None)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/m"
    try:
        yield server
    finally:
        listening.close()


async def asked(url: str, **options: bool) -> tuple[int, str]:
    getter = Getter()
    try:
        return await getter.get(url, 20.0, **options)
    finally:
        getter.close()


# -- real servers


async def of_aiohttp(request: web.Request) -> web.StreamResponse:
    if request.path == "/whole":
        return web.Response(text=BODY)
    if request.path == "/gzip":
        answer = web.Response(text=BODY)
        answer.enable_compression(web.ContentCoding.gzip)
        return answer
    if request.path == "/moved":
        raise web.HTTPFound("/whole")
    if request.path == "/closes":
        answer = web.Response(text=BODY)
        answer.force_close()
        return answer
    if request.path == "/none":
        return web.Response(status=204)
    stream = web.StreamResponse()
    stream.enable_chunked_encoding()
    await stream.prepare(request)
    for line in BODY.splitlines(keepends=True):
        await stream.write(line.encode())
    return stream


@asynccontextmanager
async def aiohttp_server() -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(of_aiohttp))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def of_uvicorn(scope: dict[str, str], _: object, send: Callable[[object], Awaitable[None]]) -> None:
    whole = scope["path"] == "/whole"
    headers = [(b"content-length", str(len(BODY.encode())).encode())] if whole else []
    if scope["path"] == "/closes":
        headers.append((b"connection", b"close"))
    status = 204 if scope["path"] == "/none" else 200
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for line in () if status == 204 else BODY.splitlines(keepends=True):
        await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def uvicorn_server() -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(of_uvicorn, lifespan="off", log_level="error"))
    serving = asyncio.create_task(server._serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


@pytest.mark.parametrize("start", [aiohttp_server, uvicorn_server])
@pytest.mark.parametrize("kept", [True, False])
async def test_what_real_servers_answer(
    start: Callable[[], AbstractAsyncContextManager[str]], kept: bool
) -> None:
    getter = Getter()
    async with start() as url:
        for path in ("whole", "chunks", "closes", "whole", "chunks", "chunks"):
            assert await getter.get(f"{url}/{path}", 20.0, kept=kept) == (200, BODY), path
        assert await getter.get(f"{url}/none", 20.0, kept=kept) == (204, "")
        getter.close()


async def test_what_it_does_not_know_is_asked_by_a_general_client() -> None:
    http = Http()
    async with aiohttp_server() as url:
        for path in ("moved", "gzip"):
            assert await http.poll(f"{url}/{path}", 20.0, kept=True) == (200, BODY), path
        name = url.replace("127.0.0.1", "localhost")
        assert await http.poll(f"{name}/whole", 20.0) == (200, BODY)
    await http.close()


# -- answers


@pytest.mark.parametrize(
    ("answer", "ends", "status", "body"),
    [
        (PLAIN, False, 200, "ok"),
        (CHUNKED, False, 200, "wikipedia\r\n in"),
        (b"HTTP/1.1 503 \r\ncontent-length:0\r\n\r\n", False, 503, ""),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", True, 200, "to the end"),
        (b"HTTP/1.1 404\r\nConnection: close\r\n\r\n", True, 404, ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na\xffb", False, 200, "a\ufffdb"),
    ],
)
async def test_an_answer_in_any_pieces(answer: bytes, ends: bool, status: int, body: str) -> None:
    for size in (1, 7, len(answer)):
        pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
        async with says(*pieces, ends=ends) as server:
            assert await asked(server.url) == (status, body)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"200 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 307 X\r\nLocation: /m/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=latin-1\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokay",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 2000,
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * 70_000,
    ],
)
async def test_what_is_not_understood_is_said_to_be_unusual(answer: bytes) -> None:
    async with says(answer) as server:
        with pytest.raises(UnusualError):
            await asked(server.url)


@pytest.mark.parametrize("head", [b"Content-Length: 9999999999\r\n", b"Connection: close\r\n"])
async def test_an_answer_that_is_too_long_is_an_error_that_nobody_asks_again(
    monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(http_get, "_MOST", 1000)
    async with says(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + b"x" * 5000) as server:
        with pytest.raises(OSError, match="an answer of more than"):
            await asked(server.url)


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("https://127.0.0.1:1/", {}),
        ("http://localhost:1/", {}),
        ("http://a:b@127.0.0.1:1/", {}),
        ("http://127.0.0.1:no/", {}),
        ("http://127.0.0.1:1/a b", {}),
        ("http://127.0.0.1:1/ä", {}),
        ("http://127.0.0.1:1/", {"A": "b\r\nC: d"}),
        ("http://127.0.0.1:1/", {"A": ""}),
        ("http://127.0.0.1:1/", {"A B": "c"}),
    ],
)
async def test_what_it_cannot_ask_is_not_asked(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(UnusualError):
        await Getter().get(url, 20.0, headers)


async def test_what_is_sent() -> None:
    async with says(PLAIN) as server:
        await Getter().get(f"{server.url}?a=%20", 20.0, {"Authorization": "Bearer x y"})
        head = f"GET /m?a=%20 HTTP/1.1\r\nHost: {server.url[7:-2]}\r\nAccept: */*\r\n"
        assert server.requests == [f"{head}Authorization: Bearer x y\r\nConnection: close\r\n\r\n".encode()]


# -- no answer


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", CHUNKED[:-4]]
)
async def test_an_answer_that_is_cut_off_is_none(answer: bytes) -> None:
    async with says(answer, ends=True) as server:
        with pytest.raises(ConnectionResetError):
            await asked(server.url)


async def test_no_answer_in_time_and_nobody_who_listens() -> None:
    async with says(b"HTTP/1.1 200 OK\r\n") as server:
        with pytest.raises(TimeoutError):
            await Getter().get(server.url, 0.01, kept=True)
        await server.ended.get()
    with pytest.raises(ConnectionRefusedError):
        await asked(server.url)


async def test_a_connection_that_is_not_made_in_time_is_no_answer() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        place = listening.getsockname()
        waiting = [socket.socket() for _ in range(4)]  # more than it holds: the kernel answers no further one
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(place)
        try:
            async with asyncio.timeout(60.0):
                with pytest.raises(TimeoutError):
                    await Getter().get(f"http://127.0.0.1:{place[1]}/m", 0.01)
        finally:
            for one in waiting:
                one.close()


# -- kept connections


async def test_a_connection_that_the_server_has_closed_is_opened_again() -> None:
    getter = Getter()
    async with says(PLAIN, ends=True, once=True) as server:
        assert await getter.get(server.url, 20.0, kept=True) == (200, "ok")
        assert await getter.get(server.url, 20.0, kept=True) == (200, "ok")
        assert await getter.get(server.url, 20.0, kept=True) == (200, "ok")
        assert server.connections == 2
        getter.close()
        await server.ended.get()


async def test_an_answer_that_is_late_on_a_kept_connection_is_not_asked_for_again() -> None:
    getter, loop = Getter(), asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/m"
        async with asyncio.timeout(60.0):
            first = loop.create_task(getter.get(url, 20.0, kept=True))
            connection = (await loop.sock_accept(listening))[0]
            await loop.sock_recv(connection, 4096)
            await loop.sock_sendall(connection, PLAIN)
            assert await first == (200, "ok")
            with pytest.raises(TimeoutError):
                await getter.get(url, 0.01, kept=True)
            assert await loop.sock_recv(connection, 4096) != b"", "it was asked over the same connection"
            assert await loop.sock_recv(connection, 4096) == b"", "which is closed then"
        connection.close()
        with pytest.raises(BlockingIOError):
            listening.accept()
    getter.close()


async def test_requests_at_the_same_time_have_a_connection_each() -> None:
    getter = Getter()
    async with says(PLAIN) as server:
        await asyncio.gather(*(getter.get(server.url, 20.0, kept=True) for _ in range(3)))
        assert server.connections == 3
        await getter.get(server.url, 20.0, kept=True)
        assert server.connections == 3
        getter.close()


async def test_what_was_said_without_a_request_is_no_answer_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_get, "KEPT_S", 3600.0)
    getter, asked_once = Getter(), asyncio.Event()
    async with says(PLAIN, after=asked_once) as server:
        for number in (1, 2):
            asked_once.clear()
            assert await getter.get(server.url, 20.0, kept=True) == (200, "ok")
            assert server.connections == number
            asked_once.set()  # the server says the same once more
            async with asyncio.timeout(60.0):
                await server.ended.get()


async def test_a_connection_that_is_not_used_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "KEPT_S", 0.0)
    getter = Getter()
    async with says(PLAIN) as server:
        await getter.get(server.url, 20.0, kept=True)
        await getter.get(server.url, 20.0, kept=True)
        assert server.connections == 2
        for _ in range(2):
            async with asyncio.timeout(60.0):
                await server.ended.get()


async def test_an_answer_that_came_while_the_loop_was_busy_is_not_that_to_the_next_request() -> None:
    getter, loop = Getter(), asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/m"

        async def answered(body: bytes) -> socket.socket:
            connection = (await loop.sock_accept(listening))[0]
            await loop.sock_recv(connection, 4096)
            await loop.sock_sendall(connection, PLAIN.replace(b"ok", body))
            return connection

        async with asyncio.timeout(60.0):
            first, said = await asyncio.gather(answered(b"ok"), getter.get(url, 20.0, kept=True))
            first.send(PLAIN.replace(b"ok", b"no"))  # nobody has asked, and the loop has not seen it yet
            again = loop.create_task(answered(b"ja"))
            assert (said, await getter.get(url, 20.0, kept=True)) == ((200, "ok"), (200, "ja"))
            (await again).close()
            first.close()
    getter.close()


# -- what a general client asks

GZIP = gzip.compress(b"a \xff\n")
UNUSUAL = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(GZIP), GZIP)


async def test_what_only_a_general_client_knows_is_asked_twice_once() -> None:
    http = Http()
    async with says(UNUSUAL) as server:
        for requests in (2, 3, 4):
            assert await http.poll(server.url, 20.0, kept=True) == (200, "a \ufffd\n")
            assert len(server.requests) == requests
    await http.close()


async def test_a_general_client_has_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    http, had = Http(), []

    async def get(_url: str, timeout: float, **_: object) -> tuple[int, str]:
        had.append(timeout)
        return 200, ""

    monkeypatch.setattr(http, "get", get)
    async with says(UNUSUAL) as server:
        await http.poll(server.url, 20.0)
    with pytest.raises(TimeoutError):
        await http.poll(server.url, 0.0)
    assert len(had) == 1 and 0 < had[0] < 20.0


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=hex\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: http://" + b"a" * 80 + b".x/\r\n\r\n",
    ],
)
async def test_an_answer_that_no_client_understands_is_none(answer: bytes) -> None:
    http = Http()
    async with says(answer) as server:
        with pytest.raises(OSError, match=r"codec|encoding"):
            await http.poll(server.url, 20.0)
    await http.close()
