"""How far the start of each expected replica is, from what Ray, the actors and their servers report. Pure.

A rank is *missing* until Ray lists its actor, *pending* until that is ALIVE, *alive* until it has reported its
address, *addressed* until its server responds, then *healthy*. *dead* and *lost* (Ray no longer lists the actor) are
final for this actor; only a new actor of the same rank replaces it. An actor that lives is *dead* too once two looks
have found that its engine has ended: verl 0.9.1 does not notice, and waits for its replies for ever. After one look it
may be Ray that ends both of them. Each stage has its own time limit, as verl itself has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from liverl.verl.discovery.causes import short_cause
from liverl.verl.discovery.names import Engine, ServerName, parse_name
from liverl.verl.discovery.ray_rest import RayActor, resource_words

Stage = Literal["missing", "pending", "alive", "addressed", "healthy", "dead", "lost"]

_CONTROLLER = "TransferQueueController"


class Expectation(msgspec.Struct, frozen=True):
    """The replicas that are expected: ranks 0 to ``count``-1, each stage within its limit in seconds.

    ``since``: Unix seconds from which a missing actor is waited for. ``watched``: Unix seconds from which this backend
    observes; time before that counts against no limit, as a backend that adopts a run may come hours later.
    ``not_before``: Unix seconds; jobs with an actor that was alive before then belong to an earlier trainer and are
    ignored. ``namespace`` "" = any. ``dead_grace``: seconds that a dead actor may stay without a replacement. verl
    0.9.1 makes none, and its trainer, if it notices, exits about 10 s after a replica's death: with a longer grace
    the exit of the trainer is reported first.
    """

    count: int
    since: float
    actor_deadline: float = 1800.0
    address_deadline: float = 1800.0
    health_deadline: float = 300.0
    dead_grace: float = 15.0
    not_before: float = 0.0
    watched: float = 0.0
    engine: Engine = "vllm"
    namespace: str = ""

    def limit(self, stage: Stage) -> float | None:
        """Seconds that a rank may stay in ``stage``; None = for ever."""
        return {
            "missing": self.actor_deadline,
            "pending": self.actor_deadline,
            "alive": self.address_deadline,
            "addressed": self.health_deadline,
            "dead": self.dead_grace,
            "lost": self.dead_grace,
        }.get(stage)


class Unhealthy(msgspec.Struct, frozen=True):
    """Why a server is not healthy. ``engine_ended``: it has no engine any more, and will not get another one."""

    text: str
    engine_ended: bool = False


class RankFacts(msgspec.Struct, frozen=True):
    """Facts about actors that Ray's list does not have, by ``RayActor.incarnation``.

    ``addresses``: ``http://ip:port``. ``silent``: why there is no address. ``health``: None = the server is healthy;
    no key = not checked yet. ``waits``: more about why an actor is pending.
    """

    addresses: Mapping[str, str] = {}
    silent: Mapping[str, str] = {}
    health: Mapping[str, Unhealthy | None] = {}
    waits: Mapping[str, str] = {}


class Rank(msgspec.Struct, frozen=True):
    """One expected replica. ``since``: Unix seconds when it came into this stage. ``generation`` counts the actors
    (and Ray's own restarts of them) that were seen under this rank, from 1; 0 = none yet."""

    rank: int
    name: str
    stage: Stage
    why: str
    since: float
    actor_state: str | None = None  # Ray's own name of the state
    pid: int | None = None
    ip: str | None = None
    address: str | None = None  # http://ip:port
    generation: int = 0
    incarnation: str = ""
    engine_lost: bool = False  # whether its server has said so, and has not been healthy since


class Other(msgspec.Struct, frozen=True):
    """A server actor that is shown and not counted; ``why`` says why not."""

    name: str
    role: str
    rank: int
    state: str
    pid: int | None
    ip: str | None
    why: str


class RankVerdict(msgspec.Struct, frozen=True):
    """A rank that exceeded a limit. ``text`` says so, beginning with the replica's name; ``rank`` None: Ray's dashboard
    does not respond, so no rank can be seen."""

    rank: int | None
    stage: Stage
    text: str


class Assessment(msgspec.Struct, frozen=True):
    """``verdicts``: dead ranks first, then those in the earliest stage."""

    ranks: tuple[Rank, ...]
    verdicts: tuple[RankVerdict, ...] = ()
    others: tuple[Other, ...] = ()

    @property
    def all_healthy(self) -> bool:
        """Whether the server of every expected rank has responded."""
        return all(rank.stage == "healthy" for rank in self.ranks)


def assess(
    expected: Expectation,
    actors: Iterable[RayActor],
    facts: RankFacts,
    now: float,
    previous: Sequence[Rank] = (),
) -> Assessment:
    """The stage of every rank. ``now``: Unix seconds; ``previous``: the ranks of the previous assessment, from which
    generations and times are carried over."""
    servers = by_name(expected, actors)
    chosen = choose(expected, servers)
    before = {rank.rank: rank for rank in previous}
    ranks = tuple(
        _rank(expected, number, chosen.get(number), facts, now, before.get(number))
        for number in range(expected.count)
    )
    taken = {actor.actor_id for actor in chosen.values()}
    others = tuple(
        _other(expected, name, actor)
        for name, actor in sorted(servers.items(), key=lambda item: item[0].text)
        if actor.actor_id not in taken
    )
    return Assessment(ranks, _verdicts(expected, ranks, now), others)


def by_name(expected: Expectation, actors: Iterable[RayActor]) -> dict[ServerName, RayActor]:
    """The newest actor of each server name; actors of earlier trainers and other namespaces are left out."""
    named = [
        (name, actor)
        for actor in actors
        if (name := parse_name(actor.name)) is not None
        and (not expected.namespace or actor.namespace == expected.namespace)
    ]
    earlier = {
        actor.job_id
        for _, actor in named
        if actor.started_at is not None and actor.started_at < expected.not_before
    }
    newest: dict[ServerName, RayActor] = {}
    for name, actor in named:
        if actor.job_id in earlier:
            continue
        if name not in newest or _newness(actor) > _newness(newest[name]):
            newest[name] = actor
    return newest


def choose(expected: Expectation, servers: Mapping[ServerName, RayActor]) -> dict[int, RayActor]:
    """The actor of each rank: a living one before a dead one, a plain name before a suffixed one."""
    chosen: dict[int, RayActor] = {}
    order = sorted(servers, key=lambda name: (servers[name].dead, name.suffix, name.engine))
    for name in order:
        if name.counted and name.engine == expected.engine and name.rank < expected.count:
            chosen.setdefault(name.rank, servers[name])
    return chosen


def controller_conflict(actors: Iterable[RayActor]) -> str | None:
    """Why a trainer must not be started in this cluster; None if it may be.

    verl's data plane has a fixed name and namespace, so a second job would use the first job's controller.
    """
    for actor in actors:
        if actor.name == _CONTROLLER and not actor.dead:
            return (
                f"the cluster already has a {_CONTROLLER} ({actor.state}, pid {actor.pid or 'unknown'}, "
                f"job {actor.job_id}); two verl jobs cannot share a Ray cluster: stop that job, or use another cluster"
            )
    return None


def _newness(actor: RayActor) -> tuple[bool, str, float, str]:
    moment = actor.started_at or actor.ended_at or 0.0
    return (not actor.dead, actor.job_id, moment, actor.actor_id)


def _rank(
    expected: Expectation, number: int, actor: RayActor | None, facts: RankFacts, now: float, old: Rank | None
) -> Rank:
    generation = 0 if old is None else old.generation
    if actor is None:
        if old is not None and old.incarnation:
            lost = msgspec.structs.replace(
                old,
                stage="lost",
                why=f"Ray no longer lists the actor {old.name}",
                actor_state=None,
                pid=None,
                address=None,
            )
            return lost if old.stage == "lost" else msgspec.structs.replace(lost, since=now)
        plain = ServerName(expected.engine, "policy", number).text
        why = f"Ray lists no actor named {plain}"
        since = max(expected.since, expected.watched)
        return Rank(number, plain, "missing", why, since, generation=generation)
    key = actor.incarnation
    stage, why = _stage(actor, facts)
    before = old if old is not None and old.incarnation == key else None  # of the same process
    problem = facts.health.get(key)
    ended = problem if problem is not None and problem.engine_ended else None
    ended_before = before is not None and before.engine_lost
    if ended is not None and ended_before:
        stage, why = "dead", f"ALIVE without an engine: {ended.text}"
    elif before is not None and before.stage == "dead" and stage in ("alive", "addressed"):
        # A server that lost its engine may also be slow: it has none nevertheless.
        stage, why = "dead", before.why
    if before is not None and before.stage == stage:
        since = before.since
    else:
        reported = {"alive": actor.started_at, "dead": actor.ended_at}.get(stage)
        since = now if reported is None else min(reported, now)
        if stage == "alive":
            since = max(since, expected.watched)
    return Rank(
        rank=number,
        name=actor.name,
        stage=stage,
        why=why,
        since=since,
        actor_state=actor.state,
        pid=None if actor.dead else actor.pid,
        ip=actor.ip,
        address=facts.addresses.get(key) if stage in ("addressed", "healthy") else None,
        generation=generation if before is not None else generation + 1,
        incarnation=key,
        engine_lost=(ended is not None or ended_before) and stage != "healthy",
    )


def _stage(actor: RayActor, facts: RankFacts) -> tuple[Stage, str]:
    key = actor.incarnation
    if actor.dead:
        return "dead", f"DEAD: {short_cause(actor.death)}"
    if actor.state != "ALIVE":
        return "pending", f"{actor.state}: {_waiting(actor, facts.waits.get(key, ''))}"
    if key not in facts.addresses:
        reason = facts.silent.get(key)
        return "alive", "ALIVE, but the actor has not reported its address" + (
            f" ({reason})" if reason else ""
        )
    if key not in facts.health:
        return "addressed", "ALIVE, but the server has not been checked yet"
    problem = facts.health[key]
    if problem is None:
        return "healthy", "healthy"
    return "addressed", f"ALIVE, but {problem.text}"


def _waiting(actor: RayActor, note: str) -> str:
    more = f"; {note}" if note else ""
    if actor.state == "DEPENDENCIES_UNREADY":
        return "waiting for the arguments of the actor's constructor" + more
    if actor.pid:
        return f"the actor's constructor is still running (pid {actor.pid})" + more
    if actor.resources:
        return f"waiting for resources {resource_words(actor.resources)}" + more
    return "waiting for Ray to start the actor's process" + more


def _other(expected: Expectation, name: ServerName, actor: RayActor) -> Other:
    if name.role != "policy":
        why = f"a {name.role} server"
    elif name.node_rank > 0:
        why = f"node {name.node_rank} of replica {name.rank}"
    elif name.engine != expected.engine:
        why = f"a {name.engine} server; expected {expected.engine}"
    elif name.rank >= expected.count:
        why = f"not one of the {expected.count} expected replicas"
    else:
        why = f"a second actor of replica {name.rank}"
    return Other(actor.name, name.role, name.rank, actor.state, actor.pid, actor.ip, why)


def _verdicts(expected: Expectation, ranks: Iterable[Rank], now: float) -> tuple[RankVerdict, ...]:
    order: tuple[Stage, ...] = ("dead", "lost", "pending", "missing", "alive", "addressed")
    verdicts = []
    for rank in ranks:  # by number; the sort by stage is stable
        limit = expected.limit(rank.stage)
        age = now - rank.since
        if limit is not None and age >= limit:
            verdicts.append(RankVerdict(rank.rank, rank.stage, _verdict_words(rank, age, limit)))
    return tuple(sorted(verdicts, key=lambda verdict: order.index(verdict.stage)))


def _verdict_words(rank: Rank, age: float, limit: float) -> str:
    for_so_long = f"for {age:.0f} s (limit {limit:g} s)"
    state, _, reason = rank.why.partition(": ")
    if rank.stage == "pending":
        return f"{rank.name} has been {state} {for_so_long}: {reason}"
    if rank.stage == "missing":
        return f"{rank.name} has been missing {for_so_long}: {rank.why}; check the trainer's log"
    if rank.stage == "alive":
        problem, _, detail = rank.why.partition(" (")
        return f"{rank.name} is {problem} {for_so_long}" + (f": {detail[:-1]}" if detail else "")
    if rank.stage == "addressed":
        return f"{rank.name} at {rank.address} has not been healthy {for_so_long}: {rank.why}"
    if rank.stage == "lost":
        return f"{rank.name} is lost and was not replaced within {limit:g} s: {rank.why}"
    return f"{rank.name} is {state} and was not replaced within {limit:g} s: {reason}"
