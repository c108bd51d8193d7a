"""Looking for verl's replicas again and again: Ray's list, the actors' addresses, their servers' health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from liverl.model import Level
from liverl.supervise.services.probes import Http
from liverl.verl.discovery.address_client import AddressClient, AddressClientGone, Answer, Command
from liverl.verl.discovery.assess import (
    Expectation,
    Other,
    Rank,
    RankFacts,
    RankVerdict,
    assess,
    by_name,
    choose,
)
from liverl.verl.discovery.names import parse_name
from liverl.verl.discovery.rank_events import changes
from liverl.verl.discovery.ray_rest import ActorTimes, RayActor, RayError, RayRest, pending_notes, placed

Tell = Callable[[str, Level, "int | None"], None]  # text, level, rank

NOTHING_PRINTED: Mapping[int, str] = MappingProxyType({})
SOON, LATER = 1.0, 3.0  # seconds to the next look: while somebody is missing, and when all are healthy
_CALL = 3.0  # seconds for an actor's answer: 0.24 s was measured, and none at all while its engine starts
_HEALTH = 2.0  # seconds for GET /health
_GRACE = 0.3  # seconds in which the actors' answers may still count for this look


class Discovery:
    """One cluster, one trainer. Only one ``look`` at a time.

    ``api``: base URL of Ray's dashboard, None while it is not up. ``token_file``: of a bearer token, None for a
    cluster without tokens. ``command``: argv and environment of the child that asks for addresses
    (``address_client.address_argv``). ``tell`` hears every change once. ``clock``: Unix seconds.
    """

    def __init__(
        self,
        http: Http,
        api: Callable[[], str | None],
        token_file: Path | None,
        expectation: Expectation,
        command: Callable[[], Command],
        log: Path,
        tell: Tell,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._http = http
        self._api = api
        self._token_file = token_file
        self._expected = expectation
        self._tell = tell
        self._clock = clock
        self._client = AddressClient(command, log)
        self._asking: asyncio.Task[tuple[Sequence[RayActor], Answer]] | None = None
        self._times: dict[str, ActorTimes] = {}
        self._addresses: dict[str, str] = {}
        self._silent: dict[str, str] = {}
        self._seen: dict[str, float] = {}  # incarnation -> when it was first listed
        self._blind_since: float | None = None
        self._told: dict[str, str] = {}  # kind of trouble -> words, while it lasts
        self.ranks: tuple[Rank, ...] = assess(expectation, (), RankFacts(), clock()).ranks
        self.others: tuple[Other, ...] = ()
        self.verdict: RankVerdict | None = None

    @property
    def all_healthy(self) -> bool:
        return all(rank.stage == "healthy" for rank in self.ranks)

    @property
    def pid(self) -> int | None:
        """Of the child that asks for addresses, if there is one."""
        return self._client.pid

    def expect(self, expectation: Expectation) -> None:
        """Another trainer has been started: its replicas are new ones, and generations go on counting."""
        before = [msgspec.structs.replace(rank, incarnation="", stage="missing") for rank in self.ranks]
        self._expected = expectation
        self.ranks = assess(expectation, (), RankFacts(), self._clock(), before).ranks
        self.others, self.verdict = (), None

    async def look(self, printed: Mapping[int, str] = NOTHING_PRINTED) -> float:
        """Look once; returns the seconds until the next look. What cannot be seen now stays as it was.

        ``printed``: addresses (``ip:port``) by rank that this trainer has printed; they save the question.
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
        except RayError as error:
            self._blind(str(error))
            return SOON
        self._trouble("dashboard", None, "Ray's dashboard responds again")
        self._blind_since = None
        self._forget(actors)
        for rank, actor in chosen.items():
            if actor.state == "ALIVE" and rank in printed:
                self._addresses.setdefault(actor.incarnation, f"http://{printed[rank]}")
        await self._ask(counted)
        health = await self._health(counted)
        if expected is not self._expected:
            return SOON  # another trainer was started meanwhile
        now = self._clock()
        for actor in counted:
            self._seen.setdefault(actor.incarnation, now)
        facts = RankFacts(self._addresses, self._silent, health, waits)
        judged = assess(expected, actors, facts, now, self.ranks)
        before, self.ranks = self.ranks, judged.ranks
        self.others = judged.others
        self.verdict = next(iter(judged.verdicts), None)
        for old, new in zip(before, judged.ranks, strict=True):
            first = expected.since if new.generation <= 1 else self._seen.get(new.incarnation, now)
            for text, level in changes(old, new, now - first):
                self._tell(text, level, new.rank)
        if not judged.all_healthy:
            return SOON
        if self._asking is None:
            await self._client.close()  # it holds vLLM's modules in memory; a new actor starts it again
        return LATER

    async def close(self) -> None:
        """Ends the child."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        await self._client.close()

    async def _ask(self, counted: Iterable[RayActor]) -> None:
        """Put the question to the actors that have told no address, and take what has been answered."""
        silent = [a for a in counted if a.state == "ALIVE" and a.incarnation not in self._addresses]
        if self._asking is None and silent:
            # the child is asked about one namespace at a time
            one = [actor for actor in silent if actor.namespace == silent[0].namespace]
            self._asking = asyncio.create_task(self._question(one))
        if self._asking is None:
            return
        done, _ = await asyncio.wait({self._asking}, timeout=_GRACE)
        if not done:
            return
        task, self._asking = self._asking, None
        try:
            asked, answer = task.result()
        except AddressClientGone as error:
            self._trouble("addresses", f"cannot query the actors' addresses: {error}", "")
            self._silent |= {actor.incarnation: f"cannot query its address: {error}" for actor in silent}
            return
        self._trouble("addresses", None, "the actors' addresses can be queried again")
        for actor in asked:
            if actor.name in answer.addresses:
                self._addresses[actor.incarnation] = f"http://{answer.addresses[actor.name]}"
                self._silent.pop(actor.incarnation, None)
            elif actor.name in answer.errors:
                self._silent[actor.incarnation] = answer.errors[actor.name]

    async def _question(self, actors: Sequence[RayActor]) -> tuple[Sequence[RayActor], Answer]:
        names = [actor.name for actor in actors]
        return actors, await self._client.ask(names, actors[0].namespace, _CALL)

    async def _health(self, counted: Iterable[RayActor]) -> dict[str, str | None]:
        known = [
            (actor.incarnation, address)
            for actor in counted
            if actor.state == "ALIVE" and (address := self._addresses.get(actor.incarnation))
        ]
        problems = await asyncio.gather(*(health_problem(self._http, address) for _, address in known))
        return {incarnation: problem for (incarnation, _), problem in zip(known, problems, strict=True)}

    def _forget(self, actors: Iterable[RayActor]) -> None:
        listed = {actor.incarnation for actor in actors}
        for facts in (self._addresses, self._silent, self._seen):
            for gone in facts.keys() - listed:
                del facts[gone]

    def _blind(self, problem: str) -> None:
        now = self._clock()
        self._blind_since = now if self._blind_since is None else self._blind_since
        self._trouble("dashboard", problem, "")
        age, limit = now - self._blind_since, self._expected.actor_deadline
        if age >= limit:
            text = f"cannot list Ray's actors for {age:.0f} s (limit {limit:g} s): {problem}"
            self.verdict = RankVerdict(None, "missing", text)

    def _trouble(self, kind: str, problem: str | None, over: str) -> None:
        """Tell trouble of one kind when it begins and when it is over, however its words change."""
        if problem is None:
            if self._told.pop(kind, None) is not None:
                self._tell(over, "info", None)
        elif kind not in self._told:
            self._told[kind] = problem
            self._tell(problem, "warning", None)


async def health_problem(http: Http, address: str) -> str | None:
    """What ``GET /health`` of ``http://ip:port`` did instead of answering 200."""
    import aiohttp

    try:
        status, _ = await http.get(f"{address}/health", _HEALTH)
    except TimeoutError:
        return f"no response from /health within {_HEALTH:g} s"
    except aiohttp.ClientConnectorError as error:
        if isinstance(error.os_error, ConnectionRefusedError):
            return f"nothing listens at {address}"
        return f"{address} cannot be reached: {error.os_error}"
    except (OSError, ValueError, aiohttp.ClientError) as error:
        return f"GET /health failed: {type(error).__name__}: {error}"
    return None if status == 200 else f"GET /health returned {status}"
