"""Watches what a launch script has started (``trainer.kind: command``): its Ray, its replicas and its proxy.

This module starts and stops none of them; ``repair`` does, on a command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from liverl.causes.verdict.ray_shortage import RayLoad
from liverl.external import ray_cluster as clusters
from liverl.external.proxy import ExternalProxy, runs_in_launch
from liverl.external.ray_cluster import RayCluster
from liverl.external.script_steps import ScriptSteps
from liverl.logs.files import also_written, session_logs
from liverl.model import (
    Cause,
    EngineFacts,
    Owner,
    ProxyStatus,
    ServiceStatus,
    TreeStats,
)
from liverl.observe.engine.activity import ActivityState
from liverl.plan.spec import Plan, RayPlan
from liverl.procs import procfs
from liverl.serving.endpoint import ReplicaEndpoint
from liverl.serving.registry import ReplicaRegistry
from liverl.supervise.services import state_machine
from liverl.supervise.services.observed_state import ObservedState
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.plural import quantity
from liverl.verl.discovery.layout import replica_count
from liverl.verl.discovery.ray_rest import RayError, RayRest
from liverl.verl.replicas import IDLE, VerlReplicas

NAME = "ray"
# Seconds after the script's start from which a Ray at the default address is used, if the script has started none.
# The script's own Ray appears within seconds; one that is at that address before may belong to another run.
DEFAULT_ADDRESS_AFTER = 60.0
# Seconds that a script goes on without the Ray that it has started, before Ray has failed: a script that ends stops its
# Ray first, verl's some seconds before.
WITHOUT_RAY = 10.0
SOON = 1.0  # seconds between looks while there is no Ray


class LaunchScript:
    """Finds Ray, the replicas and the proxy of a launch script. The ``ReplicaSource`` of such a run."""

    cause: Cause | None = None  # never set: a missing replica is for the script to handle

    def __init__(self, supervisor: Supervisor, plan: Plan) -> None:
        assert plan.ray is not None and plan.adopted_port is not None
        self.proxy = ExternalProxy(supervisor, plan.adopted_port)
        given = plan.script.given if plan.script is not None else None
        self._proxy_asked_for = given is None or "infrastructure.litellm_port" in given
        self._supervisor = supervisor
        self._plan: RayPlan = plan.ray
        self._cluster: RayCluster | None = None
        self._queried = replace(plan.ray, dashboard="")  # the Ray that is polled; dashboard "" = none yet
        self._replicas = VerlReplicas(supervisor, self._queried)
        self._reported: set[object] = set()  # warnings, each with the proxy's process at that time
        self._ray_state = ObservedState(supervisor, NAME, "the launch script has not started Ray yet")
        self._ray_gone_since: float | None = None  # Unix time; None while it is there, and before it was
        self._generation = 0
        self._steps = ScriptSteps()
        # Whether the trainer has ended a step, so that all its replicas have been there
        self.generated = False
        self._logs: Path | None = None  # the folder of the logs of the script's own Ray

    # --- polling ---

    async def look(self) -> float:
        """Poll Ray, the replicas and the proxy once; returns seconds until the next poll."""
        trainer = self._supervisor.slots.get("trainer")
        process = trainer.current.process if trainer is not None else None
        if trainer is None or process is None or trainer.state not in state_machine.LIVE:
            self._look_after_script()
            return IDLE
        await self._count_steps(process.log)
        await self._find_ray(self._supervisor.now() - process.started_at)
        # While the dashboard starts, its silence is no problem: replicas are polled once it responds.
        if self._ray_state.state in ("waiting", "starting"):
            await self._replicas.look_at_log()
            pause = SOON
        else:
            pause = await self._replicas.look()
        self._count_replicas()
        cause = self._replicas.cause
        if cause is not None:
            self._once("discovery", "trainer", cause.text)
        await self.proxy.look()
        self._report_unlisted()
        self._supervisor.kick()
        return pause

    async def _count_steps(self, log: Path) -> None:
        try:
            await asyncio.to_thread(lambda: self._steps.look([log, *also_written(log)]))
        except OSError as error:
            self._supervisor.records.cannot_read(f"cannot read {log.name}: {error.strerror}")

    def _count_replicas(self) -> None:
        """Expect the replicas that the script has. Those of another layout are not missing."""
        replicas, configured = self._replicas, self._plan.expected
        count = replica_count(configured, replicas.found, replicas.printed, generated=self.generated)
        if count == replicas.count:
            return
        replicas.recount(count)
        if configured and count != configured:
            text = f"the launch script has {quantity(count, 'replica')}; the configuration's sizes give {configured}"
            self._supervisor.say("replicas", text, service="trainer")

    @property
    def expected(self) -> int:
        """Number of replicas that the script has; before they are known, that of the configuration, 0 = not known."""
        return self._replicas.count

    @property
    def layout_known(self) -> bool:
        """Whether it is known how many replicas the script will have."""
        return bool(self._plan.expected or self._replicas.printed or self.generated)

    def _look_after_script(self) -> None:
        """Note what has exited since the launch script did."""
        cluster = self._cluster
        if cluster is not None and not procfs.alive(cluster.pid, cluster.tick):
            self._cluster = None
            self._ray_state.enter("stopped", "Ray exited because the launch script did")
        self.proxy.look_after_script()

    async def _find_ray(self, age: float) -> None:
        """Choose the Ray to poll. ``age``: seconds since the launch script started."""
        current = self._cluster
        if current is None or not current.ours or not procfs.alive(current.pid, current.tick):
            wanted = self._plan.earlier  # the configuration names it
            at_default = wanted or age > DEFAULT_ADDRESS_AFTER
            running = await asyncio.to_thread(clusters.running, runs_in_launch(self._supervisor))
            chosen = clusters.choose(running, self._plan.dashboard if at_default else "", wanted=wanted)
            if chosen is not None:
                self._ray_gone_since = None
            if chosen is not None and (current is None or chosen.identity != current.identity):
                await self._adopt(chosen)
            elif chosen is not None:
                self._cluster = chosen
            elif current is not None:
                self._ray_has_exited()
                return
            elif at_default and not self._queried.dashboard and await self._problem(self._plan) is None:
                await self._poll_at(self._plan)  # it responds, but its processes are not visible from here
        if self._queried.dashboard:
            await self._look_at_dashboard()

    def _ray_has_exited(self) -> None:
        now = self._supervisor.now()
        if self._ray_gone_since is None:
            self._ray_gone_since = now
        over = now - self._ray_gone_since >= WITHOUT_RAY
        self._ray_state.enter("failed" if over else "degraded", "Ray's dashboard has exited")

    async def _adopt(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._logs = Path(cluster.logs) if cluster.ours and cluster.logs else None
        what = (
            "the launch script has started Ray"
            if cluster.ours
            else "using a Ray that the launch script did not start"
        )
        text = f"{what}: dashboard at {cluster.api} (pid {cluster.pid}), GCS at {cluster.gcs}"
        self._supervisor.say("adopted", text, service=NAME)
        plan = replace(
            self._plan,
            dashboard=cluster.api,
            address=cluster.gcs,
            python=cluster.python,
            token_file=self._plan.token_file or cluster.token_file,
            child_env={**cluster.env, **self._plan.child_env, "RAY_ADDRESS": cluster.gcs},
        )
        await self._poll_at(plan)

    async def _poll_at(self, plan: RayPlan) -> None:
        """Poll this Ray from now on."""
        before, self._replicas = self._replicas, VerlReplicas(self._supervisor, plan)
        self._queried = plan
        self._generation += 1
        self._ray_state.enter("starting", "waiting for Ray's dashboard to respond")
        await before.close()

    async def _problem(self, plan: RayPlan) -> str | None:
        """Why the dashboard gave no usable answer; None if it did."""
        token = self._supervisor.run_dir / plan.token_file if plan.token_file else None
        try:
            await RayRest(self._supervisor.http, f"http://{plan.dashboard}", token).version()
        except RayError as error:
            return str(error)
        return None

    async def _look_at_dashboard(self) -> None:
        problem = await self._problem(self._queried)
        if self._cluster is not None and not self._cluster.served:
            self._ray_state.enter(
                "degraded",
                "Ray's dashboard is disabled, so replicas cannot be found; start Ray with include_dashboard=True",
            )
        elif problem is None:
            self._ray_state.enter("ready", "")
        else:
            self._ray_state.enter(
                "degraded" if self._ray_state.state in ("ready", "degraded") else "starting", problem
            )

    def _report_unlisted(self) -> None:
        if self.proxy.leader is None or self.proxy.restarting:
            return
        for endpoint in self.unlisted():
            self._once(
                "unlisted",
                endpoint.name,
                f"replica {endpoint.name} is up at {endpoint.address}, but the proxy's configuration does not list "
                "this replica; add it (scale +1), then restart the proxy",
            )

    def _once(self, kind: str, service: str, text: str) -> None:
        key = (self.proxy.leader.member if self.proxy.leader is not None else None, service, text)
        if key not in self._reported:
            self._reported.add(key)
            self._supervisor.say(kind, text, "warning", service)

    def ray_logs(self, since: float) -> list[Path]:
        """The logs of the Ray that the script has started, also of one that has exited, that were written to since Unix
        time ``since``."""
        return session_logs(self._logs, since) if self._logs is not None else []

    async def close(self) -> None:
        """Stop the address client."""
        await self._replicas.close()

    # --- results ---

    def endpoints(self) -> list[ReplicaEndpoint]:
        """Every expected replica, by rank, found or not."""
        return self._replicas.endpoints()

    def doing(
        self, endpoint: ReplicaEndpoint, facts: EngineFacts | None, trainer: Mapping[str, Any]
    ) -> ActivityState:
        """What a replica does now, from its metrics (``facts``) and the trainer's log and report."""
        return self._replicas.doing(endpoint, facts, trainer)

    @property
    def total_steps(self) -> int | None:
        """Of the training, from the trainer's log; None before it is printed."""
        return self._steps.total

    @property
    def trackers(self) -> dict[str, str]:
        """Where the trainer logs its metrics besides, see ``TrainerFacts``."""
        return self._replicas.trackers

    def ended_unasked(self, name: str) -> bool:
        """See ``ReplicaSource.ended_unasked``."""
        return self._replicas.ended_unasked(name)

    def dead(self) -> str | None:
        """The replica that died first, with Ray's cause; None if none died by itself."""
        return self._replicas.dead()

    def serving(self) -> int:
        """The number of replicas that serve now."""
        return self._replicas.serving()

    @property
    def ray_load(self) -> RayLoad | None:
        """The load of the Ray cluster, while a replica has no process yet; else None."""
        return self._replicas.ray_load

    def members(self, trees: dict[str, list[int]]) -> dict[str, list[int]]:
        """``trees`` (service -> pids) with each replica's processes under its own name instead of the trainer's."""
        return self._replicas.members(trees)

    def unlisted(self) -> list[ReplicaEndpoint]:
        """Replicas that serve and are not in the proxy's configuration, by rank."""
        return [e for e in self.endpoints() if e.serving and e.address and not self.proxy.lists(e.address)]

    def routed(self) -> set[str]:
        """Names of the serving replicas that the running proxy has loaded."""
        return {
            e.name for e in self.endpoints() if e.serving and e.address and self.proxy.routes_to(e.address)
        }

    def services(self) -> list[ServiceStatus]:
        """Ray and the proxy of the launch script; the script itself is the service ``trainer``. A proxy that nobody has
        asked for, and that has not been seen once a step has ended, is none of the script's."""
        return [self._ray(), *([] if self._has_no_proxy else [self.proxy.service()])]

    @property
    def _has_no_proxy(self) -> bool:
        return self.generated and not self._proxy_asked_for and not self.proxy.seen

    def proxy_status(self) -> ProxyStatus:
        """The proxy's address and routes, for the snapshot. Its requests are not counted."""
        return ProxyStatus() if self._has_no_proxy else self.proxy.status()

    def _ray(self) -> ServiceStatus:
        cluster = self._cluster
        owner: Owner = "adopted" if cluster is not None and cluster.ours else "foreign"
        members = (cluster.pid,) if cluster is not None else ()
        at = self._queried.dashboard
        return ServiceStatus(
            name=NAME,
            kind="ray",
            owner=owner,
            state=self._ray_state.state,
            why=self._ray_state.why,
            since=self._ray_state.since,
            pid=cluster.pid if cluster is not None else None,
            generation=self._generation,
            restarts=max(0, self._generation - 1),
            log=None,
            address=f"http://{at}" if at else None,
            ports={"dashboard": int(at.rpartition(":")[2])} if at else {},
            members=members,
            tree=TreeStats(processes=len(members)),
        )


