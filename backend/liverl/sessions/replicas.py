"""The list of replicas: a session stays on its replica, a new one goes to the replica with the fewest sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import aiohttp
import msgspec

from liverl.sessions.admission import KvCache
from liverl.sessions.drafting import AllLost, Engine
from liverl.sessions.engine import HttpEngine
from liverl.sessions.kv_cache import read_kv_cache
from liverl.sessions.local_engine import LocalEngine, Tokenizers
from liverl.sessions.replica_file import Replica
from liverl.sessions.shares import ALL, Share

logger = logging.getLogger(__name__)

# Seconds for which an idle connection to a replica is kept: vLLM's server closes it after 5, and a request that meets
# that would look like one with which the replica died.
KEEPALIVE_S = 3.0


class _Listed(msgspec.Struct, frozen=True):
    replica: Replica
    engine: HttpEngine


class ReplicaList:
    """Implements ``Replicas`` for replicas that are servers. It may be empty: requests wait."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        token: str | None = None,
        tokenizers: Tokenizers | None = None,
        share: Share = ALL,
    ) -> None:
        """``token``: bearer token of all replicas; ``tokenizers``: make the ids of prompts; None: the replicas do;
        ``share``: of several processes each begins with another replica, as it knows its own sessions only."""
        self._share = share
        self._http, self._token, self._tokenizers = http, token, tokenizers
        self._engines: dict[str, _Listed] = {}  # by URL
        self._places: dict[str, str] = {}  # session -> URL
        self._deaths: dict[str, int] = {}  # by URL
        self._changed = asyncio.Event()

    @property
    def listed(self) -> list[Replica]:
        """The replicas, in the order in which they were given."""
        return [listed.replica for listed in self._engines.values()]

    @property
    def models(self) -> list[str]:
        """The names of the models that they serve."""
        return list(dict.fromkeys(replica.model for replica in self.listed))

    def facts(self) -> dict[str, Any]:
        """For a status display. ``placed``: URL -> open sessions whose next request goes there; ``tokenizers``: see
        ``TokenRoute``."""
        return {
            "replicas": len(self._engines),
            "placed": dict(Counter(self._places.values())),
            "tokenizers": [] if self._tokenizers is None else self._tokenizers.facts(),
        }

    def put(self, replicas: Iterable[Replica]) -> None:
        """Replace the list. Requests that run on a replica that is no longer listed go on; what is ``gone`` only says
        how many of its processes died."""
        before, self._engines = self._engines, {}
        for replica in replicas:
            self._deaths[replica.url] = replica.deaths
            if replica.gone:
                continue
            known = before.get(replica.url)
            if known is None or known.replica.model != replica.model:
                known = _Listed(replica, self._engine(replica))
            elif replica.deaths > known.replica.deaths and isinstance(known.engine, LocalEngine):
                known.engine.begin_again()
            self._engines[replica.url] = msgspec.structs.replace(known, replica=replica)
        self._changed.set()
        self._changed = asyncio.Event()

    def _engine(self, replica: Replica) -> HttpEngine:
        if self._tokenizers is None:
            return HttpEngine(self._http, replica.url, replica.model, self._token)
        tokens = self._tokenizers.of(replica.model)
        engine = LocalEngine(self._http, replica.url, replica.model, self._token, tokens)
        engine.begin()
        return engine

    def close(self) -> None:
        """Nobody uses the replicas any more."""
        for listed in self._engines.values():
            if isinstance(listed.engine, LocalEngine):
                listed.engine.close()

    def forget(self, session: str) -> None:
        """The session has ended."""
        self._places.pop(session, None)

    async def kv_cache(self, engine: object, seconds: float) -> KvCache | None:
        """How full a replica's KV cache is; None if it is no longer listed, or does not say so within ``seconds``."""
        url = next((url for url, listed in self._engines.items() if listed.engine is engine), None)
        if url is None:
            return None
        limit = aiohttp.ClientTimeout(total=seconds)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            async with self._http.get(
                f"{url.rstrip('/')}/metrics", headers=headers, timeout=limit
            ) as response:
                if response.ok:
                    return read_kv_cache(await response.text(errors="replace"))
                logger.warning("the metrics of %s cannot be read: HTTP %d", url, response.status)
                return None
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            logger.warning("the metrics of %s cannot be read: %s: %s", url, type(error).__name__, error)
            return None

    @property
    def size(self) -> int:
        """See ``Replicas.size``."""
        return len(self._engines)

    async def pick(self, session: str, lost: Collection[Engine], seconds: float) -> Engine:
        """See ``Replicas.pick``."""
        until = time.monotonic() + seconds
        while True:
            chosen = self._choose(session, lost)
            if chosen is not None:
                return chosen
            if lost and self._engines:
                raise AllLost
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            await self.changed(left)

    async def changed(self, seconds: float) -> None:
        """See ``Replicas.changed``."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({changed}, timeout=seconds)
        finally:
            changed.cancel()

    def deaths(self, engine: Engine) -> int:
        """See ``Replicas.deaths``. Of a replica that is no longer listed, too."""
        return self._deaths.get(engine.url, 0) if isinstance(engine, HttpEngine) else 0

    def _choose(self, session: str, lost: Collection[Engine]) -> HttpEngine | None:
        usable = {url: listed for url, listed in self._engines.items() if listed.engine not in lost}
        here = self._places.get(session)
        if here in usable:
            return usable[here].engine
        open_ = {url: listed for url, listed in usable.items() if not listed.replica.draining}
        if not open_:
            return None
        load = Counter(self._places.values())
        urls = list(open_)
        begin = len(urls) * self._share.number // self._share.of
        url = min(urls[begin:] + urls[:begin], key=lambda each: load[each])
        self._places[session] = url
        return open_[url].engine
