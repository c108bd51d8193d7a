"""How many connections and how many bytes a proxy accepts, so that no client can take it away from the others.

Independent of the HTTP server: the standard library only, no I/O, times are passed in. A server reports what happens
on its connections and closes the ones that it is told to close.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest

RESERVED = 128  # descriptors for everything but connections: logs, records, the event loop, libraries
PER_REQUEST = 2  # descriptors of one request: its client's connection and the one to the replica
MOST_UNPROVEN = 1024  # connections without a valid key, however many descriptors there are
YOUNG = 1.0  # seconds: a connection this young may have a request on its way
TOTAL_BODIES = 8  # request bodies of the maximum size that are held at the same time
MAX_BODY = 16 << 20  # bytes
HEAD_TIMEOUT, WRITE_TIMEOUT = 15.0, 60.0  # seconds

NO_REQUEST = "sent no complete request"
NOT_READING = "did not read its response"
NO_KEY = "one of too many connections without a valid key"
UNUSED = "idle, closed in favour of a new connection"
NO_ROOM = "all connections are in use"


@dataclass(frozen=True)
class Limits:
    """``connections``: at the same time. ``unproven``: those of them on which no valid key was sent yet. ``per_peer``:
    those of one address. ``head_timeout``: seconds for a complete request head. ``body_timeout``: seconds for a
    complete body. ``write_timeout``: seconds for which a client may leave a full buffer unread. ``max_body``: bytes of
    one body. ``total_bodies``: bytes of all bodies that are held at the same time."""

    connections: int
    unproven: int
    per_peer: int
    head_timeout: float = HEAD_TIMEOUT
    body_timeout: float = 120.0
    write_timeout: float = WRITE_TIMEOUT
    max_body: int = MAX_BODY
    total_bodies: int = TOTAL_BODIES * MAX_BODY


def limits_for(descriptors: int, max_body: int) -> Limits:
    """Return the limits of a process that may open ``descriptors`` files. ``max_body``: bytes."""
    connections = max(16, (descriptors - RESERVED) // PER_REQUEST)
    return Limits(
        connections=connections,
        unproven=max(8, min(MOST_UNPROVEN, connections // 4)),
        per_peer=connections - connections // 4,
        max_body=max_body,
        total_bodies=TOTAL_BODIES * max_body,
    )


def descriptors_for(requests: int) -> int:
    """Return how many descriptors a proxy needs for so many requests of one address at the same time."""
    return RESERVED + PER_REQUEST * -(-4 * requests // 3)


@dataclass(eq=False)
class Connection:
    """One client's connection. ``close(abort)`` closes it; ``abort``: without sending what is buffered.
    ``unread()``: bytes that have arrived and were not read yet."""

    peer: str
    close: Callable[[bool], None]
    unread: Callable[[], int]
    last_active: float  # seconds: when it was opened, or when its last request ended
    proven: bool = False  # a valid key was sent on it
    requests: int = 0  # open ones
    head_since: float | None = None  # seconds: when the first byte of an incomplete request arrived
    stalled_since: float | None = None  # seconds: since when the client does not read

    def received(self, now: float) -> None:
        """Bytes have arrived."""
        if not self.requests and self.head_since is None:
            self.head_since = now

    def request_began(self) -> None:
        """The head of a request is complete."""
        self.requests += 1
        self.head_since = None

    def request_ended(self, now: float) -> None:
        """The response to a request is complete, or was given up."""
        self.requests -= 1
        self.last_active = now


@dataclass(eq=False)
class Connections:
    """All connections of one proxy process. ``turned_away``: new ones that were closed at once, because all others
    were in use; ``dropped``: others that were closed, by reason."""

    limits: Limits
    turned_away: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    _all: dict[Connection, None] = field(default_factory=dict)  # the oldest first
    _unproven: dict[Connection, None] = field(default_factory=dict)
    _peers: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def unproven(self) -> int:
        """Number of connections on which no valid key was sent yet."""
        return len(self._unproven)

    def busiest_peer(self) -> tuple[str, int] | None:
        """Return the address with the most connections and their number."""
        return next(iter(self._peers.most_common(1)), None)

    def opened(self, connection: Connection, now: float) -> bool:
        """Register a new connection, closing others where a limit is reached; False: it was closed itself."""
        limits = self.limits
        if len(self._unproven) >= limits.unproven:
            self._drop_silent(lambda c: now - c.last_active >= YOUNG)
        if self._peers[connection.peer] >= limits.per_peer and not self._make_room(connection.peer):
            return self._turn_away(connection)
        if len(self._all) >= limits.connections and not (
            self._drop_silent(lambda _: True) or self._make_room(self._peers.most_common(1)[0][0])
        ):
            return self._turn_away(connection)
        self._all[connection] = None
        self._unproven[connection] = None
        self._peers[connection.peer] += 1
        return True

    def proved(self, connection: Connection) -> None:
        """A valid key was sent on ``connection``."""
        connection.proven = True
        self._unproven.pop(connection, None)

    def closed(self, connection: Connection) -> None:
        """``connection`` is gone. May be called repeatedly."""
        if connection in self._all:
            del self._all[connection]
            self._unproven.pop(connection, None)
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def close_expired(self, now: float) -> None:
        """Close the connections whose time is over."""
        for connection, reason in list(self._expired(now)):
            self._drop(connection, reason, abort=reason == NOT_READING)

    def _expired(self, now: float) -> Iterator[tuple[Connection, str]]:
        limits = self.limits
        for connection in self._all:
            stalled, head = connection.stalled_since, connection.head_since
            if stalled is not None and now - stalled >= limits.write_timeout:
                yield connection, NOT_READING
            elif not connection.requests:
                since = head if connection.proven else connection.last_active
                if since is not None and now - since >= limits.head_timeout:
                    yield connection, NO_REQUEST

    def _drop_silent(self, may: Callable[[Connection], bool]) -> bool:
        """Close the oldest connection without a key and without a complete request; whether there was one."""
        silent = (c for c in self._unproven if not c.requests and may(c) and not c.unread())
        connection = next(silent, None)
        if connection is not None:
            self._drop(connection, NO_KEY)
        return connection is not None

    def _make_room(self, peer: str) -> bool:
        """Close one connection of ``peer``: one without a key, or else the one that was idle for longest."""
        if self._drop_silent(lambda c: c.peer == peer):
            return True
        idle = (c for c in self._all if c.peer == peer and not c.requests and c.head_since is None)
        connection = next((c for c in nsmallest(8, idle, lambda c: c.last_active) if not c.unread()), None)
        if connection is not None:
            self._drop(connection, UNUSED)
        return connection is not None

    def _drop(self, connection: Connection, reason: str, abort: bool = False) -> None:
        self.dropped[reason] += 1
        self.closed(connection)
        connection.close(abort)

    def _turn_away(self, connection: Connection) -> bool:
        self.turned_away += 1
        connection.close(False)
        return False


class BodyRefused(Exception):
    """A request body that is not accepted. ``status``: the HTTP status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """The bytes of all request bodies that a proxy holds."""

    def __init__(self, max_body: int, total: int) -> None:
        self.max_body = max_body
        self.total = total
        self.held = 0
        self.refused = 0  # bodies that were too large

    def begin(self, declared: int | None) -> Body:
        """Return the account of a new body; ``declared`` is its length according to the client, if it said one.

        Raises:
            BodyRefused: it is too large (413).
        """
        if declared is not None and declared > self.max_body:
            raise self.too_large(f"{declared:,} bytes")
        return Body(self)

    def too_large(self, size: str) -> BodyRefused:
        """Count a body that is too large and return its refusal."""
        self.refused += 1
        text = f"the request body has {size}, and proxy.max_body_bytes allows {self.max_body:,}"
        return BodyRefused(413, text + ": send less, or raise that key and restart the proxy")


class Body:
    """The bytes of one request body."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.size = 0

    def add(self, count: int) -> None:
        """Count bytes that have arrived.

        Raises:
            BodyRefused: the body is too large (413), or all bodies together are (503).
        """
        bodies = self._bodies
        if self.size + count > bodies.max_body:
            raise bodies.too_large(f"more than {self.size:,} bytes")
        if bodies.held + count > bodies.total:
            raise BodyRefused(
                503, "the proxy holds too many large request bodies at the moment; repeat the request later"
            )
        self.size += count
        bodies.held += count

    def release(self) -> None:
        """The body is no longer held. May be called repeatedly."""
        self._bodies.held -= self.size
        self.size = 0
