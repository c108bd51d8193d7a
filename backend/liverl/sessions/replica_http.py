"""Requests to replicas over HTTP/1.1, on connections that are kept open: all that sessions need of a client.

A turn sends two to five requests, and in aiohttp's client each of them takes three times the CPU that it takes here.
Redirects are not followed, and nothing compressed is asked for: replicas do neither.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from liverl.sessions.replica_connection import Answered, ReplicaConnection
from liverl.util.deadline import within

KEEPALIVE_S = 3.0  # see ``ReplicaHttp``
CONNECT_S = 10.0  # seconds for a connection to a replica
RESOLVED_S = 10.0  # seconds for which the addresses of a host's name are kept
_PORTS = {"http": 80, "https": 443}


class Unreachable(OSError):
    """No connection was made."""


class ReplicaHttp:
    """The connections to all replicas. Use: ``async with ReplicaHttp(seconds) as http: await http.ask(...)``."""

    def __init__(
        self, seconds: float | None = None, *, connect: float = CONNECT_S, keepalive: float = KEEPALIVE_S
    ) -> None:
        """``seconds``: for a whole request, None for no limit; ``connect``: for its connection; ``keepalive``: for
        which an idle connection is kept. vLLM's server closes it after 5, and a request that meets that would look
        like one with which the replica died."""
        self._seconds, self._connect, self._keepalive = seconds, connect, keepalive
        self._origins: dict[str, _Origin] = {}  # by the root address of the replica
        self._closed = False

    async def __aenter__(self) -> ReplicaHttp:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections; one in use closes behind its request."""
        self._closed = True
        for origin in self._origins.values():
            origin.close_idle()

    async def ask(
        self,
        method: str,
        root: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        seconds: float | None = None,
    ) -> Answered:
        """One request. ``root``: of the replica, as ``http://HOST:PORT``; ``seconds``: None for those of all requests.
        The connection of a caller that is cancelled is closed, so that the replica stops, too.

        Raises:
            Unreachable: no connection was made.
            BrokenOff: the connection ended before the answer did.
            TimeoutError: it took too long.
        """
        root = root.rstrip("/")
        origin = self._origins.get(root)
        if origin is None:
            origin = self._origins[root] = _Origin(root)
        limit = self._seconds if seconds is None else seconds
        end = None if limit is None else time.monotonic() + limit
        connection = origin.idle(time.monotonic() - self._keepalive)
        if connection is None:
            connection = await origin.connect(self._connect if limit is None else min(limit, self._connect))
        loop = asyncio.get_running_loop()
        late = None if end is None else loop.call_later(end - time.monotonic(), connection.late)
        try:
            answered = await connection.ask(origin.head(method, path, headers or {}, data), data or b"")
        except BaseException:
            connection.abort()
            raise
        finally:
            if late is not None:
                late.cancel()
        # vLLM's server closes a connection behind an exception without saying so.
        if connection.reusable and answered.status < 500 and not self._closed:
            origin.keep(connection, self._keepalive)
        else:
            connection.abort()
        return answered


class _Origin:
    """One replica's address, with its idle connections, the one that was used last at the end."""

    def __init__(self, root: str) -> None:
        """Raises:
        Unreachable: it is no address.
        """
        try:
            parts = urlsplit(root)
            self._port = parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError):
            raise Unreachable(f"{root!r} is no address of an HTTP server") from None
        if not parts.hostname:
            raise Unreachable(f"{root!r} is no address of an HTTP server")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._shown = parts.netloc.rpartition("@")[2]
        self._idle: list[ReplicaConnection] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._literal = _is_address(self._host)
        self._resolving: asyncio.Task[list[str]] | None = None
        self._resolved = 0.0  # monotonic seconds

    def head(self, method: str, path: str, headers: Mapping[str, str], data: bytes | None) -> bytes:
        """The head of a request.

        Raises:
            ValueError: it would have a line break where none may be.
        """
        lines = [f"{method} {self._path}{path} HTTP/1.1", f"Host: {self._shown}", "Accept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if data is not None:
            lines.append(f"Content-Length: {len(data)}")
        text = "\r\n".join(lines)
        if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
            raise ValueError("a line break in the head of a request")
        return f"{text}\r\n\r\n".encode("latin-1")

    def idle(self, since: float) -> ReplicaConnection | None:
        """A connection that was in use at ``since`` (monotonic seconds) or later."""
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and connection.idle_since >= since and connection.quiet:
                return connection
            connection.abort()
        return None

    def keep(self, connection: ReplicaConnection, seconds: float) -> None:
        """Keep an idle connection for so long."""
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(seconds, self._close_old, seconds)

    def _close_old(self, seconds: float) -> None:
        self._sweep = None
        since = time.monotonic() - seconds
        every, self._idle = self._idle, []
        for connection in every:
            if connection.reusable and connection.idle_since > since:
                self._idle.append(connection)
            else:
                connection.abort()
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(seconds, self._close_old, seconds)

    def close_idle(self) -> None:
        """Close what is idle."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._idle:
            self._idle.pop().abort()

    async def connect(self, seconds: float) -> ReplicaConnection:
        """A new connection, to the first address that takes it. ``seconds``: for all of them.

        Raises:
            Unreachable: no address does.
        """
        made: list[ReplicaConnection] = []  # so that one that a cancelled caller does not get is closed

        def make() -> ReplicaConnection:
            made.append(ReplicaConnection())
            return made[-1]

        try:
            return await within(self._connect(make, seconds), seconds)
        except BaseException as error:
            for connection in made:
                connection.abort()
            if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
                words = f"no connection to {self._shown} after {seconds:g} s"
                raise Unreachable(words) from None
            raise

    async def _connect(self, make: Callable[[], ReplicaConnection], seconds: float) -> ReplicaConnection:
        addresses = [self._host] if self._literal else await self._addresses()
        loop, why = asyncio.get_running_loop(), "its name has no address"
        name = self._host if self._tls is not None else None
        for address in addresses:
            try:
                connecting = loop.create_connection(
                    make, address, self._port, ssl=self._tls, server_hostname=name
                )
                # One address that nobody answers at leaves time for the others.
                return (await within(connecting, seconds / len(addresses)))[1]
            except (TimeoutError, asyncio.TimeoutError):
                why = f"{address} does not answer"
            except OSError as error:
                why = str(error)
        raise Unreachable(f"no connection to {self._shown}: {why}")

    async def _addresses(self) -> list[str]:
        """The addresses of the host's name, looked up by one for all that wait.

        Raises:
            Unreachable: the name is not known.
        """
        now = time.monotonic()
        if self._resolving is None or (self._resolving.done() and now - self._resolved > RESOLVED_S):
            self._resolving, self._resolved = asyncio.ensure_future(self._look_up()), now
        looking = self._resolving
        try:
            return await asyncio.shield(looking)
        except (OSError, UnicodeError) as error:  # a label of the name may be empty, or too long
            if self._resolving is looking:
                self._resolving = None
            raise Unreachable(f"the name {self._host} cannot be looked up: {error}") from error

    async def _look_up(self) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
