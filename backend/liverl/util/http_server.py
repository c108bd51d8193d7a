"""Serves an application of aiohttp under the rules of ``http_limits``: each HTTP server of ours that is not LiteLLM's.

Nobody without a key can take the server away from those who have one. Who sends a request is decided on its head alone
(``Gate``): before its route, before a client that asks ``Expect: 100-continue`` is told to go on, and before its body.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.http_exceptions import HttpProcessingError

from liverl.util.descriptors import descriptor_limit, open_descriptors, unread
from liverl.util.http_limits import HTTP, OF_KEY, Connection, Connections, Limits, limits_for

logger = logging.getLogger(__name__)


def _is_no_clients_fault(record: logging.LogRecord) -> bool:
    """Whether an exception is worth its stack: aiohttp logs one for each request that is no HTTP, or whose client left
    in the middle of it, and clients can send as many as they like. The access log has these with their status."""
    raised = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return not isinstance(raised, (HttpProcessingError, ConnectionError))


logger.addFilter(_is_no_clients_fault)

TICK_S = 1.0  # seconds between two looks at connections whose time is over
WAITING = 1024  # connections that wait in the kernel to be accepted
WRITE_BUFFER = 1 << 16  # bytes that are held for a client that does not read
_CLOSE = {"Connection": "close"}
# Bytes of the next request, held until the response before it has gone, from which the connection is read no further.
_MOST_HELD = 1 << 16
_HEAD_ENDS = b"\r\n\r\n"
_HEAD_HELD = 8 << 10  # bytes of a head that are held before aiohttp gets them; one line may have 8,190


class Caller(NamedTuple):
    """Who sends a request. ``proven``: with a valid key; ``key``: names one that a single client has, "" if many have
    it or the route needs none."""

    proven: bool = True
    key: str = ""


PUBLIC = Caller(proven=False)
# (socket of a connection between two requests, what has arrived of the next one) -> whether another process serves it
# from here on: then it has a descriptor of its own.
Elsewhere = Callable[[Any, bytes], bool]
# Raises nothing; a response is the refusal, behind which the connection is closed.
Gate = Callable[[web.BaseRequest], "Caller | web.Response"]


class BodyLate(asyncio.TimeoutError):
    """The body of a request did not come in time. A time-out, which aiohttp expects when it reads the rest of a body
    that its handler has left."""


class HttpServer:
    """One application, on one listening socket or several."""

    def __init__(
        self,
        app: web.Application,
        gate: Gate,
        *,
        max_body: int,
        limits: Limits | None = None,
        access_log: logging.Logger | None = None,
        access_log_class: type[AbstractAccessLogger] | None = None,
        shutdown_timeout: float = 60.0,
        handler_cancellation: bool = False,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """``max_body``: bytes of a request, which the application checks as well; ``limits``: None for those that fit
        the descriptors of this process; ``elsewhere``: asked with the head of each request, where several processes
        share the listening socket; the others as in ``web.AppRunner``."""
        more: dict[str, Any] = {} if access_log_class is None else {"access_log_class": access_log_class}
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            logger=logger,
            access_log=access_log,
            shutdown_timeout=shutdown_timeout,
            handler_cancellation=handler_cancellation,
            **more,
        )
        self._gate = gate
        self._elsewhere = elsewhere
        self._descriptors = descriptor_limit()
        self.limits = limits or limits_for(self._descriptors, max_body)
        self.connections = Connections(self.limits)
        self._known: dict[Any, _Guarded] = {}  # by transport
        self._shares: dict[str, _Share] = {}  # by key
        self._servers: list[asyncio.AbstractServer] = []
        self._ticks: asyncio.Task[None] | None = None
        self._handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None = None

    async def start(self, *socks: socket.socket) -> None:
        """Serve on bound sockets, which are closed at the end. Their connections share the limits.

        Raises:
            OSError: it cannot be listened on.
        """
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._handle = server.request_handler
        server.request_handler = self._guarded
        loop = asyncio.get_running_loop()
        # The event loop accepts as many at once as its backlog says, all before the first one is registered.
        for sock in socks:
            self._servers.append(
                await loop.create_server(lambda: _Guarded(server, self), sock=sock, backlog=HTTP.accepted)
            )
            sock.listen(WAITING)
        self._ticks = asyncio.ensure_future(self._tick())

    async def take_over(self, sock: socket.socket, received: bytes) -> None:
        """Serve a connection that another process has accepted. ``received``: what it has read of a request.

        Raises:
            OSError: it is gone.
        """
        server = self._runner.server
        if server is None:  # it has ended, or has not begun
            sock.close()
            return
        sock.setblocking(False)
        try:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: _Guarded(server, self, received), sock)
        except BaseException:
            sock.close()
            raise

    def leaves(self, transport: Any, received: bytes) -> bool:
        """Whether another process serves a connection from here on: see ``Elsewhere``."""
        return self._elsewhere is not None and self._elsewhere(transport.get_extra_info("socket"), received)

    @property
    def shared(self) -> bool:
        """Whether several processes share the listening socket."""
        return self._elsewhere is not None

    async def listen(self, host: str, port: int = 0) -> int:
        """Serve on a TCP port of ``host``, a free one for 0; return its number.

        Raises:
            OSError: the port cannot be used.
        """
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.setblocking(False)
            await self.start(sock)
        except BaseException:
            sock.close()
            raise
        return int(sock.getsockname()[1])

    def stop_accepting(self) -> None:
        """Accept no further connection; those that there are end with the request that they have."""
        for server in self._servers:
            server.close()
        if self._runner.server is not None:
            self._runner.server.pre_shutdown()
        self._leave_half_open()

    async def close(self) -> None:
        """Stop serving, after the time that open requests get."""
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # what has arrived is taken first
        self._leave_half_open()
        await self._runner.cleanup()
        if self._ticks is not None:
            self._ticks.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticks

    def _leave_half_open(self) -> None:
        for guarded in list(self._known.values()):
            guarded.leave_unless_begun()

    def facts(self) -> dict[str, Any]:
        """For a status display: see ``Connections.facts``; and the descriptors of this process."""
        return {
            **self.connections.facts(),
            "descriptors": open_descriptors(self._descriptors),
            "descriptor_limit": self._descriptors,
        }

    # -- connections

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(TICK_S, self.limits.head_timeout / 4, self.limits.body_timeout / 4))
            now = time.monotonic()
            self.connections.close_expired(now)
            for guarded in list(self._known.values()):
                guarded.give_up_late_body(now - self.limits.body_timeout)

    def opened(self, guarded: _Guarded, transport: Any) -> Connection:
        """A connection was accepted."""
        now = time.monotonic()
        peer = transport.get_extra_info("peername")
        connection = Connection(
            peer=str(peer[0]) if isinstance(peer, tuple) else "",
            close=lambda abort: transport.abort() if abort else transport.close(),
            unread=lambda: unread(transport),
            last_active=now,
        )
        self._known[transport] = guarded
        self.connections.opened(connection, now)
        return connection

    def lost(self, transport: Any, connection: Connection) -> None:
        """A connection is gone."""
        self._known.pop(transport, None)
        self.connections.closed(connection)

    # -- requests

    async def _guarded(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._handle is not None
        guarded = self._known.get(request.transport)
        if guarded is None or guarded.connection is None:
            raise ConnectionResetError  # it is gone
        connection = guarded.connection
        connection.request_began()
        guarded.began(request)
        try:
            refusal = self._refusal(request, connection)
            if refusal is not None:
                return refusal
            async with self._share(request, guarded, connection.key):
                response = await self._handle(request)
            self._close_if_unread(request, response)
            return response
        except web.HTTPRequestEntityTooLarge as error:
            return refused(413, f"the request body is too large: {error.text}")
        except web.HTTPException as error:
            self._close_if_unread(request, error)
            raise
        except BodyLate:
            words = f"the request body did not arrive within {self.limits.body_timeout:g} s"
            return refused(408, words)
        finally:
            guarded.has_read(request)
            connection.request_ended(time.monotonic())

    def _close_if_unread(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Close the connection behind an answer to a request whose body has not come, where the next request may be for
        another process: where the body ends, only aiohttp knows."""
        if self.shared and not request.content.is_eof():
            response.force_close()

    def _refusal(self, request: web.BaseRequest, connection: Connection) -> web.Response | None:
        if tuple(request.version) not in HTTP.versions:
            version = f"{request.version.major}.{request.version.minor}"
            return refused(505, f"HTTP/{version} is not served here; use HTTP/1.1")
        caller = self._gate(request)
        if not isinstance(caller, Caller):
            caller.force_close()  # its body is not read, so nothing can follow on this connection
            return caller
        if not caller.proven and "Expect" in request.headers:
            response = refused(417, "a request without a key is not told to go on with its body")
            response.force_close()
            return response
        if caller.proven and not self.connections.proved(connection, caller.key):
            words = f"this key has {self.limits.per_key} connections, which is its share of all: {OF_KEY}"
            return refused(503, words, retry_after=2)
        length = request.content_length
        if length is not None and length > self.limits.max_body:
            words = f"the request body has {length:,} bytes, and {self.limits.max_body:,} are allowed"
            return refused(413, words)
        return None

    @contextlib.asynccontextmanager
    async def _share(self, request: web.BaseRequest, guarded: _Guarded, key: str) -> AsyncIterator[None]:
        """Wait for the turn of a request of this key: one in each round of the event loop, so that a thousand of one
        client do not hold it, and until the bodies that it has here leave room for one more."""
        if not key:
            guarded.reads(request)
            yield
            return
        share = self._shares.setdefault(key, _Share(HTTP.bodies_of_key * self.limits.max_body))
        share.users += 1
        try:
            await share.turn()
            length = request.content_length if request.body_exists else 0
            size = await share.take(self.limits.max_body if length is None else length)
            guarded.reads(request)
            try:
                # Only the end of such a body says how long it is.
                if length is None and "Expect" not in request.headers:
                    size = share.shrink(size, len(await request.read()))
                yield
            finally:
                share.give_back(size)
        finally:
            share.users -= 1
            if not share.users:
                self._shares.pop(key, None)