class LaunchScriptReplicas(ReplicaRegistry):
    """The replicas of a launch script. The script configures the proxy, so a replica is *listed* when the running proxy
    has loaded its address; this class publishes no list of its own."""

    def __init__(
        self, supervisor: Supervisor, plan: Plan, cooldown: float, interval: float, script: LaunchScript
    ) -> None:
        super().__init__(supervisor, plan, cooldown, interval, script)
        self._script = script

    def _updated(self) -> list[ReplicaEndpoint]:
        """Set ``listed`` to the replicas that the proxy has loaded. Called on every change."""
        self._script.generated = bool(self.trainer.get("step"))
        self.expected = self._script.expected
        endpoints, routed = self.endpoints(), self._script.routed()
        for endpoint in endpoints:
            if not endpoint.serving:
                self.engines.forget(endpoint.name)
        for name in sorted(routed - self.listed):
            self.supervisor.say("listed", "added to the proxy", service=name)
        for name in sorted(self.listed - routed):
            self._delist(name)
        self.listed = routed
        routed_to_all = self._script.layout_known and len(routed) >= self.expected
        self.complete = bool(self.expected and routed_to_all) or self._script.generated
        return endpoints

    def proxy_status(self) -> ProxyStatus:
        """That of the launch script's proxy."""
        return self._script.proxy_status()
