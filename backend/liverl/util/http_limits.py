"""The table of what every HTTP server of ours accepts, and its rules about connections and bodies.

``HTTP`` has the numbers. ``http_server`` applies them to servers of aiohttp; LiteLLM's runner, which runs in LiteLLM's
environment and cannot import this package, loads this file by its path and applies them to uvicorn
(``proxy/runtime/connections.py``). So the standard library only, no I/O, times are passed in: a server reports what
happens on its connections and closes the ones that it is told to close.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest


@dataclass(frozen=True)
class Rules:
    """``head_timeout``, ``body_timeout``: seconds for a complete head, and for a complete body behind it.
    ``write_timeout``: seconds for which a client may leave a full buffer unread. ``without_key_of_address``:
    connections of one address on which no valid key was sent yet. ``without_key``: those of all addresses, however many
    descriptors there are. ``reserved``: descriptors that are kept for everything but connections: journals, logs, the
    event loop. ``per_request``: descriptors of one request, its client's connection and the one to the replica.
    ``accepted``: connections that are accepted before their rules apply. ``body``: bytes of one. ``bodies``: how many
    of that size LiteLLM's proxy holds at the same time. ``bodies_of_key``: how many of one key our other servers hold,
    which read its further ones later. ``versions``: of HTTP, others are refused. ``letters_per_token``: letters of a
    prompt for each token of the model's context, above which it is not rendered (a tokenizer has tokens of 80 and more
    blanks or dashes, and text has about 4 letters in each). ``path``: its letters in a log."""

    head_timeout: float = 10.0
    body_timeout: float = 120.0
    write_timeout: float = 60.0
    # The agents of a step may share one address (pods behind a NAT, containers behind a bridge): with a key they are
    # not counted here, and without one they need a place for a moment only.
    without_key_of_address: int = 64
    without_key: int = 1024
    reserved: int = 128
    per_request: int = 2
    accepted: int = 32
    body: int = 16 << 20
    bodies: int = 8
    bodies_of_key: int = 2
    versions: tuple[tuple[int, int], ...] = ((1, 0), (1, 1))
    letters_per_token: int = 32
    path: int = 200


HTTP = Rules()

YOUNG = 1.0  # seconds: a connection this young may have a request on its way
# The same where only its address has too many: a busy host may take that long from a connection to its first byte, as
# when the agents of a step begin behind one address.
YOUNG_OF_ADDRESS = 5.0
MAX_BODY = HTTP.body

NO_REQUEST = "sent no complete request"
NOT_READING = "did not read its response"
NO_KEY = "one of too many connections without a valid key"
UNUSED = "idle, closed in favour of a new connection"
OF_KEY = "one of too many connections with one key"


@dataclass(frozen=True)
class Limits:
    """``connections``: at the same time. ``unproven``: those of them on which no valid key was sent yet. ``per_peer``:
    those of one address among these. ``per_key``: those with one key. The others: see ``Rules``. ``max_body``: bytes of
    one body. ``total_bodies``: bytes of all bodies that are held at the same time."""

    connections: int
    unproven: int
    per_peer: int
    per_key: int
    head_timeout: float = HTTP.head_timeout
    body_timeout: float = HTTP.body_timeout
    write_timeout: float = HTTP.write_timeout
    max_body: int = HTTP.body
    total_bodies: int = HTTP.bodies * HTTP.body


def limits_for(descriptors: int, max_body: int) -> Limits:
    """Return the limits of a process that may open ``descriptors`` files. ``max_body``: bytes."""
    connections = max(16, (descriptors - HTTP.reserved) // HTTP.per_request)
    unproven = max(8, min(HTTP.without_key, connections // 4))
    return Limits(
        connections=connections,
        unproven=unproven,
        per_peer=min(HTTP.without_key_of_address, unproven),
        per_key=connections // 4,
        max_body=max_body,
        total_bodies=HTTP.bodies * max_body,
    )


def descriptors_for(requests: int) -> int:
    """Return how many descriptors a proxy needs for so many requests at the same time, and a quarter more connections:
    those without a key."""
    return HTTP.reserved + HTTP.per_request * -(-4 * requests // 3)


def too_many_letters(letters: int, context: int) -> str | None:
    """Why a prompt of so many letters is too long for a ``context`` of so many tokens, whatever its tokenizer; None if
    it may fit. Clients look for the words before the bracket, which are Anthropic's."""
    fewest = letters // HTTP.letters_per_token
    if fewest <= context:
        return None
    words = f"it has {letters} letters, of which a token has {HTTP.letters_per_token} at most"
    return f"prompt is too long: {fewest} tokens > {context} maximum ({words})"


