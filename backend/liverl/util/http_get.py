"""GET over HTTP/1.1 for who asks the same servers every second: for a third of the CPU of aiohttp, which a run of many
replicas would otherwise spend most of its own on.

It asks addresses, not names, and knows what servers of metrics and health answer: a body with its length, in chunks,
or up to the end of the connection. Of everything else (redirects, compressed bodies, other encodings, what breaks the
rules) it says ``UnusualError``: then a general client is to ask. No proxy of the environment is used.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

KEPT_S = 4.0  # seconds for which an unused connection is kept: less than servers do (uvicorn: 5)
_LARGEST_HEAD = 64 << 10  # bytes
_LONGEST_LINE = 1 << 10  # bytes of the line before a chunk
_MOST = 64 << 20  # bytes of a body
_TOO_LONG = f"an answer of more than {_MOST >> 20} MiB"
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?")
_HEADER = re.compile(rb"([\w!#$%&'*+.^`|~-]+):[ \t]*([^\r\n]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_TARGET = re.compile(r"[!-~]+")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class UnusualError(Exception):
    """A request, or an answer, that only a general client knows."""


class _Head(NamedTuple):
    """``length``: of the body in bytes; None: it is in chunks, or ends with the connection. ``keeps``: whether the
    server keeps the connection."""

    status: int
    length: int | None
    chunked: bool
    keeps: bool


def _head_of(data: bytes) -> _Head:
    first, *lines = data.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise UnusualError("no status line of HTTP/1")
    code, keeps, length, chunked = int(status[2]), status[1] == b"1", None, False
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise UnusualError("a header without a name")
        name, value = header[1].lower(), header[2].lower()
        if name == b"content-length":
            if length is not None or not value.isdigit() or len(value) > 18:
                raise UnusualError("the length of the body")
            length = int(value)
        elif name == b"transfer-encoding":
            if chunked or value != b"chunked":
                raise UnusualError("the encoding of the body")
            chunked = True
        elif name == b"connection":
            keeps = keeps and value == b"keep-alive"
        elif name == b"content-encoding" or (name == b"content-type" and _other_charset(value)):
            raise UnusualError("the encoding of the body")
    if not 200 <= code < 600 or 300 <= code < 400:
        raise UnusualError(f"status {code}")
    if chunked and length is not None:
        raise UnusualError("the length of the body")
    if (length or 0) > _MOST:
        raise OSError(_TOO_LONG)
    if code == 204:
        return _Head(code, 0, False, keeps)
    return _Head(code, length, chunked, keeps and (chunked or length is not None))


def _other_charset(content_type: bytes) -> bool:
    _, given, charset = content_type.partition(b"charset=")
    return bool(given) and charset.strip(b'" ') not in (b"utf-8", b"us-ascii")


class _Connection:
    """One connection, with one request at a time: a socket without a transport, which would ask the kernel twice as
    often."""

    def __init__(self, loop: asyncio.AbstractEventLoop, place: _Place, buffer: memoryview) -> None:
        """Begins to connect. ``buffer``: for what is received, until it is taken.

        Raises:
            OSError: that fails at once.
        """
        self.used_at = 0.0  # seconds of the loop's clock at which its last answer was complete
        self.heard = False  # something of an answer has arrived
        self.keeps = False  # a further request may be sent
        self._loop, self._buffer = loop, buffer
        self._answer: asyncio.Future[tuple[int, str]] | None = None
        self._forget()
        self._socket = socket.socket(place.family, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            with suppress(BlockingIOError):
                self._socket.connect((place.host, place.port))
        except BaseException:
            self._socket.close()
            raise
        self._fd = self._socket.fileno()

    def _forget(self) -> None:
        self._data, self._at = bytearray(), 0
        self._head: _Head | None = None
        self._chunks: list[bytes] = []

    async def ask(self, request: bytes, end: float) -> tuple[int, str]:
        """Send a request; returns the status and the body of its answer. ``end``: time of the loop's clock from which
        on an answer is too late.

        Raises:
            OSError, TimeoutError, UnusualError: see ``Getter.get``.
        """
        loop, fresh = self._loop, not self.used_at
        self.heard = self.keeps = False
        try:
            sent = self._socket.send(request)  # on this host a connection is made at once
        except BlockingIOError:
            sent = 0
        if sent < len(request):
            async with asyncio.timeout_at(end):
                await self._writable()
                await loop.sock_sendall(self._socket, request[sent:])
        self._answer = loop.create_future()
        if fresh:
            loop.add_reader(self._fd, self._read)
        late = loop.call_at(end, self._late)  # for half of what ``asyncio.timeout`` takes
        try:
            return await self._answer
        finally:
            late.cancel()

    def _late(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._fail(TimeoutError())

    async def _writable(self) -> None:
        """Wait until the connection is made. Raises OSError."""
        ready = asyncio.Event()
        self._loop.add_writer(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_writer(self._fd)
        if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))

    def quiet(self) -> bool:
        """Whether nothing has come since the last answer. What has come and was not read yet, as the loop was busy,
        would be taken for the answer to the next request; it may be the end of the connection, too."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self.keeps, self._answer = False, None
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._socket.close()
            self._fd = -1

    def _read(self) -> None:
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        if size == 0:
            self._lost(None)
        elif self._answer is None or self._answer.done():
            self.close()  # nobody has asked for it
        else:
            self.heard = True
            self._data += self._buffer[:size]
            try:
                body = self._body()
            except (UnusualError, OSError) as error:
                self._fail(error)
            else:
                if body is not None:
                    self._done(body)

    def _lost(self, error: OSError | None) -> None:
        """The connection has ended."""
        head = self._head
        if self._answer is None or self._answer.done():
            self.close()
        elif error is None and head is not None and head.length is None and not head.chunked:
            self._done(self._data[self._at :])
        else:
            self._fail(error or ConnectionResetError("the server closed the connection"))

    # -- the answer

    def _body(self) -> bytes | bytearray | None:
        """The body, once it is complete."""
        data = self._data
        if self._head is None:
            end = data.find(b"\r\n\r\n", 0, _LARGEST_HEAD)
            if end < 0:
                if len(data) >= _LARGEST_HEAD:
                    raise UnusualError("a head that is too long")
                return None
            self._head, self._at = _head_of(bytes(data[:end])), end + 4
        if len(data) > _MOST:
            raise OSError(_TOO_LONG)  # a general client would read on
        if self._head.chunked:
            return self._chunked()
        length = self._head.length
        if length is None or len(data) - self._at < length:
            return None
        if len(data) - self._at > length:
            raise UnusualError("more than its length says")
        return data[self._at :]

    def _chunked(self) -> bytes | None:
        data = self._data
        while (end := data.find(b"\r\n", self._at, self._at + _LONGEST_LINE)) >= 0:
            line = _CHUNK.fullmatch(data, self._at, end)
            if line is None:
                raise UnusualError("a chunk without a length")
            begin, size = end + 2, int(line[1], 16)
            if size == 0:
                stop = data.find(b"\r\n\r\n", end)  # behind trailers
                if stop >= 0 and stop + 4 != len(data):
                    raise UnusualError("more than its chunks")
                return None if stop < 0 else b"".join(self._chunks)
            if len(data) < begin + size + 2:
                return None
            if data[begin + size : begin + size + 2] != b"\r\n":
                raise UnusualError("a chunk of another length")
            self._chunks.append(bytes(data[begin : begin + size]))
            self._at = begin + size + 2
        if len(data) - self._at >= _LONGEST_LINE:
            raise UnusualError("a chunk without a length")
        return None

    def _done(self, body: bytes | bytearray) -> None:
        assert self._answer is not None and self._head is not None
        self.keeps = self._head.keeps
        self.used_at = self._loop.time()
        self._answer.set_result((self._head.status, body.decode("utf-8", "replace")))
        self._forget()

    def _fail(self, error: Exception) -> None:
        assert self._answer is not None
        self._answer.set_exception(error)
        self.close()


