"""Which requests one replica may sample while its KV cache is nearly full. Pure: clock and cache readings are given.

Below the high watermark every request passes. Above it those pass whose session has a reply in flight, or had one
within the idle grace, or whose prefix is still in the cache; the others wait, first come first served. A request also
passes when nothing else is in flight, so that the queue always moves.

The engine's routes do not say which prefixes are cached, so that is estimated: the cache evicts what was used least
recently, and what the replica has read and written since a session's last reply is known.
"""

from __future__ import annotations

from collections import Counter

import msgspec


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``high_watermark``: share of the KV cache in use from which requests are held back; ``hit_threshold``: share of a
    prompt that must be in the cache for the request to pass all the same; ``idle_grace``: seconds after a reply for
    which its session passes, if that reply was itself admitted above the watermark."""

    high_watermark: float = 0.85
    hit_threshold: float = 0.8
    idle_grace: float = 60.0


class KvCache(msgspec.Struct, frozen=True):
    """One reading. ``usage``: share of the cache in use, 0..1; ``capacity``: tokens that fit, None if unknown."""

    usage: float
    capacity: int | None = None


class SampleRequest(msgspec.Struct, eq=False):
    """A request for one sample. ``prefix``: tokens at the beginning of its prompt that its session had the replica read
    or sample before; ``tokens``: of its prompt, and of the reply once that was sampled."""

    session: str
    prefix: int
    tokens: int


class QueueFull(Exception):
    """As many requests wait as may wait."""


class Admission:
    """The requests of one replica: those in flight, and those that wait."""

    def __init__(self, rules: Rules, most_waiting: int) -> None:
        self._rules, self._most_waiting = rules, most_waiting
        self._cache: KvCache | None = None
        self._added = 0  # tokens of the requests that were admitted since the reading
        self._queue: dict[SampleRequest, None] = {}  # in the order in which they came
        self._in_flight: dict[
            SampleRequest, bool
        ] = {}  # -> whether its session keeps its place for the idle grace
        self._sessions: Counter[str] = Counter()  # requests in flight
        self._reserved: dict[str, float] = {}  # session -> until when
        self._written = 0  # tokens that the replica has read or sampled, without those that were cached
        self._left_at: dict[str, int] = {}  # session -> ``_written`` after its last reply
        self._ended: set[str] = set()  # sessions that have ended with requests here

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    @property
    def known(self) -> set[str]:
        """The sessions of which anything is remembered."""
        waiting = {request.session for request in self._queue}
        return waiting | self._sessions.keys() | self._reserved.keys() | self._left_at.keys() | self._ended

    def ask(self, request: SampleRequest, now: float) -> bool:
        """Admit a request (True), or let it wait for ``admit`` (False). ``now``: seconds of any steady clock.

        Raises:
            QueueFull: it would have to wait, and as many wait as may.
        """
        if self._passes(request, now) or (not self._queue and self._open):
            self._enter(request)
            return True
        if len(self._queue) >= self._most_waiting:
            raise QueueFull
        self._queue[request] = None
        return False

    def read(self, cache: KvCache | None, now: float) -> None:
        """Take a reading over; None where the replica gives none, and then every request passes."""
        self._cache, self._added = cache, 0
        self._reserved = {name: until for name, until in self._reserved.items() if until > now}

    def admit(self, now: float) -> list[SampleRequest]:
        """The waiting requests that pass now, which are in flight from here on."""
        admitted: list[SampleRequest] = []
        while (request := self._next(now)) is not None:
            del self._queue[request]
            self._enter(request)
            admitted.append(request)
        return admitted

    def release(self, request: SampleRequest, now: float) -> None:
        """A reply has ended, however it did, or its request waits no longer."""
        self._queue.pop(request, None)
        retained = self._in_flight.pop(request, None)
        name = request.session
        if retained is not None:
            self._written += request.tokens - self._cached(request)
            self._left_at[name] = self._written
            self._sessions[name] -= 1
            if not self._sessions[name]:
                del self._sessions[name]
            if retained:
                self._reserved[name] = now + self._rules.idle_grace
        if name in self._ended:
            self.forget(name)

    def forget(self, session: str) -> None:
        """The session has ended, perhaps with requests that are still to be released."""
        self._reserved.pop(session, None)
        self._left_at.pop(session, None)
        if session in self._sessions or any(request.session == session for request in self._queue):
            self._ended.add(session)
        else:
            self._ended.discard(session)

    # -- rules

    @property
    def _high(self) -> bool:
        """Whether the cache is nearly full, with what was admitted since the reading."""
        if self._cache is None:
            return False
        capacity = self._cache.capacity
        added = self._added / capacity if capacity else 0.0
        return self._cache.usage + added >= self._rules.high_watermark

    @property
    def _open(self) -> bool:
        """Whether the first one in the queue may pass."""
        return not self._high or not self._in_flight

    def _passes(self, request: SampleRequest, now: float) -> bool:
        """Whether a request may overtake those that wait."""
        if self._sessions[request.session] > 0 or self._reserved.get(request.session, now) > now:
            return True
        hit = self._hit(request)
        return self._high and (hit is None or hit >= self._rules.hit_threshold)

    def _hit(self, request: SampleRequest) -> float | None:
        """The share of a prompt that is in the cache; None if that cannot be told."""
        if not request.prefix or request.session not in self._left_at:
            return 0.0
        if self._cache is None or self._cache.capacity is None:
            return None
        return self._cached(request) / request.tokens

    def _cached(self, request: SampleRequest) -> int:
        """Tokens of a prompt that are in the cache: all that its session had there, or none if they were evicted."""
        left_at = self._left_at.get(request.session)
        if left_at is None:
            return 0
        capacity = None if self._cache is None else self._cache.capacity
        evicted = capacity is not None and self._written - left_at + request.prefix > capacity
        return 0 if evicted else request.prefix

    def _next(self, now: float) -> SampleRequest | None:
        """The next one in the queue that passes."""
        for request in self._queue:
            if self._passes(request, now):
                return request
        return next(iter(self._queue), None) if self._open else None

    def _enter(self, request: SampleRequest) -> None:
        self._in_flight[request] = self._high
        self._sessions[request.session] += 1
        self._added += request.tokens - self._cached(request)
