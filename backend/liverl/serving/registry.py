"""The run's replicas, and to which of them the proxy may route.

A replica is *joining* until it serves the trainer's current policy version, *listed* while the proxy may send
it new trials, *leaving* while it only finishes what it has. The list is written for the trainer
(``replicas.json``) and sent to the services in front of the replicas (see ``route_file``). verl updates its replicas'
weights by itself: they are listed all together once all of them serve, so that no step's trials run on only a part of
the replicas.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from liverl.model import (
    CARRIER_WORDS,
    EngineFacts,
    ProxyStatus,
    ReplicaSet,
    ReplicaStatus,
    SessionsStatus,
    TrialsStatus,
    UnreadableFile,
)
from liverl.observe.boot.stages import Stage
from liverl.observe.engine.activity import ActivityState
from liverl.observe.engine.idle import IdleDetector, Load, LoadSample
from liverl.observe.engine.store import EngineStore
from liverl.plan.spec import Plan
from liverl.rundir.journal import read_object
from liverl.serving.endpoint import ReplicaEndpoint, slot_endpoints
from liverl.serving.proxy_routes import ProxyRoutes
from liverl.serving.replica_deaths import ReplicaDeaths
from liverl.serving.replica_source import ReplicaSource
from liverl.serving.route_file import RouteFile
from liverl.serving.session_routes import SessionRoutes
from liverl.serving.worker_reports import WorkerReports
from liverl.supervise.services import state_machine
from liverl.supervise.services.probes import bearer
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.blocking_call import BlockingCalls
from liverl.util.newest_file import NewestFile
from liverl.util.plural import plural, quantity
from liverl.util.ticks import until_tick

REPORT_LIMIT = 10.0  # seconds after which reading the reports of trainer and proxy counts as hanging
REPORT_NOW_LIMIT = 1.0  # the same when a replica's process has ended, of which the sessions are to hear
_UPDATING = frozenset(
    ("init", "sync", "update")
)  # phases of the trainer in which weights are sent, or will be next
_WITHOUT_WEIGHTS = frozenset(("booting", "asleep", "waking", "updating"))  # activities of verl's replicas
FAST = 0.25  # seconds between looks while a replica joins or leaves


class ReplicaRegistry:
    """The run's replicas, as the proxy and the trainer should see them."""

    def __init__(
        self,
        supervisor: Supervisor,
        plan: Plan,
        cooldown: float,
        interval: float,
        source: ReplicaSource | None = None,
    ) -> None:
        """``source``: of verl's replicas; None where every replica is a service of ours. ``cooldown`` and
        ``interval`` (between two looks) in seconds."""
        self.supervisor = supervisor
        self.plan = plan
        self.source = source
        self.proxy = ProxyRoutes(supervisor, plan, cooldown)
        self.deaths = ReplicaDeaths(supervisor, source, self._updates_weights, self.update)
        self.sessions = SessionRoutes(supervisor, plan, self.deaths.counts)
        self.workers = WorkerReports(supervisor) if plan.carrier == "workers" else None
        self.carriers: tuple[RouteFile, ...] = (self.proxy, self.sessions)  # in front of the replicas
        self._carrier = CARRIER_WORDS[plan.carrier]  # what carries the trials, in words
        self.node_of: Callable[[str | None], str] = lambda _ip: ""  # address of a host -> its name
        self.listed: set[str] = set()
        self.engines = EngineStore(plan.replica_engine.metrics)
        self.trainer: dict[str, Any] = {}
        self.expected: int = plan.expected_replicas
        self.leaving: set[str] = set()  # they finish what they have
        self.unlisted: set[str] = set()  # leaving ones that have finished: no longer in the proxy's list
        self.doing: dict[str, ActivityState] = {}
        self.complete = plan.topology == "managed"  # all of verl's replicas have served once
        self._generations: dict[str, int] = {}  # of listed replicas
        # Name -> (generation, digest) of replicas whose weights were changed by something else than the trainer.
        self._changed: dict[str, tuple[int, str]] = {}
        # Digest of the policy version that the first of verl's replicas had reported; of one process of the trainer.
        self._first_digests: tuple[int, dict[int, str]] = (0, {})
        self._idle = IdleDetector()
        self._answered: set[str | None] = set()  # replicas whose metrics were read by the last poll
        self._interval = interval
        self.unreadable: tuple[UnreadableFile, ...] = ()  # reports, if they cannot be read in time
        self._reading = BlockingCalls[tuple[dict[str, Any] | None, list[Callable[[], None]]]]()
        self._reading_now = BlockingCalls[dict[str, Any] | None]()
        self._published: list[dict[str, Any]] | None = None  # the replicas in the newest replicas.json
        self._version = 0
        self._list = b""  # the newest replicas.json
        self._list_file = NewestFile(
            supervisor.run_dir / "replicas.json",
            written=lambda _: supervisor.kick(),  # the trainer may wait for it
            failed=supervisor.records.write_failed,
            late=partial(supervisor.records.warn, "storage"),
        )
        token_file = plan.replica_token_file
        self._token_file = supervisor.run_dir / token_file if token_file else None

    # --- names and endpoints ---

    def slots(self) -> list[Slot]:
        """The replicas among our services."""
        return [s for s in self.supervisor.slots.values() if s.spec.kind == "replica"]

    def endpoints(self) -> list[ReplicaEndpoint]:
        """Every replica, ours and verl's."""
        ours = slot_endpoints(self.supervisor.slots.values(), self.kind)
        return [*ours, *(self.source.endpoints() if self.source is not None else ())]

    def _still_serves(self, endpoint: ReplicaEndpoint) -> bool:
        """Whether the same process of a replica serves now. Does not make the endpoints of all our replicas, as it is
        asked of each of them at every poll."""
        slot = self.supervisor.slots.get(endpoint.name)
        if slot is not None:
            machine = slot.current.machine
            return machine.state in state_machine.SERVING and machine.generation == endpoint.generation
        now = self.source.endpoints() if self.source is not None else ()
        same = (e for e in now if e.name == endpoint.name and e.generation == endpoint.generation)
        return any(e.serving for e in same)

    def state_of(self, name: str) -> str:
        """``joining``, ``listed`` or ``leaving``."""
        if name in self.leaving:
            return "leaving"
        return "listed" if name in self.listed else "joining"

    # --- listing ---

    def update(self) -> None:
        """Bring the list up to date with the services' states. Called on every change."""
        self._updated()

    def _updated(self) -> list[ReplicaEndpoint]:
        """The same; returns the replicas as they are now, which takes some time to look up."""
        endpoints = self.endpoints()
        self.deaths.look(endpoints)
        serving = sum(endpoint.serving for endpoint in endpoints)
        if not self.complete and self.expected and serving >= self.expected:
            self.complete = True
            then = (
                f"adding them to {self._carrier.name}" if self._carrier.keeps_list else "new trials can start"
            )
            up = f"{serving} of {quantity(self.expected, 'replica')} {plural(serving, 'is', 'are')} up"
            self.supervisor.say("replicas_found", f"{up}; {then}")
        for endpoint in endpoints:
            name = endpoint.name
            if not endpoint.serving:
                self.engines.forget(name)
            changed = self._changed_digest(endpoint) is not None
            other = name in self.listed and self._generations.get(name) != endpoint.generation
            if other:
                self.engines.forget(name)  # of the process before; this one may have other weights
            if name in self.listed and (changed or not endpoint.serving or other):
                self._delist(name, endpoint)
            may = endpoint.serving and name not in self.listed and name not in self.leaving and self.complete
            if may and not changed and self._has_weights(endpoint):
                self.listed.add(name)
                self._generations[name] = endpoint.generation
                self._say_listed(name)
        if self.complete:
            for name in self.listed - {endpoint.name for endpoint in endpoints}:
                self._delist(name)
            self._publish(endpoints)
        return endpoints

    def _say_listed(self, name: str) -> None:
        if self._carrier.keeps_list:
            version = self.policy_version if self._trainer_lives() else None
            having = "" if version is None else f" (policy version {version})"
            text = f"added to {self._carrier.name}; new trials can use this replica{having}"
            self.supervisor.say("listed", text, service=name)

    def _delist(self, name: str, endpoint: ReplicaEndpoint | None = None) -> None:
        """``endpoint``: None for a replica that is no longer part of the run."""
        self.listed.discard(name)
        # Without their trainer there are neither replicas of verl nor new trials: that the trainer has ended is said.
        with_trainer = endpoint is not None and endpoint.kind == "verl" and endpoint.state == "stopped"
        if self._carrier.keeps_list and not self.supervisor.stopping and not with_trainer:
            text = f"removed from {self._carrier.name}; new trials do not use this replica"
            self.supervisor.say("delisted", text, service=name)

    def _trainer_lives(self) -> bool:
        trainer = self.supervisor.slots.get("trainer")
        return trainer is not None and trainer.state in (*state_machine.LIVE, "stopping")

    def _has_weights(self, endpoint: ReplicaEndpoint) -> bool:
        if self.source is not None or not self._trainer_lives():
            return True  # verl updates its replicas' weights by itself
        facts = self.engines.get(endpoint.name)
        wanted = self.policy_version
        if facts is None or wanted is None or facts.policy_version != wanted:
            return False
        return not self._other_weights(facts)

    def _other_weights(self, facts: EngineFacts) -> bool:
        """Whether the weights of the trainer's version are not the trainer's. False if either side has no digest."""
        digest = self.trainer.get("policy_digest") or self._first_digests[1].get(facts.policy_version or 0)
        return bool(digest) and facts.policy_digest is not None and facts.policy_digest != digest

    def _note_changed(self) -> None:
        """Note the listed replicas with the trainer's version and no longer with its weights. Only in phases
        before which the trainer has sent every listed replica its weights."""
        if not self._trainer_lives():
            return
        if self.source is not None:
            self._note_first_digests()
        if self.trainer.get("phase") not in ("rollout", "update"):
            return
        for name in self.listed:
            facts, generation = self.engines.get(name), self._generations.get(name, 0)
            if facts is None or facts.policy_version != self.policy_version or not self._other_weights(facts):
                continue
            self._changed[name] = (generation, str(facts.policy_digest))

    def _note_first_digests(self) -> None:
        """Note which weights belong to each version of a trainer that reports no digest, as verl's: those that a listed
        replica reported first. Another process of the trainer may give the same number to other weights."""
        process = self.supervisor.slots["trainer"].current.machine.generation
        if process != self._first_digests[0]:
            self._first_digests = (process, {})
        for name in sorted(self.listed):
            facts = self.engines.get(name)
            if facts is not None and facts.policy_digest is not None and facts.policy_version is not None:
                self._first_digests[1].setdefault(facts.policy_version, facts.policy_digest)

    def _changed_digest(self, endpoint: ReplicaEndpoint) -> str | None:
        """The digest of the weights that something else than the trainer gave to this process of the replica; None if
        nothing did."""
        generation, digest = self._changed.get(endpoint.name, (None, None))
        return digest if generation == endpoint.generation else None

    @property
    def policy_version(self) -> int | None:
        """The trainer's, from its report; None before it has reported one."""
        version = self.trainer.get("policy_version")
        return version if isinstance(version, int) else None

    def _publish(self, endpoints: list[ReplicaEndpoint]) -> None:
        items: list[dict[str, Any]] = []
        for endpoint in endpoints:
            if endpoint.address is None or endpoint.state not in state_machine.LIVE:
                continue
            state = self.state_of(endpoint.name)
            if state == "joining" and endpoint.state == "starting":
                continue  # the trainer cannot send weights to it yet
            items.append(
                {
                    "name": endpoint.name,
                    "url": endpoint.address,
                    "state": state,
                    "generation": endpoint.generation,
                    **({"changed": changed} if (changed := self._changed_digest(endpoint)) else {}),
                }
            )
        if items != self._published:
            self._published = items
            self._version += 1
            self._list = json.dumps({"version": self._version, "replicas": items}).encode()
        self._list_file.put(self._list)
        listed = [i["url"] for i in items if i["state"] == "listed"]
        draining = [i["url"] for i in items if i["state"] == "leaving" and i["name"] not in self.unlisted]
        for carrier in self.carriers:
            carrier.publish(listed, draining)

    def unwritten(self, kind: str) -> str | None:
        """The file that a service of this kind reads when it starts, if it has not got the newest list yet, worded to
        follow "waiting for"; else None."""
        for carrier in self.carriers:
            if kind == carrier.service and carrier.unwritten:
                return f"{carrier.file} to be written"
        # verl's trainer starts its replicas itself
        if kind == "trainer" and self.source is None and self._list_file.pending:
            return "replicas.json to be written"
        return None

    # --- polling ---

    async def look(
        self,
        trials: TrialsStatus,
        trainer: dict[str, Any] | None = None,
        drain: Callable[[], Coroutine[Any, Any, None]] | None = None,
        *,
        held_up: bool = False,
    ) -> float:
        """Poll engines, the trainer's report and the proxies' reports once; returns seconds until the next.
        ``trials``: as they were last counted. ``trainer``: a report that replaces ``trainer.json``, for a trainer that
        writes none. ``drain``: called once the load of all replicas is known, for those that leave.
        ``held_up``: a process of the run stands still, so that no replica is idle by its own fault."""
        before = self.engines.all()
        await self._read_reports(trainer)
        endpoints = self.endpoints()
        if not any(carrier.exists for carrier in self.carriers) and not endpoints:
            return self.supervisor.pace.until_next(self._interval)  # there is nothing to poll or to publish
        answered: set[str | None] = set()
        with suppress(OSError):  # of the file of their token: nobody is asked without it
            headers = bearer(self._token_file)
            answered.update(await asyncio.gather(*(self._look(one, headers) for one in endpoints)))
        self._answered = answered
        self._note_changed()
        if self.source is not None:
            self.doing = {
                endpoint.name: self.source.doing(
                    endpoint,
                    self.engines.get(endpoint.name) if endpoint.name in answered else None,
                    self.trainer,
                )
                for endpoint in self.endpoints()
            }
        if drain is not None:
            await drain()
        endpoints = self._updated()
        now = self.supervisor.now()
        load = LoadSample(now, None, {}) if held_up else self._load(endpoints, trials, before, answered)
        self._idle = self._idle.seen(load)
        waiting = self.complete and any(e.serving and e.name not in self.listed for e in endpoints)
        behind = any(carrier.behind for carrier in self.carriers)
        return until_tick(FAST if waiting or behind or self.leaving else self._interval)

    async def _read_reports(self, trainer: dict[str, Any] | None) -> None:
        """Read what trainer and proxies report in files. After ``REPORT_LIMIT`` seconds the earlier reports stay, and
        that is a fact: a storage that hangs must hold up nothing else."""
        path = self.supervisor.run_dir / "trainer.json"
        readers = [carrier.reader() for carrier in self.carriers]
        if self.workers is not None:
            readers.append(self.workers.reader())

        def read() -> tuple[dict[str, Any] | None, list[Callable[[], None]]]:
            return trainer or read_object(path), [reader() for reader in readers]

        try:
            report, takers = await self._reading.call(read, REPORT_LIMIT)
        except TimeoutError:
            why = f"reading them has taken longer than {REPORT_LIMIT:g} s; the storage may be slow or hang"
            self.unreadable = (UnreadableFile("reports of trainer and proxy", why),)
            return
        self.unreadable = ()
        self.trainer = report or self.trainer
        for take in takers:
            take()
        (self.sessions if self.workers is None else self.workers).tell()

    async def _updates_weights(self, name: str) -> bool:
        """Whether the trainer updates the weights of the replica of this name, or did so when that was seen last."""
        if not self._trainer_lives():
            return False
        doing = self.doing.get(name)
        if doing is not None:  # what one of verl's replicas did while it lived
            return doing.what in _WITHOUT_WEIGHTS
        phases = {self.trainer.get("phase")}
        if self.source is None:
            path = self.supervisor.run_dir / "trainer.json"
            with suppress(TimeoutError):
                report = await self._reading_now.call(partial(read_object, path), REPORT_NOW_LIMIT)
                phases.add((report or {}).get("phase"))
        return bool(phases & _UPDATING)

    async def _look(self, endpoint: ReplicaEndpoint, headers: Mapping[str, str]) -> str | None:
        """Read the metrics of one replica; returns its name, or None if they could not be read."""
        if endpoint.address is None or not endpoint.serving:
            return None
        try:
            status, text = await self.supervisor.http.poll(
                endpoint.address + "/metrics", 3.0, headers=headers, kept=True
            )
        except OSError:
            return None  # its ready probe reports that
        if status == 200 and self._still_serves(endpoint):
            self.engines.scraped(endpoint.name, self.supervisor.now(), text)
            return endpoint.name
        return None

    def _load(
        self,
        endpoints: list[ReplicaEndpoint],
        trials: TrialsStatus,
        before: Mapping[str, EngineFacts],
        answered: set[str | None],
    ) -> LoadSample:
        """The load of all replicas now, for the detection of idle ones."""
        now, trainer = self.supervisor.now(), self.trainer
        down = any(c.exists and not c.serves for c in self.carriers if c.service == self.plan.carrier)
        if trainer.get("phase") != "rollout" or down or not self._trainer_lives():
            return LoadSample(now, None, {})
        step = _whole(trainer.get("step")) + 1
        started = next((s.total for s in trials.steps if s.step == step), 0)
        every = _whole(trainer.get("trials_total"))
        loads = {}
        for endpoint in endpoints:
            facts, name = self.engines.get(endpoint.name), endpoint.name
            if facts is None or facts.running is None or name not in answered:
                loads[name] = Load(may_work=False, busy=False)
                continue
            has_weights = facts.policy_version is None or self.source is not None
            has_weights = has_weights or facts.policy_version == self.policy_version
            waiting = bool(facts.waiting)
            loads[name] = Load(
                may_work=endpoint.state == "ready" and name in self.listed and has_weights,
                busy=facts.running > 0 or waiting or _moved(before.get(name), facts),
                waiting=waiting,
            )
        return LoadSample(
            at=now,
            rollout=step,
            loads=loads,
            held=any(carrier.holds() for carrier in self.carriers),
            handed_out=0 < every <= started,
            few=0 < every < len(endpoints),
        )

    def requests_on(self, name: str) -> int | None:
        """Requests that a replica has, by the last poll: none if its metrics do not tell, as it never will. None if
        they could not be read."""
        facts = self.engines.get(name)
        if name not in self._answered or facts is None:
            return None
        return int((facts.running or 0) + (facts.waiting or 0))

    def restore_listing(self) -> None:
        """Keep replicas listed that an earlier backend had listed and whose process is the same. A proxy that lost
        them for a moment would refuse requests."""
        self.deaths.restore(self.sessions.deaths_told())
        (self.sessions if self.workers is None else self.workers).events.adopted()
        stored = read_object(self.supervisor.run_dir / "replicas.json")
        if stored is None:
            return
        self._version = stored["version"]
        for item in stored["replicas"]:
            slot = self.supervisor.slots.get(item["name"])
            if item.get("changed"):
                self._changed[item["name"]] = (item["generation"], item["changed"])
            if slot is None or item["state"] != "listed" or slot.name in self.leaving:
                continue
            if slot.current.machine.generation == item["generation"]:
                self.listed.add(slot.name)  # the next update removes it if it does not serve
                self._generations[slot.name] = item["generation"]
                if not slot.current.machine.leader_gone:  # else the earlier backend has judged its end
                    self.deaths.served(slot.name, item["generation"], item["url"])

    def forget(self, name: str) -> None:
        """A replica is no longer part of the run."""
        self.listed.discard(name)
        self.engines.forget(name)

    def routes_known(self) -> bool:
        """Whether every service in front of the replicas has loaded the newest list. One that does not carry the trials
        and does not serve has no request on them; it reads the list when it starts."""
        needed = (c for c in self.carriers if c.serves or c.service == self.plan.carrier)
        return all(carrier.knows() for carrier in needed)

    # --- for the snapshot ---

    @property
    def kind(self) -> str:
        """The kind of the replicas that are services of ours, which names their engine."""
        return self.plan.replica_engine.replica_kind

    def sessions_status(self) -> SessionsStatus | None:
        """The sessions, for the snapshot; None if the run has none."""
        return self.sessions.status() if self.workers is None else self.workers.status()

    def status(self, stages: Mapping[str, Stage]) -> ReplicaSet:
        """All replicas, for the snapshot. ``stages``: by name, how far the start of our own ones is."""
        items = []
        now = self.supervisor.now()
        for endpoint in self.endpoints():
            idle_since = self._idle.since(endpoint.name)
            stage = stages.get(endpoint.name) or (endpoint.stage, endpoint.progress)
            doing = self.doing.get(endpoint.name) if endpoint.serving else None
            starting = endpoint.state in ("waiting", "preparing", "starting")
            items.append(
                ReplicaStatus(
                    name=endpoint.name,
                    state=endpoint.state,
                    address=endpoint.address,
                    listed=endpoint.name in self.listed,
                    generation=endpoint.generation,
                    restarts=endpoint.restarts,
                    gpus=endpoint.gpus,
                    engine=self.engines.current(endpoint.name, now, self._interval),
                    since=endpoint.since,
                    stage=stage[0] if starting else None,
                    progress=stage[1] if starting else None,
                    leaving=endpoint.name in self.leaving,
                    kind=endpoint.kind,
                    idle_for=now - idle_since if idle_since is not None else None,
                    why=endpoint.why,
                    pid=endpoint.pids[0] if endpoint.pids else None,
                    activity=doing.what if doing is not None else None,
                    activity_since=doing.since if doing is not None else None,
                    policy_changed=self._changed_digest(endpoint),
                    node=self.node_of(endpoint.ip),
                )
            )
        ready = sum(i.state in state_machine.SERVING for i in items)
        return ReplicaSet(self.expected, ready, len(self.listed), tuple(items))

    def proxy_status(self) -> ProxyStatus:
        """The proxy, for the snapshot; ``LaunchScriptReplicas`` has another one."""
        return self.proxy.status()


def _moved(before: EngineFacts | None, after: EngineFacts) -> bool:
    """Whether an engine has generated tokens or finished requests between two polls."""
    if before is None:
        return False
    return (before.generation_tokens_total, before.request_success_total) != (
        after.generation_tokens_total,
        after.request_success_total,
    )


def _whole(value: Any) -> int:
    """A number of the trainer's report; 0 if it is none, as of a trainer that is not ours."""
    return value if isinstance(value, int) else 0
