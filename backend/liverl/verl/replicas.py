"""verl's replicas: found in Ray, and joined to their processes on this host.

``Discovery`` polls Ray. This module decides for which start of the trainer it does, and turns the result into what the
run needs: endpoints for the proxy's list, a cause of failure when a replica does not start, and the owner of each
process of the cluster.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from liverl.causes.inputs.ray_deaths import of_death
from liverl.causes.verdict.ray_shortage import RayLoad, shortage, wanted
from liverl.model import Breakpoint, Cause, EngineFacts, Level, ServiceState
from liverl.observe.engine.activity import ActivitySigns, ActivityState
from liverl.plan.spec import RayPlan
from liverl.procs import procfs
from liverl.procs.shares import shares
from liverl.serving.endpoint import ReplicaEndpoint
from liverl.supervise.services import prepare, state_machine
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.late_pattern import late_pattern
from liverl.verl.activity import ReplicaActivity
from liverl.verl.discovery.address_client import AddressClientGone, Command, NodeAnswer, address_argv
from liverl.verl.discovery.assess import Expectation, Rank, RankVerdict
from liverl.verl.discovery.discovery import Discovery
from liverl.verl.discovery.layout import highest_found
from liverl.verl.discovery.ray_rest import VariableToken, variable_token
from liverl.verl.route_checks import RouteChecks

_STATES: dict[str, ServiceState] = {
    "missing": "waiting",
    "pending": "preparing",
    "alive": "starting",
    "addressed": "starting",
    "healthy": "ready",
    "dead": "failed",
    "lost": "failed",
}
# What Ray says of an actor whose process ended by itself: it exited, or was ended by a signal that Ray did not send.
_BY_ITSELF = late_pattern(
    r"Worker exit type: SYSTEM_ERROR|unexpectedly exits|exit_type = SYSTEM_ERROR|ALIVE without an engine"
)
# Their hosts, their memory or a command ended these, whatever else is said.
_NOT_BY_ITSELF = late_pattern(
    r"ray\.kill|ray stop|node (?:has died|was terminated|is dead)|running low on memory|out[ _]?of[ _]?memory|"
    r"\bOOM\b|INTENDED|preempt",
    re.IGNORECASE,
)
# What Ray says of actors whose driver exited: causes OWNER_DIED and INTENDED_USER_EXIT.
_EXITED = "exited with the trainer"
_WITH_TRAINER = ("its owner has died", "because its job has finished")
ENDING_S = 300.0  # seconds that verl may take from the end of its replicas to its own, on a busy host
IDLE = 1.0  # seconds between looks while no trainer runs


class VerlReplicas:
    """The replicas of the run's trainer. ``cause``: why the run fails; set once a replica was lost and not replaced,
    or a deadline has passed. ``count``: the number that is expected. ``finishing``: whether the trainer has made all
    the steps that it owes, so that its replicas end with it. ``elsewhere``: whether an address is that of another host,
    whose pids mean nothing here."""

    def __init__(
        self, supervisor: Supervisor, ray: RayPlan, replica_token_file: str = "", sessions_model: str = ""
    ) -> None:
        """``replica_token_file``: as in ``Plan``. ``sessions_model``: the served name, if the trials go through
        sessions."""
        self.cause: Cause | None = None
        self.finishing: Callable[[], bool] = lambda: False
        self.elsewhere: Callable[[str | None], bool] = lambda _ip: False
        self._supervisor = supervisor
        self._ray = ray
        self.count = ray.expected
        self._trainer = 0  # generation of the trainer whose replicas are watched
        self._served: dict[int, int] = {}  # rank -> generation that has been healthy
        self._short = False  # whether verl waits for more than Ray has free
        self._activity = ReplicaActivity()
        self._observing_since = supervisor.now()
        token_file = supervisor.run_dir / replica_token_file if replica_token_file else None
        self._routes = RouteChecks(supervisor.http, sessions_model, token_file)
        self._discovery = Discovery(
            supervisor.http,
            self._dashboard,
            self._token_file(),
            self._expectation(supervisor.now()),
            self._command,
            supervisor.attempt_dir / "logs" / "discovery.log",
            self._tell,
            supervisor.now,
            token_file,
        )

    # --- looking ---

    async def look_at_log(self) -> bool:
        """Read what the trainer has written; returns whether it runs."""
        trainer = self._supervisor.slots.get("trainer")
        process = trainer.current.process if trainer is not None else None
        if trainer is None or process is None or trainer.state not in state_machine.LIVE:
            return False
        if process.generation != self._trainer:
            self._trainer = process.generation
            self._discovery.expect(self._expectation(process.started_at))
        await self._read(process.log)
        return True

    async def look(self) -> float:
        """Poll Ray and the trainer's log once; returns seconds until the next poll."""
        if not await self.look_at_log():
            return IDLE
        pause = await self._discovery.look(self._activity.printed)
        await self._routes.look(self._discovery.ranks)
        for rank in self._discovery.ranks:
            if rank.stage == "healthy" and self._routes.passed(rank):
                self._served[rank.rank] = rank.generation
        load = self.ray_load
        short = load is not None and wanted(load) is not None
        if short and not self._short:
            self._supervisor.pace.changed()  # so that it is diagnosed now
        self._short = short
        verdict = self._discovery.verdict
        judged = self.cause is None and not self._supervisor.stopping
        if verdict is not None and judged and not self._ends(verdict):
            self.cause = self._cause_of(verdict)
        self._fail_if_refused()
        self._supervisor.kick()
        return pause

    def _cause_of(self, verdict: RankVerdict) -> Cause:
        now = self._supervisor.now()
        if _with_trainer(verdict.text):
            # Ray's words name a consequence: whoever owned the replica has ended, and the trainer's log says why.
            text = "verl's replicas ended with the process that had made them, and the trainer has not exited within"
            return Cause("trainer", f"{text} {ENDING_S:g} s", now)
        return self._explained(
            Cause("trainer", verdict.text if verdict.rank is None else f"replica {verdict.text}", now)
        )

    def _ends(self, verdict: RankVerdict) -> bool:
        """Whether a replica has gone because the training is over, or because the process that had made it ended: verl
        takes its time to exit behind that, and its exit is judged by its log."""
        if verdict.stage not in ("dead", "lost"):
            return False
        if not self.finishing() and not _with_trainer(verdict.text):
            return False
        gone = next((one.since for one in self._discovery.ranks if one.rank == verdict.rank), 0.0)
        return self._supervisor.now() - gone < ENDING_S

    @property
    def ray_load(self) -> RayLoad | None:
        """The load of the Ray cluster, while a replica has no process yet; else None."""
        return self._discovery.load

    def _explained(self, cause: Cause) -> Cause:
        """``cause``, with what the cluster lacks in front if a replica waited for it; else with what to do about Ray's
        words on its end."""
        load = self.ray_load
        found = None if load is None else shortage(load)
        if found is None:
            death = of_death(cause.text)
            if death is None:
                return cause
            return msgspec.structs.replace(cause, id=death.id, fix=death.fix, command=death.command)
        return msgspec.structs.replace(
            cause,
            text=f"{found.title}; {cause.text}",
            id=found.id,
            why=found.cause,
            fix=found.fix,
            command=found.command,
            evidence=found.evidence,
        )

    def _fail_if_refused(self) -> None:
        """Fail the run if a replica does not have what sessions need: all of them run the same engine."""
        refused = next(iter(self._routes.refused.items()), None)
        if refused is None or self.cause is not None or self._supervisor.stopping:
            return
        name, why = self._discovery.ranks[refused[0]].name, refused[1]
        self.cause = Cause(name, why, self._supervisor.now())
        self._supervisor.say("routes_refused", f"cannot be used: {why}", "error", name)

    async def _read(self, log: Path) -> None:
        now = self._supervisor.now()
        try:
            events = await asyncio.to_thread(self._activity.read, log, now)
        except OSError as error:
            self._supervisor.records.internal(error)
            return
        ranks = self._discovery.ranks
        self._activity.hear(events, {rank.pid: rank.name for rank in ranks if rank.pid is not None})
        news = self._activity.news(len(ranks))
        if news is not None:
            self._supervisor.say("weights", news, service="trainer")

    def doing(
        self, endpoint: ReplicaEndpoint, facts: EngineFacts | None, trainer: Mapping[str, Any]
    ) -> ActivityState:
        """What a replica does now, from its metrics (``facts``) and the trainer's log and report."""
        version = trainer.get("policy_version")
        return self._activity.look(
            endpoint.name,
            ActivitySigns(
                at=self._supervisor.now(),
                up=endpoint.serving,
                facts=facts,
                trainer_phase=str(trainer.get("phase") or ""),
                policy_version=version if isinstance(version, int) else None,
            ),
        )

    @property
    def found(self) -> int:
        """Number of replicas up to the highest rank that Ray has listed, expected or not."""
        return highest_found(self._discovery.ranks, self._discovery.others)

    @property
    def printed(self) -> int:
        """Number of replicas whose addresses the trainer has printed; 0 until all of them serve."""
        return len(self._activity.printed)

    def recount(self, count: int) -> None:
        """Expect this number of replicas from now on."""
        self.count = count
        self._discovery.recount(count)

    @property
    def total_steps(self) -> int | None:
        """Of the training, from the trainer's log; None before it is printed."""
        return self._activity.total_steps

    @property
    def trackers(self) -> dict[str, str]:
        """Where the trainer logs its metrics besides, see ``TrainerFacts``."""
        return self._activity.trackers

    @property
    def breakpoints(self) -> tuple[Breakpoint, ...]:
        """Those that wait in the trainer's processes; none where Ray was not told to debug: a model's answer can have
        the same words."""
        waiting = self._activity.breakpoints
        if not waiting or not any("RAY_DEBUG" in slot.spec.env for slot in self._supervisor.slots.values()):
            return ()
        command = self._debug_command()
        return tuple(Breakpoint(process, address, command) for process, address in waiting.items())

    def _debug_command(self) -> str:
        """What attaches to a breakpoint: Ray's own program, which takes a token only if it is told so (Ray 2.60)."""
        hub, token = self._supervisor, self._token_file()
        python = self._ray.python or hub.pythons().get(self._ray.environment) or "python"
        values = self._values()
        try:
            address = prepare.fill(self._ray.address, values)
        except prepare.PrepareProblem:
            address = "auto"
        env = ["RAY_DEBUG=legacy", *(["RAY_AUTH_MODE=token"] if token is not None else [])]
        if isinstance(token, Path):
            env.append(f"RAY_AUTH_TOKEN_PATH={shlex.quote(str(token))}")
        words = [str(python), "-m", "ray.scripts.scripts", "debug", "--address", address]
        return " ".join([*env, shlex.join(words)])

    async def ask_nodes(
        self, nodes: Sequence[str], question: Mapping[str, Any], env: Mapping[str, str], timeout: float
    ) -> NodeAnswer:
        """What these nodes of the cluster have; see ``AddressClient.ask_nodes``."""
        return await self._discovery.ask_nodes(nodes, question, env, timeout)

    def filled(self, text: str) -> str | None:
        """``text`` with its placeholders filled in; None while one is not known."""
        try:
            return prepare.fill(text, self._values())
        except prepare.PrepareProblem:
            return None

    def _values(self) -> prepare.Placeholders:
        hub = self._supervisor
        return prepare.Placeholders(
            hub.run_dir, hub.attempt_dir, self._trainer, hub.pythons(), hub.service_ports()
        )

    async def close(self) -> None:
        """Stop the address client."""
        await self._discovery.close()

    def _expectation(self, since: float) -> Expectation:
        ray = self._ray
        return Expectation(
            count=self.count,
            since=since,
            actor_deadline=ray.actor_deadline,
            address_deadline=ray.address_deadline,
            health_deadline=ray.health_deadline,
            not_before=0.0 if ray.earlier else since,
            watched=self._observing_since,
            namespace=ray.namespace,
        )

    def _dashboard(self) -> str | None:
        if not self._ray.service:
            return f"http://{self._ray.dashboard}" if self._ray.dashboard else None
        slot = self._supervisor.slots.get(self._ray.service)
        port = slot.current.port(self._ray.port) if slot is not None else None
        return f"http://{self._ray.dashboard.rpartition(':')[0]}:{port}" if port else None

    def _token_file(self) -> Path | VariableToken | None:
        if not self._ray.token_file:
            return variable_token(os.environ)
        return self._supervisor.run_dir / self._ray.token_file

    def _command(self) -> Command:
        hub = self._supervisor
        values = self._values()
        # Ray takes a token from its variable before one from a file.
        without = ("PYTHONPATH", *(("RAY_AUTH_TOKEN",) if self._ray.token_file else ()))
        env = {k: v for k, v in os.environ.items() if k not in without}
        try:
            env |= {name: prepare.fill(value, values) for name, value in self._ray.child_env.items()}
            address = prepare.fill(self._ray.address, values)
        except prepare.PrepareProblem as error:  # Ray's port is not known now
            raise AddressClientGone(str(error)) from None
        python = self._ray.python or hub.pythons().get(self._ray.environment)
        if not python:
            raise AddressClientGone("no Python with Ray is configured; set environment.venv_path")
        return address_argv(str(python), address, self._ray.namespace), env

    def _tell(self, text: str, level: Level, rank: int | None) -> None:
        if _with_trainer(text):  # a consequence of the trainer's exit, which is reported by itself
            text, level = f"replica {rank} {_EXITED}", "info"
        name = self._discovery.ranks[rank].name if rank is not None else "ray"
        self._supervisor.say("discovery", text, level, name)

    # --- results ---

    def endpoints(self) -> list[ReplicaEndpoint]:
        """Every expected replica, by rank, found or not."""
        return [self._endpoint(rank) for rank in self._discovery.ranks]

    def serving(self) -> int:
        """The number of replicas that serve now."""
        return sum(endpoint.serving for endpoint in self.endpoints())

    def _endpoint(self, rank: Rank) -> ReplicaEndpoint:
        state, why = self._state(rank)
        boot = self._activity.boot(rank.pid) if state in ("preparing", "starting") else None
        return ReplicaEndpoint(
            name=rank.name,
            state=state,
            why=why,
            address=rank.address if state != "stopped" else None,
            generation=rank.generation,
            restarts=max(0, rank.generation - 1),
            since=rank.since,
            gpus=tuple(g.uuid for g in self._supervisor.gpus if rank.name in g.owner.split(" + ")),
            kind="verl",
            pids=(rank.pid,) if rank.pid is not None else (),
            stage=boot.stage if boot is not None else None,
            progress=boot.progress if boot is not None else None,
            ip=rank.ip,
        )

    def _state(self, rank: Rank) -> tuple[ServiceState, str]:
        """The state of a replica, and why it is in it."""
        if self._ended_with_trainer(rank):
            return "stopped", _EXITED
        if rank.stage == "addressed" and self._served.get(rank.rank) == rank.generation:
            # It has served before: one slow answer must not move its trials to other replicas.
            return "degraded", rank.why
        if rank.stage == "healthy" and not self._routes.passed(rank):
            why = (
                self._routes.problems.get(rank.rank)
                or "checking that its server answers with token ids, which the sessions need"
            )
            return ("failed" if self._routes.refused.get(rank.rank) else "starting"), why
        # Long before a deadline nothing is wrong with it.
        why = (
            "waits for verl to start it: Ray has no actor of this name yet"
            if rank.stage == "missing"
            else rank.why
        )
        return _STATES[rank.stage], why

    def _ended_with_trainer(self, rank: Rank) -> bool:
        """Whether the replica is gone because its trainer is. Ray may report that later, or be gone as well."""
        if rank.stage == "dead":
            return _with_trainer(rank.why)
        if self._ray.earlier or not self._trainer or rank.stage in ("missing", "pending", "lost"):
            return False  # it may be another job's, or there is none
        trainer = self._supervisor.slots.get("trainer")
        process = trainer.current.process if trainer is not None else None
        if trainer is None or process is None or process.generation != self._trainer:
            return True
        return trainer.state not in (*state_machine.LIVE, "stopping")

    def dead(self) -> str | None:
        """The replica that died first, with Ray's cause; None if none died. Replicas that exited with their trainer
        do not count."""
        ended = [r for r in self._discovery.ranks if r.stage == "dead" and not _with_trainer(r.why)]
        first = min(ended, key=lambda rank: rank.since, default=None)
        return f"{first.name} is {first.why}" if first is not None else None

    def ended_unasked(self, name: str) -> bool:
        """See ``ReplicaSource.ended_unasked``."""
        rank = next((rank for rank in self._discovery.ranks if rank.name == name), None)
        if rank is None or rank.stage != "dead" or self._ended_with_trainer(rank) or self._ray.earlier:
            return False
        trainer = self._supervisor.slots.get("trainer")
        lives = trainer is not None and trainer.state in state_machine.LIVE
        return lives and bool(_BY_ITSELF.search(rank.why)) and not _NOT_BY_ITSELF.search(rank.why)

    def members(self, trees: dict[str, list[int]]) -> dict[str, list[int]]:
        """``trees`` (service -> pids) with Ray's process tree divided: each replica's processes under its name, the
        rest under ``trainer``. A Ray that the trainer has started itself is in the trainer's tree."""
        home = self._ray.service or "trainer"
        here = (endpoint for endpoint in self.endpoints() if not self.elsewhere(endpoint.ip))
        actors = {pid: endpoint.name for endpoint in here for pid in endpoint.pids}
        tree = trees.get(home, [])
        if not actors or not tree:
            return trees
        parents = {pid: proc.ppid for pid in tree if (proc := procfs.read_proc(pid)) is not None}
        owned = {name: sorted(pids) for name, pids in shares(tree, parents, actors).items()}
        of_replicas = {pid for pids in owned.values() for pid in pids}
        rest = [pid for pid in tree if pid not in of_replicas]
        others = {name: pids for name, pids in trees.items() if name != home}
        return {**others, "trainer": [*others.get("trainer", []), *rest], **owned}


def _with_trainer(cause: str) -> bool:
    """Whether Ray says that an actor ended because its trainer did."""
    return any(words in cause for words in _WITH_TRAINER)
