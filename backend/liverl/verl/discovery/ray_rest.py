"""Ray's dashboard REST API as facts about actors and nodes, without importing Ray. Written on Ray 2.60.

``/api/v0/actors?detail=true`` knows state, pid and death cause, but neither times nor addresses;
``/logical/actors?ids=`` knows those. ``pid`` of an actor that is PENDING_CREATION is 0 while it has no process, and
that of its process while its constructor runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from liverl.causes.verdict.ray_shortage import RayLoad
from liverl.supervise.services.probes import Http, bearer
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json, decode_loose_json
from liverl.verl.discovery.causes import death_words

# The most rows in one answer of the API (RAY_MAX_LIMIT_FROM_API_SERVER); it has no pages.
LIMIT = 10_000
# Seconds for one answer. 10 ms were measured (14 actors, quiet machine); more on two busy cores.
TIMEOUT = 5.0
_LIVING = ("ALIVE", "PENDING_CREATION", "DEPENDENCIES_UNREADY", "RESTARTING")


class RayError(Exception):
    """The dashboard gave no usable answer; the text says why."""


class RayActor(msgspec.Struct, frozen=True):
    """One actor. ``state`` is Ray's own: DEPENDENCIES_UNREADY, PENDING_CREATION, ALIVE, RESTARTING or DEAD.

    ``death``: Ray's whole cause of death. ``resources``: required while it runs. ``started_at`` (it became ALIVE)
    and ``ended_at`` are Unix seconds.
    """

    actor_id: str
    name: str = ""
    class_name: str = ""
    state: str = ""
    pid: int | None = None
    node_id: str | None = None
    namespace: str = ""
    job_id: str = ""
    resources: dict[str, float] = {}
    placement_group: str | None = None
    restarts: int = 0
    death: str = ""
    ip: str | None = None
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def incarnation(self) -> str:
        """Identifies one process of this name: Ray restarts an actor under the same id, verl creates a new actor."""
        return f"{self.actor_id}.{self.restarts}"

    @property
    def dead(self) -> bool:
        """Whether Ray has given the actor up; one that Ray restarts is RESTARTING."""
        return self.state == "DEAD"


class ActorTimes(msgspec.Struct, frozen=True):
    """Where an actor ran and when; Unix seconds."""

    ip: str | None = None
    started_at: float | None = None
    ended_at: float | None = None


class RayNode(msgspec.Struct, frozen=True):
    """One node of the cluster. ``state``: ALIVE or DEAD; ``resources``: all it has, used or not."""

    node_id: str
    ip: str
    state: str
    resources: dict[str, float] = {}
    name: str = ""
    message: str = ""  # why it is DEAD
    lived: float | None = None  # seconds, of one that is DEAD


class RayGpu(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU in a node's figures. ``utilization_gpu``: percent; memory in MB (2**20 bytes)."""

    index: int
    uuid: str
    name: str = ""
    utilization_gpu: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    processes_pids: dict[str, Any] | None = None  # by pid, as text
    power_mw: float | None = None
    temperature_c: float | None = None


class _Worker(msgspec.Struct, frozen=True):
    pid: int = 0


class _Raylet(msgspec.Struct, frozen=True, rename="camel"):
    node_id: str = ""
    temp_dir: str = ""
    core_workers_stats: tuple[_Worker, ...] | None = None


class _Disk(msgspec.Struct, frozen=True):
    total: int
    free: int


class RayFigures(msgspec.Struct, frozen=True):
    """What the agent of a node has measured. ``now``: when, on that node's clock; ``mem``: total, available, percent,
    used; ``disk``: by mounted directory; sizes in bytes. All is missing of a node whose agent has sent nothing yet, or
    that is DEAD."""

    raylet: _Raylet = _Raylet()
    now: float | None = None
    cpu: float | None = None
    mem: tuple[float, ...] | None = None
    shm: float | None = None
    disk: dict[str, _Disk] | None = None
    gpus: tuple[RayGpu, ...] | None = None

    @property
    def workers(self) -> frozenset[int]:
        """The pids of Ray's workers on it."""
        return frozenset(worker.pid for worker in self.raylet.core_workers_stats or ())

    @property
    def ray_disk(self) -> _Disk | None:
        """The file system of Ray's directory on it."""
        disks = self.disk or {}
        return disks.get(self.raylet.temp_dir) or disks.get("/")


class _Summary(msgspec.Struct, frozen=True):
    summary: tuple[RayFigures, ...]


class _SummaryReply(msgspec.Struct, frozen=True):
    data: _Summary


