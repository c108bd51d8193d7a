"""Whether verl's replicas have the token routes that sessions need, checked once per process of a replica.

verl's replicas may be asleep when they are found, without weights, and then cannot generate. What is checked needs no
weights: a message is rendered, an id is turned into a message, and ``generate`` gets a body that it has to refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from liverl.sessions.routes import check_routes
from liverl.supervise.services.probes import Http, bearer
from liverl.verl.discovery.assess import Rank

_SECONDS = 10.0  # for one request; the first one may load a tokenizer


class RouteChecks:
    """``model``: the served name; empty where the trials do not go through sessions, so that nothing is checked."""

    def __init__(self, http: Http, model: str, token_file: Path | None) -> None:
        self._http, self._model, self._token_file = http, model, token_file
        self._passed: set[tuple[int, int]] = set()  # (rank, generation)
        self.problems: dict[int, str] = {}  # rank -> why its newest check failed
        self.refused: dict[int, str] = {}  # rank -> why its process will never do

    def passed(self, rank: Rank) -> bool:
        """Whether sessions may use this process of the replica."""
        return not self._model or (rank.rank, rank.generation) in self._passed

    async def look(self, ranks: Iterable[Rank]) -> None:
        """Check the healthy replicas that have not passed yet."""
        due = [rank for rank in ranks if rank.stage == "healthy" and not self.passed(rank)]
        await asyncio.gather(*(self._check(rank) for rank in due))

    async def _check(self, rank: Rank) -> None:
        import aiohttp

        async def post(path: str, body: Mapping[str, Any]) -> tuple[int, str]:
            headers = bearer(self._token_file)
            return await self._http.post(f"{rank.address}{path}", body, _SECONDS, headers=headers)

        try:
            problem = await check_routes(post, self._model, sample=False)
        except TimeoutError:
            self.problems[rank.rank] = f"its token routes did not answer within {_SECONDS:g} s"
            return
        except (OSError, aiohttp.ClientError) as error:
            self.problems[rank.rank] = f"its token routes cannot be checked: {error}"
            return
        if problem is None:
            self._passed.add((rank.rank, rank.generation))
            self.problems.pop(rank.rank, None)
            return
        self.problems[rank.rank] = problem.words
        if problem.final:
            self.refused[rank.rank] = problem.words
