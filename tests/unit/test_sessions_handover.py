"""Connections that go from one process to the one that has the session of their next request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from liverl.sessions import handover
from liverl.sessions.handover import INLINE, Handover
from liverl.sessions.shares import Share, owner, session_in, session_in_head
from liverl.util.deadline import within
from liverl.util.http_limits import Limits
from liverl.util.http_server import Caller, HttpServer, refused

OF = 2
LONG = 16 << 20  # bytes: more than sockets hold
LIMITS = Limits(connections=64, unproven=64, per_peer=64, per_key=16, max_body=1 << 20)
FIRST, SECOND = (next(f"s{n}" for n in range(99) if owner(f"s{n}", OF) == k) for k in range(OF))


class Process:
    """What one process has, in this one: it answers with its own number, and with what it was sent."""

    def __init__(self, number: int, receiving: socket.socket, sending: dict[int, socket.socket]) -> None:
        self.share = Share(number, OF)
        self.handover = Handover(receiving, sending)
        self.passed = 0
        app = web.Application(client_max_size=1 << 20)
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self.server = HttpServer(
            app, self._gate, max_body=1 << 20, limits=LIMITS, shutdown_timeout=0.1, elsewhere=self._elsewhere
        )

    def _gate(self, request: web.BaseRequest) -> Caller | web.Response:
        name = session_in(request.rel_url.parts)
        if name is None or self.share.has(name):
            return Caller(key=name or "")
        return refused(503, "another process has it", retry_after=0)

    def _elsewhere(self, sock: Any, received: bytes) -> bool:
        name = session_in_head(received)
        if name is None or self.share.has(name):
            return False
        self.passed += 1
        self.handover.send(owner(name, OF), sock, received)
        return True

    async def _answer(self, request: web.Request) -> web.Response:
        if "unread" in request.query:
            return web.Response(text="not read")
        body = await request.read()
        if "long" in request.query:
            return web.Response(body=bytes(LONG))
        if "then" in request.query:
            # What comes between the end of this request and the beginning of the next one, which is here already
            guarded = self.server._known[request.transport]
            asyncio.get_running_loop().call_soon(guarded.data_received, request.query["then"].encode())
        return web.Response(text=f"{self.share.number} {request.path} {len(body)} {hash(body)}")


def _unread(process: Process) -> bool:
    return any(
        each.connection is not None and each.connection.unread() for each in process.server._known.values()
    )


@pytest.fixture
async def processes() -> AsyncIterator[tuple[int, list[Process]]]:
    pairs = [handover.pair() for _ in range(OF)]
    made = [Process(k, pairs[k][0], {1 - k: pairs[1 - k][1]}) for k in range(OF)]
    port = await made[0].server.listen("127.0.0.1")
    await made[1].server.listen("127.0.0.1")
    for each in made:
        each.handover.listen(each.server.take_over)
    yield port, made
    for each in made:
        each.handover.close()
        await each.server.close()
    for one, other in pairs:
        one.close()
        other.close()


def head(session: str, length: int = 0, more: str = "", query: str = "") -> bytes:
    line = f"POST /sess/{session}/v1{query} HTTP/1.1"
    return f"{line}\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n".encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    lines = (await within(reader.readuntil(b"\r\n\r\n"), 60)).decode().lower()
    length = int(lines.partition("content-length: ")[2].split("\r\n")[0])
    return int(lines.split()[1]), (await within(reader.readexactly(length), 60)).decode()


async def test_a_connection_goes_where_its_next_request_belongs(processes: Any) -> None:
    port, (first, second) = processes
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
        for turn in range(40):
            name = (FIRST, SECOND, SECOND, "")[turn % 4]
            path, number = (f"/sess/{name}/v1", owner(name, OF)) if name else ("/health", 1)
            body = bytes([turn]) * (turn * 5000)
            async with http.post(f"http://127.0.0.1:{port}{path}", data=body) as response:
                assert response.status == 200
                assert await response.text() == f"{number} {path} {len(body)} {hash(body)}"
    assert (first.passed, second.passed) == (10, 9), "one connection, passed on when it had to be"


@pytest.mark.parametrize("size", [0, 10, INLINE, 3 * INLINE, 1 << 20])
@pytest.mark.parametrize("before", [False, True])
async def test_no_byte_of_a_request_is_lost_on_its_way(processes: Any, size: int, before: bool) -> None:
    """Whatever has arrived when its session is known; ``before``: a request of the first process came before."""
    port, _ = processes
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if before:
        writer.write(head(FIRST))
        assert (await answer(reader))[1].startswith("0 ")
    body = b"x" * size
    writer.write(head(SECOND, size) + body)
    assert await answer(reader) == (200, f"1 /sess/{SECOND}/v1 {size} {hash(body)}")
    writer.close()


@pytest.mark.parametrize("session", [FIRST, SECOND])
async def test_a_head_may_come_byte_by_byte(processes: Any, session: str) -> None:
    port, _ = processes
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        for byte in head(session, 3, "X-More: yes\r\n") + b"abc":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        status, text = await answer(reader)
        assert (status, text) == (200, f"{owner(session, OF)} /sess/{session}/v1 3 {hash(b'abc')}")
    writer.close()


async def test_requests_that_are_sent_at_once_are_answered_or_sent_again(processes: Any) -> None:
    """The second one of two goes on only if it is for the same process: the first was not answered yet."""
    port, _ = processes
    for names, statuses in (((SECOND, SECOND), [200, 200]), ((FIRST, FIRST), [200, 200]),
                            ((FIRST, SECOND), [200, 503])):  # fmt: skip
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(head(name, 4) + b"body" for name in names))
        assert [(await answer(reader))[0] for _ in names] == statuses
        writer.close()


async def test_the_rest_of_a_body_that_was_not_awaited_is_no_request(processes: Any) -> None:
    """Its bytes look like a request for the other process."""
    port, (first, _) = processes
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = head(SECOND)
    writer.write(head(FIRST, 2 * len(body)))
    await writer.drain()
    for _ in range(2):
        await asyncio.sleep(0)
        writer.write(body)
        await writer.drain()
    assert (await answer(reader))[1] == f"0 /sess/{FIRST}/v1 {2 * len(body)} {hash(2 * body)}"
    assert first.passed == 0
    writer.close()


async def test_behind_an_answer_to_half_a_body_the_connection_ends(processes: Any) -> None:
    port, (first, _) = processes
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = head(SECOND)
    writer.write(head(FIRST, 2 * len(body), query="?unread") + body)
    assert "connection: close" in (await within(reader.readuntil(b"\r\n\r\n"), 60)).decode().lower()
    writer.write(body + head(SECOND))
    assert await within(reader.read(), 60) == b"not read"
    assert first.passed == 0
    writer.close()


@pytest.mark.parametrize("cut", [1, 2, 3, 16])
async def test_empty_lines_and_parts_of_a_head_decide_nothing(processes: Any, cut: int) -> None:
    """Behind an answer, to a client that waits for each one."""
    port, (first, second) = processes
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for turn, name in enumerate((FIRST, SECOND, FIRST, SECOND)):
        data = b"\r\n" * bool(turn) + head(name, 2) + b"ab"
        writer.write(data[:cut])
        for each in (first, second):
            while _unread(each):  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.write(data[cut:])
        assert await answer(reader) == (200, f"{owner(name, OF)} /sess/{name}/v1 2 {hash(b'ab')}")
    writer.close()


async def test_of_a_client_that_does_not_read_little_is_held(processes: Any) -> None:
    """It sends on and on behind a request whose response it leaves."""
    port, (first, second) = processes
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(head(FIRST, query="?long"))
    await reader.readuntil(b"\r\n\r\n")
    known = next(iter({**first.server._known, **second.server._known}.values()))
    while not known._answered:  # noqa: ASYNC110 - nothing says so
        await asyncio.sleep(0)
    block = bytes(1 << 16)
    writer.write(head(SECOND, 1 << 20) + block * 16)
    while not known._paused:  # noqa: ASYNC110 - nothing says so
        await asyncio.sleep(0)
    assert len(known._held) < 1 << 19
    assert len(await within(reader.readexactly(LONG), 60)) == LONG
    assert (await answer(reader))[1] == f"1 /sess/{SECOND}/v1 {1 << 20} {hash(bytes(1 << 20))}"
    writer.close()


async def test_a_connection_does_not_go_before_its_response_has_gone(processes: Any) -> None:
    """The client asks for a session of the other process before it reads a long response."""
    port, (first, _) = processes
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(FIRST, query="?long"))
    await reader.readuntil(b"\r\n\r\n")
    writer.write(head(SECOND))
    assert len(await within(reader.readexactly(LONG), 60)) == LONG
    assert (await answer(reader))[1].startswith("1 ")
    assert first.passed == 1
    writer.close()


async def test_a_body_that_comes_between_two_requests_belongs_to_the_second(processes: Any) -> None:
    port, (first, _) = processes
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = head(SECOND)
    query = URL.build(path="/", query={"then": body.decode()}).raw_query_string
    writer.write(head(FIRST, query=f"?{query}") + head(FIRST, len(body)))
    assert (await answer(reader))[0] == 200
    assert (await answer(reader))[1] == f"0 /sess/{FIRST}/v1 {len(body)} {hash(body)}"
    assert first.passed == 0
    writer.close()


async def test_what_waits_for_a_process_is_there_when_it_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """More than fits into the buffer; nobody receives until all were sent."""
    receiving, sending = handover.pair()
    sender, taken = Handover(receiving, {1: sending}), list[bytes]()
    ours, theirs = socket.socketpair()
    count = 600
    for number in range(count):
        sender.send(1, ours, str(number).encode() * 300)
    assert 0 < len(sender._waiting[1]) < count, "some in the buffer of the socket, the others here"
    done = asyncio.Event()

    async def take(sock: socket.socket, received: bytes) -> None:
        taken.append(received)
        sock.close()
        if len(taken) == count:
            done.set()

    receiver = Handover(receiving, {})
    receiver.listen(take)
    await within(done.wait(), 60)
    assert taken == [str(number).encode() * 300 for number in range(count)]
    receiver.close()
    assert (sender._bytes[1], caplog.records) == (0, [])
    while not sender._waiting[1]:
        sender.send(1, ours, b"x" * 1000)
    monkeypatch.setattr(handover, "MOST_BYTES", 2999)
    for _ in range(3):
        sender.send(1, ours, b"x" * 1000)
    assert (len(sender._waiting[1]), caplog.text.count("too many connections wait for process 2")) == (2, 2)
    monkeypatch.setattr(handover, "MOST_WAITING", 2)
    sender.send(1, ours, b"one too many")
    assert (len(sender._waiting[1]), caplog.text.count("too many connections wait for process 2")) == (2, 3)
    sender.close()
    for each in (ours, receiving, sending):
        each.close()
    theirs.settimeout(60)
    assert theirs.recv(1) == b"", "its client asks again: nothing holds the connection any more"
    assert (sender._bytes[1], len(sender._waiting[1])) == (0, 0)
    theirs.close()


async def test_one_connection_is_passed_on_however_much_was_read_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit is for what waits: of one that is larger by itself, nothing would ever be answered."""
    monkeypatch.setattr(handover, "MOST_BYTES", 100)
    receiving, sending = handover.pair()
    ours, theirs = socket.socketpair()
    sender, receiver = Handover(receiving, {1: sending}), Handover(receiving, {})
    taken: asyncio.Queue[tuple[socket.socket, bytes]] = asyncio.Queue()

    async def take(sock: socket.socket, received: bytes) -> None:
        taken.put_nowait((sock, received))

    sender.send(1, ours, b"x" * 101)
    receiver.listen(take)
    sock, received = await within(taken.get(), 60)
    assert (len(received), caplog.text) == (101, "")
    sock.sendall(b"answer")
    assert theirs.recv(6) == b"answer"
    receiver.close()
    sender.close()
    for each in (sock, ours, theirs, receiving, sending):
        each.close()