class VariableToken(msgspec.Struct, frozen=True):
    """A cluster's token that a variable holds, as in the pods of KubeRay."""

    text: str
    name: str = "RAY_AUTH_TOKEN"

    def __repr__(self) -> str:
        return f"VariableToken({self.name})"  # it gets into no log


def variable_token(env: Mapping[str, str]) -> VariableToken | None:
    """The token that Ray itself would take from ``env`` before any file (Ray 2.60); None without one."""
    text = env.get("RAY_AUTH_TOKEN", "").strip()
    return VariableToken(text) if text and env.get("RAY_AUTH_MODE", "").lower() == "token" else None


class RayRest:
    """Queries the dashboard at ``base`` (``http://host:port``). ``token_file`` None = a cluster without tokens."""

    def __init__(self, http: Http, base: str, token_file: Path | VariableToken | None = None) -> None:
        self._http = http
        self._base = base
        self._token_file = token_file

    async def version(self) -> str:
        """Ray's version; the cheapest request, so it also tells whether the dashboard responds.

        Raises:
            RayError: the dashboard gave no usable answer.
        """
        return _text((await self._get("/api/version", {})).get("ray_version"))

    async def actors(self) -> tuple[RayActor, ...]:
        """The named actors of all namespaces, dead ones included.

        Raises:
            RayError: no usable answer, or more living actors of one state than one answer holds.
        """
        rows, cut = await self._list([("name", "!=", "")])
        if cut is not None:  # most of them are dead, and Ray cuts the list before it filters by name
            for state in _LIVING:
                more, cut = await self._list([("name", "!=", ""), ("state", "=", state)])
                if cut is not None:
                    raise RayError(
                        f"Ray's dashboard lists only {LIMIT} of {cut} {state} actors, so replicas may be missing"
                    )
                rows += more
        return tuple({actor.actor_id: actor for actor in parse_actors(rows)}.values())

    async def times(self, ids: Iterable[str]) -> dict[str, ActorTimes]:
        """Place and times of these actors by actor id; those that the dashboard does not know (yet) are left out.

        Raises:
            RayError: the dashboard gave no usable answer.
        """
        query = {"ids": ",".join(ids), "nocache": "1"}
        rows = _mapping((await self._get("/logical/actors", query)).get("data")).get("actors")
        return {key: parse_times(row) for key, row in _mapping(rows).items() if isinstance(row, Mapping)}

    async def nodes(self) -> tuple[RayNode, ...]:
        """The nodes of the cluster, dead ones included.

        Raises:
            RayError: the dashboard gave no usable answer.
        """
        reply = await self._get("/api/v0/nodes", {"detail": "true", "limit": str(LIMIT)})
        return tuple(
            RayNode(
                node_id=_text(row.get("node_id")),
                ip=_text(row.get("node_ip")),
                state=_text(row.get("state")),
                resources=_numbers(row.get("resources_total")),
                name=_text(row.get("node_name")),
                message=_text(row.get("state_message")),
                lived=_lived(row),
            )
            for row in _rows(reply)
        )

    async def figures(self) -> dict[str, RayFigures]:
        """What the agents of the nodes have measured, by node id. Ray's copy is renewed every 5 s, and up to 15 s old.

        Raises:
            RayError: the dashboard gave no usable answer.
        """
        where = f"Ray's dashboard at {self._base}"
        status, text = await self._answer("/nodes", {"view": "summary"})
        if status != 200:
            raise RayError(f"{where} failed: GET /nodes returned {status} ({text[:200]})")
        try:
            reply = decode_json(text, type=_SummaryReply)
        except BAD_JSON as error:
            raise RayError(f"{where} tells the nodes' figures in another form: {error}") from error
        return {one.raylet.node_id: one for one in reply.data.summary if one.raylet.node_id}

    async def placement_group(self, group: str) -> str | None:
        """State of one placement group (``PENDING, INFEASIBLE``); None if Ray does not list it.

        Raises:
            RayError: the dashboard gave no usable answer.
        """
        query = {"detail": "true", "limit": str(LIMIT)}
        for row in _rows(await self._get("/api/v0/placement_groups", query)):
            if row.get("placement_group_id") == group:
                step = _text(_mapping(row.get("stats")).get("scheduling_state"))
                return ", ".join(word for word in (_text(row.get("state")), step) if word)
        return None

    async def load(self) -> RayLoad:
        """What the cluster has, what is in use, and what waits for resources. Ray's monitor updates it every 5 s.

        Raises:
            RayError: the dashboard gave no usable answer.
        """
        status = _mapping(
            _mapping((await self._get("/api/cluster_status", {})).get("data")).get("clusterStatus")
        )
        return parse_load(_mapping(status.get("loadMetricsReport")))

    async def _list(
        self, filters: Sequence[tuple[str, str, str]]
    ) -> tuple[list[Mapping[str, Any]], int | None]:
        """Rows, and the number of all actors if Ray left some out."""
        query = [("detail", "true"), ("limit", str(LIMIT))]
        for key, predicate, value in filters:
            query += [("filter_keys", key), ("filter_predicates", predicate), ("filter_values", value)]
        reply = await self._get("/api/v0/actors", query)
        rows = _rows(reply)
        about = _mapping(_mapping(reply.get("data")).get("result"))
        total, kept, fitting = (_int(about.get(k)) for k in ("total", "num_after_truncation", "num_filtered"))
        cut = total > kept or fitting > len(rows)
        return rows, total if cut else None

    async def _get(
        self, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]]
    ) -> Mapping[str, Any]:
        status, text = await self._answer(path, query)
        where = f"Ray's dashboard at {self._base}"
        try:
            reply = decode_loose_json(text)
        except (ValueError, RecursionError) as error:
            raise RayError(
                f"{where} failed: GET {path} returned {status} with a body that is not JSON: {text[:80]!r}"
            ) from error
        if status != 200 or not isinstance(reply, Mapping):
            message = _text(_mapping(reply).get("msg")) or text[:200]
            raise RayError(f"{where} failed: GET {path} returned {status} ({message})")
        return reply

    async def _answer(
        self, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]]
    ) -> tuple[int, str]:
        import aiohttp

        where = f"Ray's dashboard at {self._base}"
        try:
            headers = _headers(self._token_file)
        except (OSError, ValueError) as error:
            raise RayError(f"cannot read Ray's token file: {error}") from error
        try:
            url = f"{self._base}{path}?{urlencode(query)}"
            status, text = await self._http.get(url, TIMEOUT, headers=headers)
        except TimeoutError as error:
            raise RayError(f"{where} did not respond within {TIMEOUT:g} s") from error
        except aiohttp.ClientConnectorError as error:
            refused = isinstance(error.os_error, ConnectionRefusedError)
            raise RayError(
                f"{where} refused the connection; check that Ray is running"
                if refused
                else f"cannot connect to {where}: {error}"
            ) from error
        except (OSError, ValueError, aiohttp.ClientError) as error:
            raise RayError(f"the request to {where} failed ({type(error).__name__}: {error})") from error
        if status in (401, 403):
            refusal = "requires a token" if status == 401 else "rejected the token"
            file = self._token_file
            where_to = file.name if isinstance(file, VariableToken) else file
            hint = "set ray.auth_token_file" if file is None else f"check the token in {where_to}"
            raise RayError(f"{where} {refusal} (GET {path} returned {status}); {hint}")
        return status, text


