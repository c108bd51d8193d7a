"""A launch that somebody's script makes (``trainer.kind: command``): its Ray, its replicas and its proxy are found,
shown, and on a command repaired. Nothing of it is started by us, and nothing is ended without that command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from liverl.external import ray_cluster as clusters
from liverl.external.proxy import ExternalProxy, runs_in_launch
from liverl.external.ray_cluster import RayCluster
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
from liverl.verl.discovery.ray_rest import RayError, RayRest
from liverl.verl.replicas import IDLE, VerlReplicas

NAME = "ray"
# Seconds after the script's start from which a Ray at the usual address counts, if the script's own tree has none.
# Its own comes within seconds, and another one there would be a stranger's.
USUAL_AFTER = 60.0
SOON = 1.0  # seconds between looks while there is no Ray


class LaunchScript:
    """Looks for what the script has started. Stands where ``VerlReplicas`` stands in runs of our own."""

    cause: Cause | None = None  # what the script does about a missing replica is its own affair: never set

    def __init__(self, supervisor: Supervisor, plan: Plan) -> None:
        assert plan.ray is not None and plan.adopted_port is not None
        self.proxy = ExternalProxy(supervisor, plan.adopted_port)
        self._supervisor = supervisor
        self._plan: RayPlan = plan.ray
        self._cluster: RayCluster | None = None
        self._asked = replace(plan.ray, dashboard="")  # what is known of the Ray that is asked
        self._found = VerlReplicas(supervisor, self._asked)
        self._told: set[object] = set()  # warnings, with the proxy's process at that time
        self._now = ObservedState(supervisor, NAME, "the launch script has not started Ray yet")
        self._generation = 0

    # --- looking ---

    async def look(self) -> float:
        """Look once; returns seconds until the next look."""
        trainer = self._supervisor.slots.get("trainer")
        process = trainer.current.process if trainer is not None else None
        if trainer is None or process is None or trainer.state not in state_machine.LIVE:
            self._look_at_what_is_left()
            return IDLE
        await self._find_ray(self._supervisor.now() - process.started_at)
        # A dashboard that comes up is no trouble yet: it is looked into once it answers.
        pause = SOON if self._now.state in ("waiting", "starting") else await self._found.look()
        cause = self._found.cause
        if cause is not None:
            self._once("discovery", "trainer", cause.text)
        await self.proxy.look()
        self._tell_unlisted()
        self._supervisor.kick()
        return pause

    def _look_at_what_is_left(self) -> None:
        """The script is over: what was part of it has ended, or is about to."""
        found = self._cluster
        if found is not None and not procfs.alive(found.pid, found.tick):
            self._cluster = None
            self._now.enter("stopped", "it exited with the launch script")
        self.proxy.look_at_what_is_left()

    async def _find_ray(self, age: float) -> None:
        known = self._cluster
        if known is None or not known.ours or not procfs.alive(known.pid, known.tick):
            wanted = self._plan.earlier  # the configuration names it
            usual = wanted or age > USUAL_AFTER
            running = await asyncio.to_thread(clusters.running, runs_in_launch(self._supervisor))
            chosen = clusters.choose(running, self._plan.dashboard if usual else "", wanted=wanted)
            if chosen is not None and (known is None or chosen.identity != known.identity):
                await self._adopt(chosen)
            elif chosen is not None:
                self._cluster = chosen
            elif known is not None:
                self._now.enter("failed", "its dashboard has exited")
                return
            elif usual and not self._asked.dashboard and await self._problem(self._plan) is None:
                await self._ask(self._plan)  # it answers, and its processes cannot be seen from here
        if self._asked.dashboard:
            await self._look_at_dashboard()

    async def _adopt(self, found: RayCluster) -> None:
        self._cluster = found
        where = (
            "in the launch script's process tree" if found.ours else "not in the launch script's process tree"
        )
        text = f"Ray's dashboard is at {found.api} (pid {found.pid}, {where}), its GCS at {found.gcs}"
        self._supervisor.say("adopted", text, service=NAME)
        plan = replace(
            self._plan,
            dashboard=found.api,
            address=found.gcs,
            python=found.python,
            token_file=self._plan.token_file or found.token_file,
            child_env={**found.env, **self._plan.child_env, "RAY_ADDRESS": found.gcs},
        )
        await self._ask(plan)

    async def _ask(self, plan: RayPlan) -> None:
        before, self._found = self._found, VerlReplicas(self._supervisor, plan)
        self._asked = plan
        self._generation += 1
        self._now.enter("starting", "waiting for its dashboard to respond")
        await before.close()

    async def _problem(self, plan: RayPlan) -> str | None:
        """What the dashboard does instead of answering."""
        token = self._supervisor.run_dir / plan.token_file if plan.token_file else None
        try:
            await RayRest(self._supervisor.http, f"http://{plan.dashboard}", token).version()
        except RayError as error:
            return str(error)
        return None

    async def _look_at_dashboard(self) -> None:
        problem = await self._problem(self._asked)
        if self._cluster is not None and not self._cluster.served:
            self._now.enter(
                "degraded", "its dashboard is disabled (include_dashboard); its actors cannot be listed"
            )
        elif problem is None:
            self._now.enter("ready", "")
        else:
            self._now.enter("degraded" if self._now.state in ("ready", "degraded") else "starting", problem)

    def _tell_unlisted(self) -> None:
        if self.proxy.leader is None or self.proxy.restarting:
            return
        for endpoint in self.unlisted():
            self._once(
                "unlisted",
                endpoint.name,
                f"replica {endpoint.name} is up at {endpoint.address}, but the proxy does not list it; "
                "add it, then restart the proxy",
            )

    def _once(self, kind: str, service: str, text: str) -> None:
        key = (self.proxy.leader.member if self.proxy.leader is not None else None, service, text)
        if key not in self._told:
            self._told.add(key)
            self._supervisor.say(kind, text, "warning", service)

    async def close(self) -> None:
        """End the child that asks for addresses."""
        await self._found.close()

    # --- what was found ---

    def endpoints(self) -> list[ReplicaEndpoint]:
        """Every expected replica, found or not."""
        return self._found.endpoints()

    def doing(
        self, endpoint: ReplicaEndpoint, facts: EngineFacts | None, trainer: Mapping[str, Any]
    ) -> ActivityState:
        """What one of them does now."""
        return self._found.doing(endpoint, facts, trainer)

    @property
    def total_steps(self) -> int | None:
        """Of the training, as its trainer has printed it."""
        return self._found.total_steps

    def dead(self) -> str | None:
        """A replica that died by itself, in words."""
        return self._found.dead()

    def serving(self) -> int:
        """How many of them serve now."""
        return self._found.serving()

    def members(self, trees: dict[str, list[int]]) -> dict[str, list[int]]:
        """``trees`` with each replica's processes told apart from the trainer's."""
        return self._found.members(trees)

    def unlisted(self) -> list[ReplicaEndpoint]:
        """Replicas that serve and that the proxy's configuration does not have, by rank."""
        return [e for e in self.endpoints() if e.serving and e.address and not self.proxy.lists(e.address)]

    def routed(self) -> set[str]:
        """Names of the serving replicas that the proxy has read."""
        return {
            e.name for e in self.endpoints() if e.serving and e.address and self.proxy.routes_to(e.address)
        }

    def services(self) -> list[ServiceStatus]:
        """Ray and the proxy, beside the script itself."""
        return [self._ray(), self.proxy.service()]

    def proxy_status(self) -> ProxyStatus:
        return self.proxy.status()

    def _ray(self) -> ServiceStatus:
        found = self._cluster
        owner: Owner = "adopted" if found is not None and found.ours else "foreign"
        members = (found.pid,) if found is not None else ()
        at = self._asked.dashboard
        return ServiceStatus(
            name=NAME,
            kind="ray",
            owner=owner,
            state=self._now.state,
            why=self._now.why,
            since=self._now.since,
            pid=found.pid if found is not None else None,
            generation=self._generation,
            restarts=max(0, self._generation - 1),
            log=None,
            address=f"http://{at}" if at else None,
            ports={"dashboard": int(at.rpartition(":")[2])} if at else {},
            members=members,
            tree=TreeStats(processes=len(members)),
        )


class LaunchScriptReplicas(ReplicaRegistry):
    """Replicas whose proxy somebody else configures: listed is what that one has read, not what we tell it."""

    def __init__(
        self, supervisor: Supervisor, plan: Plan, cooldown: float, interval: float, script: LaunchScript
    ) -> None:
        super().__init__(supervisor, plan, cooldown, interval, script)
        self._script = script

    def update(self) -> None:
        """Follow what the proxy does. Called on every change."""
        endpoints, routed = self.endpoints(), self._script.routed()
        for endpoint in endpoints:
            if not endpoint.serving:
                self.engines.forget(endpoint.name)
        for name in sorted(routed - self.listed):
            self.supervisor.say("listed", "added to the proxy", service=name)
        for name in sorted(self.listed - routed):
            self._delist(name)
        self.listed = routed
        self.complete = bool(self.expected) and len(routed) >= self.expected

    def proxy_status(self) -> ProxyStatus:
        return self._script.proxy_status()