class _Place(NamedTuple):
    """``target``: of the request, a path with its query."""

    family: socket.AddressFamily
    host: str
    port: int
    name: str
    target: str


@functools.lru_cache(1024)
def _place_of(url: str) -> _Place:
    try:
        parts = urlsplit(url)
        port, address = parts.port or 80, ip_address(parts.hostname or "")
    except ValueError as error:
        raise UnusualError(f"the address {url}") from error
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme != "http" or "@" in parts.netloc or not _TARGET.fullmatch(parts.netloc + target):
        raise UnusualError(f"the address {url}")
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return _Place(family, str(address), port, parts.netloc, target)


@functools.lru_cache(1024)
def _request(place: _Place, headers: tuple[tuple[str, str], ...], kept: bool) -> bytes:
    lines = [f"GET {place.target} HTTP/1.1", f"Host: {place.name}", "Accept: */*"]
    for name, value in headers:
        if not _HEADER.fullmatch(f"{name}:".encode()) or not _VALUE.fullmatch(value):
            raise UnusualError(f"the header {name}")
        lines.append(f"{name}: {value}")
    if not kept:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Getter:
    """Asks servers, on one event loop. A connection of a request that is ``kept`` serves the next one to its server."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], _Connection] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._buffer = memoryview(bytearray(1 << 17))  # one for all: a new one for each answer costs more

    async def get(
        self, url: str, seconds: float, headers: Mapping[str, str] | None = None, *, kept: bool = False
    ) -> tuple[int, str]:
        """GET ``url``; returns (status, body). ``seconds``: for the whole request. ``kept``: over the connection of the
        request before, unless that was unused for longer than ``KEPT_S``.

        Raises:
            OSError, TimeoutError: no answer.
            UnusualError: only a general client can ask this, or knows what was answered.
        """
        place, loop = _place_of(url), asyncio.get_running_loop()
        request = _request(place, tuple((headers or {}).items()), kept)
        end = loop.time() + seconds
        connection = self._take(place) if kept else None
        if connection is not None:
            try:
                return await self._ask(connection, place, request, kept, end)
            except OSError:
                if connection.heard or loop.time() >= end:
                    raise
                # else the server had closed it
        return await self._ask(_Connection(loop, place, self._buffer), place, request, kept, end)

    async def _ask(
        self, connection: _Connection, place: _Place, request: bytes, kept: bool, end: float
    ) -> tuple[int, str]:
        key = (place.host, place.port)
        try:
            return await connection.ask(request, end)
        finally:
            if kept and connection.keeps and key not in self._kept:
                self._kept[key] = connection
                self._sweep_later()
            else:
                connection.close()

    def _take(self, place: _Place) -> _Connection | None:
        connection = self._kept.pop((place.host, place.port), None)
        if connection is None:
            return None
        unused = asyncio.get_running_loop().time() - connection.used_at
        if connection.keeps and unused < KEPT_S and connection.quiet():
            return connection
        connection.close()
        return None

    def _sweep_later(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEPT_S, self._close_unused)

    def _close_unused(self) -> None:
        """Close what nobody has used, as that of a replica that is gone."""
        self._sweep = None
        now = asyncio.get_running_loop().time()
        for key, connection in list(self._kept.items()):
            if not connection.keeps or now - connection.used_at >= KEPT_S:
                connection.close()
                del self._kept[key]
        if self._kept:
            self._sweep_later()

    def close(self) -> None:
        """Close the connections that are kept."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._kept:
            self._kept.popitem()[1].close()
