"""The list of replicas: a session stays on its replica, a new one goes to the replica with the fewest sessions."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable

import aiohttp
import msgspec

from liverl.sessions.engine import HttpEngine
from liverl.sessions.replica_file import Replica
from liverl.sessions.session import Engine

AGAIN_S = 1.0  # seconds before replicas that were all lost are tried again


class _Listed(msgspec.Struct, frozen=True):
    replica: Replica
    engine: HttpEngine


class ReplicaList:
    """Implements ``Replicas`` for replicas that are servers. It may be empty: requests wait."""

    def __init__(self, http: aiohttp.ClientSession, token: str | None = None) -> None:
        """``token``: bearer token of all replicas."""
        self._http, self._token = http, token
        self._engines: dict[str, _Listed] = {}  # by URL
        self._places: dict[str, str] = {}  # session -> URL
        self._changed = asyncio.Event()

    @property
    def listed(self) -> list[Replica]:
        """The replicas, in the order in which they were given."""
        return [listed.replica for listed in self._engines.values()]

    @property
    def placed(self) -> dict[str, int]:
        """URL -> open sessions whose next request goes there."""
        return dict(Counter(self._places.values()))

    def put(self, replicas: Iterable[Replica]) -> None:
        """Replace the list. Requests that run on a replica that is no longer listed go on."""
        before, self._engines = self._engines, {}
        for replica in replicas:
            known = before.get(replica.url)
            if known is None or known.replica.model != replica.model:
                known = _Listed(replica, HttpEngine(self._http, replica.url, replica.model, self._token))
            self._engines[replica.url] = msgspec.structs.replace(known, replica=replica)
        self._changed.set()
        self._changed = asyncio.Event()

    def forget(self, session: str) -> None:
        """The session has ended."""
        self._places.pop(session, None)

    async def pick(self, session: str, lost: Collection[Engine], seconds: float) -> Engine:
        """See ``Replicas.pick``. When all were lost, they are tried again after ``AGAIN_S``."""
        until = time.monotonic() + seconds
        while True:
            chosen = self._choose(session, lost)
            if chosen is not None:
                return chosen
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({changed}, timeout=min(left, AGAIN_S) if self._engines else left)
            finally:
                changed.cancel()
            if self._engines:
                lost = ()

    def _choose(self, session: str, lost: Collection[Engine]) -> HttpEngine | None:
        usable = {url: listed for url, listed in self._engines.items() if listed.engine not in lost}
        here = self._places.get(session)
        if here in usable:
            return usable[here].engine
        open_ = {url: listed for url, listed in usable.items() if not listed.replica.draining}
        if not open_:
            return None
        load = Counter(self._places.values())
        url = min(open_, key=lambda each: load[each])
        self._places[session] = url
        return open_[url].engine
