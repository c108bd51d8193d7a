"""Polls for verl's replicas: Ray's list of actors, the actors' addresses, their servers' health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from liverl.causes.verdict.ray_shortage import RayLoad
from liverl.model import Level
from liverl.supervise.services.probes import Http, bearer
from liverl.util import clocks
from liverl.verl.discovery.address_client import AddressClient, AddressClientGone, Answer, Command, NodeAnswer
from liverl.verl.discovery.assess import (
    Expectation,
    Other,
    Rank,
    RankFacts,
    RankVerdict,
    Unhealthy,
    assess,
    by_name,
    choose,
)
from liverl.verl.discovery.names import Engine, parse_name
from liverl.verl.discovery.rank_events import changes
from liverl.verl.discovery.ray_rest import (
    ActorTimes,
    RayActor,
    RayError,
    RayRest,
    VariableToken,
    pending_notes,
    placed,
)

Tell = Callable[[str, Level, "int | None"], None]  # text, level, rank

NOTHING_PRINTED: Mapping[int, str] = MappingProxyType({})
SOON, LATER = 1.0, 3.0  # seconds to the next look: while a replica is missing, and when all are healthy
_CALL = 3.0  # seconds for an actor's answer: 0.24 s was measured; while its engine starts, it does not answer
_HEALTH = 2.0  # seconds for GET /health
# What vLLM 0.24's GET /health returns after EngineDeadError (entrypoints/serve/instrumentator/health.py), and else only
# while it scales elastic expert parallelism, of which verl makes no use.
_ENGINE_DEAD = 503
_GRACE = 0.3  # seconds that a look waits for the actors' answers


class Discovery:
    """Watches the replicas of one trainer in one cluster. Only one ``look`` may run at a time.

    ``api``: base URL of Ray's dashboard, None while it is not up. ``token_file``: of a bearer token, None for a
    cluster without tokens. ``command``: argv and environment of the address client
    (``address_client.address_argv``). ``tell`` is called once for each change. ``clock``: Unix seconds.
    ``replica_token_file``: of the token that the replicas require, None if they require none.
    """

    def __init__(
        self,
        http: Http,
        api: Callable[[], str | None],
        token_file: Path | VariableToken | None,
        expectation: Expectation,
        command: Callable[[], Command],
        log: Path,
        tell: Tell,
        clock: Callable[[], float] = clocks.ran,
        replica_token_file: Path | None = None,
    ) -> None:
        self._http = http
        self._api = api
        self._token_file = token_file
        self._expected = expectation
        self._tell = tell
        self._clock = clock
        self._replica_token_file = replica_token_file
        self._client = AddressClient(command, log)
        self._request: asyncio.Task[tuple[Sequence[RayActor], Answer]] | None = None
        self._times: dict[str, ActorTimes] = {}
        self._addresses: dict[str, str] = {}
        self._silent: dict[str, str] = {}
        self._first_listed: dict[str, float] = {}  # incarnation -> when it was first listed
        self._unreachable_since: float | None = None
        self._reported: dict[str, str] = {}  # kind of trouble -> its text, while it lasts
        self.ranks: tuple[Rank, ...] = assess(expectation, (), RankFacts(), clock()).ranks
        self.others: tuple[Other, ...] = ()
        self.verdict: RankVerdict | None = None
        self.load: RayLoad | None = None  # of the cluster, while a replica has no process yet

    @property
    def all_healthy(self) -> bool:
        """Whether the server of every expected replica responded at the last look."""
        return all(rank.stage == "healthy" for rank in self.ranks)

    @property
    def pid(self) -> int | None:
        """Of the running address client; None while there is none."""
        return self._client.pid

    def expect(self, expectation: Expectation) -> None:
        """Watch the replicas of a newly started trainer. The numbers of their generations continue."""
        before = [msgspec.structs.replace(rank, incarnation="", stage="missing") for rank in self.ranks]
        self._expected = expectation
        self.ranks = assess(expectation, (), RankFacts(), self._clock(), before).ranks
        self.others, self.verdict, self.load = (), None, None

    def recount(self, count: int) -> None:
        """Expect this number of replicas from now on; what is known of those that stay is kept."""
        self._expected = msgspec.structs.replace(self._expected, count=count)
        further = assess(self._expected, (), RankFacts(), self._clock()).ranks[len(self.ranks) :]
        self.ranks = (*self.ranks[:count], *further)

    async def look(self, printed: Mapping[int, str] = NOTHING_PRINTED) -> float:
        """Poll once; returns the seconds until the next poll. If the dashboard fails, ``ranks`` stay as they were.

        ``printed``: addresses (``ip:port``) by rank that this trainer has printed; these actors are not asked.
        """
        base = self._api()
        if base is None:
            return SOON
        expected = self._expected
        rest = RayRest(self._http, base, self._token_file)
        try:
            named = [actor for actor in await rest.actors() if parse_name(actor.name) is not None]
            actors = await placed(rest, named, self._times)
            chosen = choose(expected, by_name(expected, actors))
            counted = list(chosen.values())
            waits = await pending_notes(rest, counted)
            placed_all = len(counted) == expected.count and all(actor.pid for actor in counted)
            load = None if placed_all else await _load(rest) or self.load
        except RayError as error:
            self._dashboard_failed(str(error))
            return SOON
        self._trouble("dashboard", None, "Ray's dashboard responds again")
        self._unreachable_since = None
        self._forget(actors)
        for rank, actor in chosen.items():
            if actor.state == "ALIVE" and rank in printed:
                self._addresses.setdefault(actor.incarnation, f"http://{printed[rank]}")
        await self._ask(counted)
        health = await self._health(counted, expected.engine)
        if expected is not self._expected:
            return SOON  # another trainer was started meanwhile
        now = self._clock()
        for actor in counted:
            self._first_listed.setdefault(actor.incarnation, now)
        facts = RankFacts(self._addresses, self._silent, health, waits)
        judged = assess(expected, actors, facts, now, self.ranks)
        before, self.ranks = self.ranks, judged.ranks
        self.others = judged.others
        self.load = load
        self.verdict = next(iter(judged.verdicts), None)
        for old, new in zip(before, judged.ranks, strict=True):
            first = expected.since if new.generation <= 1 else self._first_listed.get(new.incarnation, now)
            for text, level in changes(old, new, now - first):
                self._tell(text, level, new.rank)
        if not judged.all_healthy:
            return SOON
        if self._request is None:
            await (
                self._client.close()
            )  # it holds vLLM's modules in memory, and is started again for a new actor
        return LATER

    async def ask_nodes(
        self, nodes: Sequence[str], question: Mapping[str, Any], env: Mapping[str, str], timeout: float
    ) -> NodeAnswer:
        """See ``AddressClient.ask_nodes``."""
        return await self._client.ask_nodes(nodes, question, env, timeout)

    async def close(self) -> None:
        """Stop the address client."""
        if self._request is not None:
            self._request.cancel()
            await asyncio.wait({self._request})
        await self._client.close()

    async def _ask(self, counted: Iterable[RayActor]) -> None:
        """Ask the actors whose address is unknown, and store the answers that have arrived."""
        silent = [a for a in counted if a.state == "ALIVE" and a.incarnation not in self._addresses]
        if self._request is None and silent:
            # one request is for one namespace
            actors = [actor for actor in silent if actor.namespace == silent[0].namespace]
            self._request = asyncio.create_task(self._question(actors))
        if self._request is None:
            return
        done, _ = await asyncio.wait({self._request}, timeout=_GRACE)
        if not done:
            return
        task, self._request = self._request, None
        try:
            targets, answer = task.result()
        except AddressClientGone as error:
            self._trouble("addresses", f"cannot get the replicas' addresses: {error}", "")
            self._silent |= {actor.incarnation: str(error) for actor in silent}
            return
        self._trouble("addresses", None, "the replicas' addresses can be read again")
        for actor in targets:
            if actor.name in answer.addresses:
                self._addresses[actor.incarnation] = f"http://{answer.addresses[actor.name]}"
                self._silent.pop(actor.incarnation, None)
            elif actor.name in answer.errors:
                self._silent[actor.incarnation] = answer.errors[actor.name]

    async def _question(self, actors: Sequence[RayActor]) -> tuple[Sequence[RayActor], Answer]:
        names = [actor.name for actor in actors]
        return actors, await self._client.ask(names, actors[0].namespace, _CALL)

    async def _health(self, counted: Iterable[RayActor], engine: Engine) -> dict[str, Unhealthy | None]:
        targets = [
            (actor.incarnation, address)
            for actor in counted
            if actor.state == "ALIVE" and (address := self._addresses.get(actor.incarnation))
        ]
        problems = await asyncio.gather(
            *(health_problem(self._http, address, engine, self._replica_token_file) for _, address in targets)
        )
        return {incarnation: problem for (incarnation, _), problem in zip(targets, problems, strict=True)}

    def _forget(self, actors: Iterable[RayActor]) -> None:
        listed = {actor.incarnation for actor in actors}
        for facts in (self._addresses, self._silent, self._first_listed):
            for unlisted in facts.keys() - listed:
                del facts[unlisted]

    def _dashboard_failed(self, problem: str) -> None:
        now = self._clock()
        self._unreachable_since = now if self._unreachable_since is None else self._unreachable_since
        self._trouble("dashboard", problem, "")
        age, limit = now - self._unreachable_since, self._expected.actor_deadline
        if age >= limit:
            text = f"Ray's actors could not be listed for {age:.0f} s (limit {limit:g} s): {problem}"
            self.verdict = RankVerdict(None, "missing", text)

    def _trouble(self, kind: str, problem: str | None, over: str) -> None:
        """Report a problem of one ``kind`` once when it begins, and report ``over`` when it has ended."""
        if problem is None:
            if self._reported.pop(kind, None) is not None:
                self._tell(over, "info", None)
        elif kind not in self._reported:
            self._reported[kind] = problem
            self._tell(problem, "warning", None)


async def _load(rest: RayRest) -> RayLoad | None:
    """The cluster's load; None if its dashboard does not tell it now."""
    try:
        return await rest.load()
    except RayError:
        return None


async def health_problem(
    http: Http, address: str, engine: Engine, token_file: Path | None = None
) -> Unhealthy | None:
    """Why the server of an ``engine`` at ``address`` (``http://ip:port``) is not healthy; None if ``GET /health``
    returned 200. ``token_file``: of the token that it requires."""
    import aiohttp

    try:
        status, _ = await http.get(f"{address}/health", _HEALTH, headers=bearer(token_file))
    except TimeoutError:
        return Unhealthy(f"the server did not respond to GET /health within {_HEALTH:g} s")
    except aiohttp.ClientConnectorError as error:
        if isinstance(error.os_error, ConnectionRefusedError):
            return Unhealthy(f"nothing listens at {address}")
        return Unhealthy(f"{address} cannot be reached: {error.os_error}")
    except (OSError, ValueError, aiohttp.ClientError) as error:
        return Unhealthy(f"GET /health failed ({type(error).__name__}: {error})")
    if status == 200:
        return None
    problem = f"GET /health returned {status}"
    if engine == "vllm" and status == _ENGINE_DEAD:
        return Unhealthy(f"{problem}, as vLLM does once its EngineCore has ended", engine_ended=True)
    return Unhealthy(problem)