_HEAD_ENDS = b"\r\n\r\n"


@dataclass(eq=False)
class Connection:
    """One client's connection. ``close(abort)`` closes it; ``abort``: without sending what is buffered.
    ``unread()``: bytes that have arrived and were not read yet."""

    peer: str
    close: Callable[[bool], None]
    unread: Callable[[], int]
    last_active: float  # seconds: when it was opened, or when its last request ended
    proven: bool = False  # a valid key was sent on it
    key: str = ""  # names that key, if one client has it
    requests: int = 0  # open ones
    head_since: float | None = None  # seconds: when the first byte of an incomplete request arrived
    stalled_since: float | None = None  # seconds: since when the client does not read
    complete: bool = False  # the head of a request has arrived that has not begun yet
    opened_at: float = 0.0  # seconds
    _end: bytes = b""  # of what has arrived of a head

    def __post_init__(self) -> None:
        self.opened_at = self.last_active

    def received(self, now: float, data: bytes) -> None:
        """Bytes have arrived."""
        if self.requests:
            return
        if self.head_since is None:
            self.head_since = now
        self.complete = self.complete or _HEAD_ENDS in self._end + data
        self._end = (self._end + data[-3:])[-3:]

    def request_began(self) -> None:
        """The head of a request is complete."""
        self.requests += 1
        self.head_since = None
        self.complete, self._end = False, b""

    @property
    def silent(self) -> bool:
        """Whether it has no request, and none that has arrived."""
        return not self.requests and not self.complete and not self.unread()

    def request_ended(self, now: float) -> None:
        """The response to a request is complete, or was given up."""
        self.requests -= 1
        self.last_active = now