class _Share:
    """Bytes of bodies that one key may have here at the same time; the others wait, first come first served."""

    def __init__(self, most: int) -> None:
        self._left = self._most = most
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._turn = asyncio.Lock()
        self.users = 0  # requests that have to do with it

    async def turn(self) -> None:
        """Wait until the requests before this one have begun, each in a round of its own."""
        async with self._turn:
            await asyncio.sleep(0)

    async def take(self, size: int) -> int:
        """Wait for ``size`` bytes, or for all; return how many they are."""
        size = min(size, self._most)
        if not self._queue and size <= self._left:
            self._left -= size
            return size
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._left += size
            self._admit()
            raise
        return size

    def shrink(self, size: int, needed: int) -> int:
        """Give back what is not needed of ``size`` bytes; return how many are left."""
        self.give_back(max(0, size - needed))
        return min(size, needed)

    def give_back(self, size: int) -> None:
        """Others may have them."""
        self._left += size
        self._admit()

    def _admit(self) -> None:
        while self._queue and (self._queue[0][1].done() or self._queue[0][0] <= self._left):
            size, turn = self._queue.popleft()
            if not turn.done():
                self._left -= size
                turn.set_result(None)


class _Guarded(asyncio.Protocol):
    """Stands between a connection and aiohttp's protocol for it, and reports what happens on it. That protocol, with
    its parser and task, is made when the head of a request is there: a flood of half-open connections costs none."""

    def __init__(
        self, make: Callable[[], asyncio.Protocol], server: HttpServer, received: bytes | None = None
    ) -> None:
        """``received``: what another process has read of this connection, which is served here; None: accepted here."""
        self._make, self._server = make, server
        self._inner: Any = None
        self._held = b""  # what has arrived before that
        self._received = received
        self._transport: Any = None
        self.connection: Connection | None = None
        self._request: web.BaseRequest | None = None  # whose body may be still to come
        self._since = 0.0  # monotonic seconds: of its head
        # Whether the last request was answered and nothing was given to aiohttp since: the next one may be for another
        # process. Used only where several share the socket.
        self._answered = False
        self._head = 0  # bytes of the head of the request that aiohttp has, 0 if that is not known
        self._given = 0  # bytes that aiohttp got since the beginning of that head
        self._whole = True  # aiohttp has got no byte of the request after the answered one
        self._paused = False  # because much is held

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER)  # type: ignore[attr-defined]
        self.connection = self._server.opened(self, transport)
        if self._received is not None:
            received, self._received = self._received, None
            self.connection.received(time.monotonic(), received)
            if not transport.is_closing():
                self._held = received
                self._give()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.connection is not None:
            self._server.lost(self._transport, self.connection)
        self._held = b""
        self._answered = False
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self.connection is not None:
            self.connection.received(time.monotonic(), data)
        if self._inner is not None and not self._answered:
            self._deliver(data)
            return
        self._held += data
        self._go_on()
        if len(self._held) >= _MOST_HELD and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Decide who serves the request of which the beginning is held, as soon as that can be told. Called again when
        more arrives, when aiohttp waits for the next request, and when all of the response has gone."""
        if self._transport.is_closing() or not self._held:
            return
        if self._answered:
            waiter = getattr(self._inner, "_waiter", None)
            if waiter is None or waiter.done():
                return
            if self._transport.get_write_buffer_size():
                self._transport.set_write_buffer_limits(high=0)  # ``resume_writing`` is called at its end
                return
        if self._whole and not _head_end(self._held) and _may_become_head(self._held):
            return
        if self._server.leaves(self._transport, self._held):
            self._held = b""
            self._transport.abort()
            return
        self._give()

    def _give(self) -> None:
        """Give aiohttp what is held, which begins with a head."""
        self._head, self._given = _head_end(self._held), 0
        self._give_held()

    def _give_held(self) -> None:
        data, self._held, self._answered = self._held, b"", False
        if self._paused:
            self._paused = False
            inner = self._inner
            # Aiohttp may have paused it, too, and then goes on by itself.
            if not (getattr(inner, "_buffer_paused", False) or getattr(inner, "_reading_paused", False)):
                self._transport.resume_reading()
        if self._inner is None:
            self._inner = self._make()
            self._inner.connection_made(self._transport)
        self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        self._given += len(data)
        self._inner.data_received(data)

    def began(self, request: web.BaseRequest) -> None:
        """Aiohttp has the head of a request. What is held belongs to that, as when a client sends several at once."""
        if self._held and self._inner is not None:
            self._give_held()
        self._answered = False

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def leave_unless_begun(self) -> None:
        """Close the connection if no request has come."""
        if self._inner is None:
            self._transport.close()

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.stalled_since = time.monotonic()
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.stalled_since = None
        if self._inner is not None:
            self._inner.resume_writing()
        if self._answered:
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
            # Not now: the transport, which has called this, does not expect to be closed meanwhile.
            asyncio.get_running_loop().call_soon(self._go_on)

    def reads(self, request: web.BaseRequest) -> None:
        """The body of a request is awaited from now on."""
        self._request, self._since = request, time.monotonic()

    def has_read(self, request: web.BaseRequest) -> None:
        """The request has its answer: its body is awaited no longer."""
        self._request = None
        task = asyncio.current_task()
        if not self._server.shared or task is None or not request.content.is_eof():
            return  # behind a body that was not read nothing follows: see ``HttpServer._guarded``
        self._answered = True
        self._whole = bool(self._head) and self._given == self._head + (request.content_length or 0)
        self._head = 0
        # Aiohttp, which awaits this task too, waits for the next request before this is called.
        task.add_done_callback(lambda _: self._go_on())

    def give_up_late_body(self, since: float) -> None:
        """End the request if its body has been awaited since before ``since`` (monotonic seconds). A transport that is
        paused waits for us, not for the client."""
        request = self._request
        if request is not None and self._since <= since and not request.content.is_eof():
            request.content.set_exception(BodyLate())


def _head_end(held: bytes) -> int:
    """How many bytes a head and the empty lines before it have; 0 if it does not end here."""
    begin = len(held) - len(held.lstrip(b"\r\n"))
    return held.find(_HEAD_ENDS, begin) + len(_HEAD_ENDS) if held.find(_HEAD_ENDS, begin) >= 0 else 0


def _may_become_head(held: bytes) -> bool:
    """Whether these bytes, in which no head ends, may be the beginning of one, behind the empty lines that some clients
    send. Of all else aiohttp says at once what is wrong with it."""
    begun = held.lstrip(b"\r\n")
    lines = begun.count(b"\n") == begun.count(b"\r\n")
    return len(held) < _HEAD_HELD and (not begun or (begun[:1].isalpha() and begun[:1].isupper())) and lines


def refused(status: int, words: str, *, retry_after: int | None = None) -> web.Response:
    """A refusal in the form of OpenAI's errors, behind which the connection is closed."""
    kind = "invalid_request_error" if status < 500 else "api_error"
    body = {"error": {"message": words, "type": kind, "param": None, "code": str(status)}}
    headers = _CLOSE if retry_after is None else {**_CLOSE, "Retry-After": str(retry_after)}
    response = web.Response(
        body=json.dumps(body).encode(), status=status, content_type="application/json", headers=headers
    )
    response.force_close()
    return response
