"""The client by which sessions ask replicas, before servers that answer in every way that HTTP/1.1 allows, and in some
that it does not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator

import pytest
from kit.waiting import until

from liverl.sessions.replica_connection import LONGEST_HEAD, BrokenOff, read_head
from liverl.sessions.replica_http import ReplicaHttp, Unreachable

OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers each request with the next of ``answers`` (None: the connection is closed; b"": never)."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = self.closed = 0
        self.root = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                self.bodies.append(await reader.readexactly(int(length or 0)))
                self.heads.append(head)
                answer = self.answers.pop(0)
                if answer is None:
                    return
                for part in answer.split(b"|"):  # one packet each
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
                if b"\r\n" in answer and not any(
                    word in answer.lower() for word in (b"content-length", b"chunked", b" 204 ")
                ):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed += 1
            writer.close()


@contextlib.asynccontextmanager
async def serving(server: Server, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    listening = await asyncio.start_server(server.serve, host, 0)
    server.root = f"http://{host}:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
        await until(lambda: server.closed == server.connections)
    finally:
        listening.close()


@pytest.mark.parametrize(
    ("answer", "status", "content", "kept"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello", 200, b"hello", True),
        (OK + b"content-length:5 \r\n\r\nhello", 200, b"hello", True),
        (b"H|TTP/1.1 200\r|\nContent-Length: 5\r\n\r|\nhel|lo", 200, b"hello", True),
        (OK + b"Content-Length: 0\r\n\r\n", 200, b"", True),
        (OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r|\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
            200,
            b"hello",
            True,
        ),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n|\r\n", 200, b"0123456789", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok", 200, b"ok", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", 503, b"busy", False),
        (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
        (OK + b"\r\nto the e|nd", 200, b"to the end", False),
        (OK + b"Content-Length: 2\r\n\r\nok and more", 200, b"ok", False),
    ],
)
async def test_answers_are_read_and_their_connections_kept(
    answer: bytes, status: int, content: bytes, kept: bool
) -> None:
    following = OK + b"Content-Length: 3\r\n\r\ntwo"
    async with serving(Server(answer, following)) as server, ReplicaHttp() as http:
        assert await http.ask("POST", server.root, "/a", {"X-B": "c"}, b"body") == (status, content)
        assert await http.ask("GET", server.root + "/", "/b") == (200, b"two")
    assert server.connections == (1 if kept else 2)
    first, second = server.heads
    assert first.startswith(b"POST /a HTTP/1.1\r\nHost: 127.0.0.1:") and b"\r\nX-B: c\r\n" in first
    assert server.bodies == [b"body", b""]
    assert second.startswith(b"GET /b HTTP/1.1\r\n") and b"Content-Length" not in second


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"nonsense\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"HTTP/1.1 -20 x\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: 5, 5\r\n\r\nhello",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
        OK + b"no colon\r\nContent-Length: 0\r\n\r\n",
        OK + b"Content-Length : 0\r\n\r\n",
        OK + b"X: " + b"y" * LONGEST_HEAD + b"\r\nContent-Length: 0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * (LONGEST_HEAD + 1),
    ],
)
async def test_what_is_no_answer_breaks_off(answer: bytes | None) -> None:
    async with serving(Server(answer)) as server, ReplicaHttp(60.0) as http:
        with pytest.raises(BrokenOff):
            await http.ask("POST", server.root, "/", data=b"x")
        await until(lambda: server.closed == 1)


async def test_an_answer_that_is_cut_breaks_off() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: 5\r\n\r\nhel")
        writer.close()

    listening = await asyncio.start_server(cut, "127.0.0.1", 0)
    async with ReplicaHttp(60.0) as http:
        with pytest.raises(BrokenOff):
            await http.ask("GET", f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", "/")
    listening.close()


@pytest.mark.parametrize(
    "root",
    ["http://127.0.0.1:1", "127.0.0.1:1", "ftp://x", "http://", "http://x:y", "http://[::1", "http://a..b"],
)
async def test_where_nobody_listens_no_connection_is_made(root: str) -> None:
    async with ReplicaHttp() as http:
        with pytest.raises(Unreachable):
            await http.ask("GET", root, "/")


async def test_a_name_is_looked_up_once_and_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Server(*[None] * 4)) as server, ReplicaHttp() as http:
        loop, asked = asyncio.get_running_loop(), 0
        port = int(server.root.rpartition(":")[2])

        async def looked_up(host: str, port: int, **_: object) -> list[object]:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)
            if asked == 1:
                raise OSError("no such name")
            return [(2, 1, 6, "", ("127.0.0.2", 1)), (2, 1, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", looked_up)
        root = f"http://replica.test:{port}"
        with pytest.raises(Unreachable):
            await http.ask("GET", root, "/")
        results = await asyncio.gather(
            *(http.ask("GET", root, "/") for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in results] == [BrokenOff] * 3
        assert asked == 2
        assert server.heads[0].count(b"Host: replica.test:") == 1


async def test_a_request_that_is_late_or_cancelled_ends_its_connection() -> None:
    async with serving(Server(b"", b"")) as server, ReplicaHttp(60.0) as http:
        with pytest.raises(asyncio.TimeoutError):
            await http.ask("GET", server.root, "/", seconds=0.05)
        await until(lambda: server.closed == 1)
        asking = asyncio.ensure_future(http.ask("GET", server.root, "/"))
        await until(lambda: len(server.heads) == 2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: server.closed == 2)
    assert server.connections == 2


@pytest.mark.parametrize("closing", ["old", "swept", "closed"])
async def test_idle_connections_do_not_stay(closing: str) -> None:
    answer = OK + b"Content-Length: 0\r\n\r\n"
    async with serving(Server(answer, answer)) as server:
        http = ReplicaHttp(keepalive=0.0 if closing == "old" else 0.05 if closing == "swept" else 60.0)
        await http.ask("GET", server.root, "/")
        if closing == "closed":
            http.close()
        if closing != "old":
            await until(lambda: server.closed == 1)
        await http.ask("GET", server.root, "/")
        assert server.connections == 2
        if closing == "closed":
            await until(lambda: server.closed == 2)
        http.close()


@pytest.mark.parametrize("behind", ["closed", "more"])
async def test_a_connection_at_which_something_waits_is_not_used_again(behind: str) -> None:
    """Its end or a second answer may have come while the loop was busy: the request would be lost, or get that one."""
    answer = OK + b"Content-Length: 2\r\n\r\nok"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        root = f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.settimeout(10.0)  # for a client that asks no second time
        loop = asyncio.get_running_loop()

        def serve() -> socket.socket:
            one = listening.accept()[0]
            one.recv(1 << 16)
            one.sendall(answer)
            return one

        async with ReplicaHttp(60.0) as http:
            asking = asyncio.ensure_future(http.ask("POST", root, "/"))
            one = await loop.run_in_executor(None, serve)
            await asking
            two = loop.run_in_executor(None, serve)
            if behind == "more":
                one.sendall(OK + b"Content-Length: 3\r\n\r\nold")
            else:
                one.close()
            # The loop has not looked since.
            assert await http.ask("POST", root, "/") == (200, b"ok")
            (await two).close()
            one.close()


async def test_an_error_keeps_no_body_until_cycles_are_searched_for() -> None:
    async with serving(Server(None, None)) as server, ReplicaHttp(60.0) as http:
        gc.collect()
        gc.disable()
        try:
            for root in (server.root, server.root, "http://127.0.0.1:1"):
                with contextlib.suppress(BrokenOff, Unreachable):
                    await http.ask("POST", root, "/", data=b"x")
            await until(lambda: server.closed == 2)
            assert not [each for each in gc.get_objects() if isinstance(each, (BrokenOff, Unreachable))]
        finally:
            gc.enable()


async def test_a_large_body_is_sent_whole() -> None:
    body = b"0123456789abcdef" * 100_000
    async with serving(Server(OK + b"Content-Length: 0\r\n\r\n")) as server, ReplicaHttp() as http:
        await http.ask("POST", server.root, "/", data=body)
    assert server.bodies == [body]


async def test_a_head_has_no_line_that_somebody_put_into_it() -> None:
    async with serving(Server(None)) as server, ReplicaHttp() as http:
        with pytest.raises(ValueError, match="line break"):
            await http.ask("GET", server.root, "/", {"Authorization": "Bearer x\r\nHost: y"})
    assert not server.heads


def test_a_head_says_where_its_body_ends() -> None:
    assert read_head(b"HTTP/1.1 200 OK\r\nContent-Length: 3").length == 3
    with pytest.raises(ValueError, match="does not say where its body ends"):
        read_head(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked")