@dataclass(eq=False)
class Connections:
    """All connections of one server. ``turned_away``: new ones that were closed at once, because all others were in
    use; ``dropped``: others that were closed, by reason."""

    limits: Limits
    turned_away: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    _all: dict[Connection, None] = field(default_factory=dict)  # the oldest first
    _unproven: dict[Connection, None] = field(default_factory=dict)
    _peers: dict[str, dict[Connection, None]] = field(
        default_factory=dict
    )  # those in ``_unproven``, by address
    _keys: Counter[str] = field(default_factory=Counter)
    _blamed: Counter[str] = field(default_factory=Counter)  # addresses of dropped ones without a key

    def __len__(self) -> int:
        return len(self._all)

    @property
    def unproven(self) -> int:
        """Number of connections on which no valid key was sent yet."""
        return len(self._unproven)

    def busiest_peer(self) -> tuple[str, int] | None:
        """Return the address with the most connections without a key, and their number."""
        most = max(self._peers.items(), key=lambda item: len(item[1]), default=None)
        return None if most is None else (most[0], len(most[1]))

    def blamed_peer(self) -> tuple[str, int] | None:
        """Return the address of which most connections without a key were closed, and their number."""
        return next(iter(self._blamed.most_common(1)), None)

    def facts(self) -> dict[str, int | str]:
        """For a status display: open connections, how many of them have no valid key, and the address with most of
        these; how many were closed, the address that most without a key came from, and how many found no room."""
        peer, most = self.busiest_peer() or ("", 0)
        blamed, closed = self.blamed_peer() or ("", 0)
        return {
            "connections": len(self),
            "without_key": self.unproven,
            "peer": peer,
            "of_peer": most,
            "dropped": sum(self.dropped.values()),
            "dropped_peer": blamed,
            "dropped_of_peer": closed,
            "turned_away": self.turned_away,
        }

    def opened(self, connection: Connection, now: float) -> bool:
        """Register a new connection, closing others where a limit is reached; False: it was closed itself."""
        limits, peer = self.limits, connection.peer
        of_peer = self._peers.get(peer, {})
        if len(of_peer) >= limits.per_peer:
            self._drop_silent(of_peer, now - YOUNG_OF_ADDRESS)
        if len(self._unproven) >= limits.unproven:
            self._drop_silent(self._unproven, now - YOUNG)
        if len(self._all) >= limits.connections and not self._make_room():
            return self._turn_away(connection)
        self._all[connection] = None
        self._unproven[connection] = None
        self._peers.setdefault(peer, {})[connection] = None
        return True

    def proved(self, connection: Connection, key: str = "") -> bool:
        """A valid key was sent on ``connection``. ``key``: names one that a single client has; "": many have it.
        Whether it is not one too many with that key."""
        self._leave_unproven(connection)
        connection.proven = True
        if connection in self._all and connection.key != key:
            self._leave_key(connection)
            connection.key = key
            if key:
                self._keys[key] += 1
        if not key or self._keys[key] <= self.limits.per_key:
            return True
        if self._drop_idle(lambda other: other.key == key and other is not connection):
            return True
        self.dropped[OF_KEY] += 1
        return False

    def closed(self, connection: Connection) -> None:
        """``connection`` is gone. May be called repeatedly."""
        if connection in self._all:
            del self._all[connection]
            self._leave_unproven(connection)
            self._leave_key(connection)

    def close_expired(self, now: float) -> None:
        """Close the connections whose time is over, and what is too much of one address."""
        for connection, reason in list(self._expired(now)):
            self._drop(connection, reason, abort=reason == NOT_READING)
        most = self.limits.per_peer
        over = {peer: len(of) - most for peer, of in self._peers.items() if len(of) > most}
        for connection in list(self._unproven) if over else ():
            if over.get(connection.peer, 0) > 0 and self._is_silent(connection, now):
                over[connection.peer] -= 1
                self._drop(connection, NO_KEY)

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

    def _is_silent(self, connection: Connection, now: float) -> bool:
        old = now - connection.last_active >= YOUNG_OF_ADDRESS
        return old and connection.silent

    def _make_room(self) -> bool:
        """Close one connection: the oldest without a key, or else an idle one of the key that has the most, or else the
        one that was idle for longest; whether there was one."""
        if self._drop_silent(self._unproven):
            return True
        key = next((name for name, _ in self._keys.most_common(1)), None)
        return (key is not None and self._drop_idle(lambda c: c.key == key)) or self._drop_idle(
            lambda _: True
        )

    def _drop_silent(self, among: dict[Connection, None], since: float = math.inf) -> bool:
        """Close the oldest of ``among``, which have no key, that has no complete request and was not active after
        ``since`` (seconds); whether there was one. They are in the order in which they were opened, so that the search
        ends at the first one that is too young: in a flood all are, and each new one would look at all others."""
        for connection in among:
            if connection.opened_at > since:
                return False
            if connection.last_active <= since and connection.silent:
                self._drop(connection, NO_KEY)
                return True
        return False

    def _drop_idle(self, may: Callable[[Connection], bool]) -> bool:
        """Close the connection with a key that was idle for longest; whether there was one."""
        idle = (c for c in self._all if c.proven and not c.requests and c.head_since is None and may(c))
        connection = next((c for c in nsmallest(8, idle, lambda c: c.last_active) if not c.unread()), None)
        if connection is not None:
            self._drop(connection, UNUSED)
        return connection is not None

    def _leave_unproven(self, connection: Connection) -> None:
        if connection in self._unproven:
            del self._unproven[connection]
            del self._peers[connection.peer][connection]
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def _leave_key(self, connection: Connection) -> None:
        if connection.key:
            self._keys[connection.key] -= 1
            if not self._keys[connection.key]:
                del self._keys[connection.key]
            connection.key = ""

    def _drop(self, connection: Connection, reason: str, abort: bool = False) -> None:
        self.dropped[reason] += 1
        if not connection.proven:
            self._blame(connection.peer)
        self.closed(connection)
        connection.close(abort)

    def _blame(self, peer: str) -> None:
        self._blamed[peer] += 1
        if len(self._blamed) > _MOST_BLAMED:
            self._blamed = Counter(dict(self._blamed.most_common(_MOST_BLAMED // 2)))

    def _turn_away(self, connection: Connection) -> bool:
        self.turned_away += 1
        connection.close(False)
        return False


_MOST_BLAMED = 4096  # addresses that are counted


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