def _headers(token: Path | VariableToken | None) -> dict[str, str] | None:
    if isinstance(token, VariableToken):
        return {"Authorization": f"Bearer {token.text}"}
    return None if token is None else bearer(token)


async def placed(rest: RayRest, actors: Sequence[RayActor], cache: dict[str, ActorTimes]) -> list[RayActor]:
    """``actors`` with the place and times that the dashboard reports. ``cache`` is updated: it holds them by
    incarnation and state, so that each is requested once.

    Raises:
        RayError: the dashboard gave no usable answer.
    """

    def key(actor: RayActor) -> str:
        return f"{actor.incarnation} {actor.state}"

    keys = {key(actor) for actor in actors}
    for old in cache.keys() - keys:
        del cache[old]
    unknown = [a for a in actors if a.state in ("ALIVE", "DEAD") and key(a) not in cache]
    if unknown:
        by_id = await rest.times(actor.actor_id for actor in unknown)
        for actor in unknown:
            times = by_id.get(actor.actor_id)
            # The dashboard's copy lags behind: times that do not fit the state are requested again.
            settled = times and (times.ended_at if actor.dead else times.started_at) is not None
            if times is not None and settled:
                cache[key(actor)] = times
    nothing = ActorTimes()
    return [
        msgspec.structs.replace(a, ip=t.ip, started_at=t.started_at, ended_at=t.ended_at)
        for a in actors
        for t in (cache.get(key(a), nothing),)
    ]


