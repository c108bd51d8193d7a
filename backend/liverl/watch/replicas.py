"""Replicas that somebody else started: asked by GET /health and GET /metrics, and nothing else. A replica that its
trainer has put to sleep must get no completion; of SGLang the list of models is asked for instead of /health."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from liverl.engines import ENGINES, WATCHED
from liverl.external.model_list import Place, place
from liverl.model import EngineFacts, ReplicaStatus, ServiceState
from liverl.observe.engine.store import EngineStore
from liverl.watch.http import Refused, get

ENGINE = ENGINES["vllm"]
TIMEOUT = 3.0  # seconds for one answer; /health takes milliseconds on a server that is well
AT_ONCE = 8
_WANTS_A_KEY = ("returned 401", "returned 403")  # a server that refuses who asks, and lives
MOST = 256  # replicas


class Candidate(msgspec.Struct, frozen=True):
    """A replica that may be there. ``address``: http://host:port, None if unknown; ``pid`` and ``started_at`` (Unix
    seconds): of its process, if that is visible; ``state`` and ``why``: what Ray says of its actor."""

    name: str
    address: str | None
    pid: int | None = None
    started_at: float | None = None
    kind: str = "found"
    state: ServiceState | None = None
    why: str = ""
    engine: str = "vllm"  # of ``engines.WATCHED``


class Answer(msgspec.Struct, frozen=True):
    """What a replica answered. ``health``: None if it is well, else what is wrong; ``answered``: anything did;
    ``note``: why its load is not known, "" if it is."""

    health: str | None
    answered: bool
    facts: EngineFacts | None = None
    note: str = ""


class ReplicaProbes:
    """Asks all candidates at once; keeps the facts of each, whose rates need two answers."""

    def __init__(self) -> None:
        self._stores = {name: EngineStore(engine.metrics) for name, engine in WATCHED.items()}

    def ask(self, candidates: Iterable[Candidate]) -> dict[str, Answer]:
        """Answers by name."""
        known = [one for one in candidates if one.address is not None][:MOST]
        if not known:
            return {}
        with ThreadPoolExecutor(min(AT_ONCE, len(known))) as pool:
            return dict(zip((one.name for one in known), pool.map(self._ask, known), strict=True))

    def _ask(self, candidate: Candidate) -> Answer:
        store = self._stores[candidate.engine]
        path = WATCHED[candidate.engine].health
        health, answered = _health(f"{candidate.address}", path)
        if health is not None and health.endswith(_WANTS_A_KEY):
            return Answer(None, answered, note=f"{health}: it requires a key, so its load is unknown")
        if not answered:
            store.forget(candidate.name)
            return Answer(health, answered)
        try:
            status, text = get(f"{candidate.address}/metrics", TIMEOUT)
        except Refused:
            return Answer(health, answered)
        facts = store.scraped(candidate.name, time.monotonic(), text) if status == 200 else None
        return Answer(health, answered, facts)


def _health(address: str, path: str) -> tuple[str | None, bool]:
    try:
        status, _ = get(f"{address}{path}", TIMEOUT)
    except Refused as error:
        return f"GET {path}: {error}", False
    return (None if status == 200 else f"GET {path} returned {status}"), True


class ReplicaStates:
    """The state of each replica over time: one that has been well and is not any more is degraded."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}  # name -> Unix time of its first good answer
        self._since: dict[str, tuple[ServiceState, float]] = {}

    def status(
        self,
        candidate: Candidate,
        answer: Answer | None,
        now: float,
        *,
        listed: bool,
        gpus: tuple[str, ...] = (),
        stage: tuple[str, float | None] | None = None,
    ) -> ReplicaStatus:
        """The replica as of ``now``, Unix seconds. ``listed``: the proxy routes to it; ``stage``: of its start, by its
        log."""
        state, why = self._state(candidate, answer, now)
        before = self._since.get(candidate.name)
        if before is None or before[0] != state:
            began = candidate.started_at if before is None and candidate.started_at else now
            self._since[candidate.name] = state, began
        starting = state == "starting" and stage is not None
        return ReplicaStatus(
            name=candidate.name,
            state=state,
            address=candidate.address,
            listed=listed and state == "ready",
            generation=1,
            gpus=gpus,
            engine=answer.facts if answer is not None and answer.facts is not None else EngineFacts(),
            since=self._since[candidate.name][1],
            stage=stage[0] if starting and stage is not None else None,
            progress=stage[1] if starting and stage is not None else None,
            kind=candidate.kind,
            why=why,
            pid=candidate.pid,
        )

    def _state(self, candidate: Candidate, answer: Answer | None, now: float) -> tuple[ServiceState, str]:
        if candidate.state is not None and candidate.state not in ("ready", "starting"):
            return candidate.state, candidate.why
        if answer is None:
            return (candidate.state or "starting"), candidate.why or "it was not asked yet"
        if answer.health is None:
            self._served.setdefault(candidate.name, now)
            return "ready", answer.note
        if candidate.name in self._served or answer.answered:
            return "degraded", answer.health
        if candidate.pid is not None:
            return "starting", answer.health
        return "stopped", f"{candidate.address}: {answer.health}"


def named(
    addresses: Mapping[Place, str], known: dict[Place, str], make: Callable[[int], str]
) -> dict[Place, str]:
    """A name for each address that keeps it as long as the program runs. ``known``: the names so far, extended."""
    for one in sorted(addresses):
        if one not in known:
            known[one] = make(len(known))
    return {one: known[one] for one in addresses}


def root(address: str) -> str:
    """``http://host:port`` of a URL with a path; its scheme is HTTP without TLS. Pure."""
    found = place(address)
    if found is None:
        return address
    host, port = found
    host = "127.0.0.1" if host == "localhost" else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