async def pending_notes(rest: RayRest, actors: Iterable[RayActor]) -> dict[str, str]:
    """Why these pending actors have no process, from the state of placement groups and nodes, by incarnation.

    Raises:
        RayError: the dashboard gave no usable answer.
    """
    waiting = [a for a in actors if a.state == "PENDING_CREATION" and not a.pid and a.resources]
    if not waiting:
        return {}
    groups = sorted({a.placement_group for a in waiting if a.placement_group})
    nodes = await rest.nodes()
    by_group = {group: await rest.placement_group(group) for group in groups}
    notes = {}
    for actor in waiting:
        if actor.placement_group:
            state = by_group[actor.placement_group] or "not listed"
            notes[actor.incarnation] = f"the actor's placement group {actor.placement_group[:8]} is {state}"
            continue
        alive = [node.resources for node in nodes if node.state == "ALIVE"]
        largest = {name: max((n.get(name, 0.0) for n in alive), default=0.0) for name in actor.resources}
        short = {name: most for name, most in largest.items() if most < actor.resources[name]}
        notes[actor.incarnation] = (
            f"no node has more than {resource_words(short)}" if short else "other actors are using them"
        )
    return notes


def parse_actors(rows: Iterable[object]) -> list[RayActor]:
    """Actors in rows of ``/api/v0/actors``; other rows are skipped, unknown fields are ignored."""
    actors = []
    for row in rows:
        if not isinstance(row, Mapping) or not _text(row.get("actor_id")):
            continue
        actors.append(
            RayActor(
                actor_id=_text(row["actor_id"]),
                name=_text(row.get("name")),
                class_name=_text(row.get("class_name")),
                state=_text(row.get("state")).upper(),
                pid=_int(row.get("pid")) or None,
                node_id=_text(row.get("node_id")) or None,
                namespace=_text(row.get("ray_namespace")),
                job_id=_text(row.get("job_id")),
                resources=_numbers(row.get("required_resources")),
                placement_group=_text(row.get("placement_group_id")) or None,
                restarts=_int(row.get("num_restarts")),
                death=death_words(row.get("death_cause")),
            )
        )
    return actors


def parse_load(report: Mapping[str, Any]) -> RayLoad:
    """``loadMetricsReport`` of ``/api/cluster_status``; what has another form is left out."""
    usage = {
        name: (float(pair[0]), float(pair[1]))
        for name, pair in _mapping(report.get("usage")).items()
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, int | float) for one in pair)
    }
    groups = [_sum(_pairs(_mapping(group).get("bundles"))) for group, _ in _pairs(report.get("pgDemand"))]
    actors = [_numbers(asked) for asked, _ in _pairs(report.get("resourceDemand"))]
    return RayLoad(
        {name: used for name, (used, _) in usage.items()},
        {name: total for name, (_, total) in usage.items()},
        tuple(asked for asked in (*groups, *actors) if asked),
    )


def _pairs(value: object) -> list[tuple[object, int]]:
    """``[[x, number], ...]``."""
    rows = value if isinstance(value, list) else []
    return [(row[0], _int(row[1])) for row in rows if isinstance(row, list) and len(row) == 2]


def _sum(bundles: Iterable[tuple[object, int]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle, number in bundles:
        for name, amount in _numbers(bundle).items():
            total[name] = total.get(name, 0.0) + number * amount
    return total


def parse_times(row: Mapping[str, Any]) -> ActorTimes:
    """Place and times in a row of ``/logical/actors``, which counts milliseconds and says 0 for never."""
    address = _mapping(row.get("address"))
    started, ended = _int(row.get("startTime")), _int(row.get("endTime"))
    return ActorTimes(
        ip=_text(address.get("ipAddress")) or None,
        started_at=started / 1000 if started > 0 else None,
        ended_at=ended / 1000 if ended > 0 else None,
    )


def resource_words(resources: Mapping[str, float]) -> str:
    """``{CPU: 1000}``. A placement group's own names for its resources (``CPU_group_e7ae..``) are left out where
    they repeat the plain one."""
    plain: dict[str, float] = {}
    for name, amount in sorted(resources.items()):
        kind = name.partition("_group_")[0]
        if kind != "bundle":
            plain[kind] = max(plain.get(kind, 0.0), amount)
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in plain.items()) + "}"


def _rows(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = _mapping(_mapping(reply.get("data")).get("result")).get("result")
    if not isinstance(rows, list):
        raise RayError(f"Ray's dashboard returned no list ({str(reply)[:200]})")
    return [row for row in rows if isinstance(row, Mapping)]


def _lived(row: Mapping[str, Any]) -> float | None:
    began, ended = _int(row.get("start_time_ms")), _int(row.get("end_time_ms"))
    return (ended - began) / 1000 if began and ended >= began else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _int(value: object) -> int:
    """Whole numbers come as numbers or as text; anything else is 0."""
    try:
        return int(value) if isinstance(value, (int, float, str)) else 0
    except (ValueError, OverflowError):
        return 0


def _numbers(value: object) -> dict[str, float]:
    return {
        str(k): float(v)
        for k, v in _mapping(value).items()
        if isinstance(v, (int, float)) and not isinstance(v, bool)
    }
