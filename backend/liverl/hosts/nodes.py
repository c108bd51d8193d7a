"""The hosts of a run on several: which are nodes of its Ray cluster, whoever started that, and have what the run needs;
which are missing, and which were lost."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from liverl.external.port_holders import own_addresses
from liverl.hosts.cluster import NotPrivate, read_cluster
from liverl.hosts.figures import Figures
from liverl.hosts.inspection import Ask, Fill, Inspection
from liverl.hosts.lacks import versions
from liverl.hosts.states import JoinedHost, read_states, write_state
from liverl.model import Cause, GpuStatus, Level, NodeStatus
from liverl.plan.spec import RayPlan
from liverl.rundir.layout import hostname
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.plural import quantity
from liverl.verl.discovery.ray_rest import RayError, RayNode, RayRest, variable_token

State = Literal["missing", "joining", "ready", "lost"]
LOOK_S, LATER_S = 2.0, 5.0  # seconds between two looks: while a host is missing, and once all have joined
SHORT_S = 30.0  # seconds: a node that was ALIVE for less was never reached by the head
FIGURES_S = 5.0  # seconds between two looks at what the hosts measure, as often as Ray's agents tell it
HELD_S, HOLD_S = 0.5, 40.0  # ... and while the end of a service is not judged, for at most so long


def join_line(run_dir: Path | str) -> str:
    """What to run on another host."""
    return f"liverl-tui join {shlex.quote(str(run_dir))}"


def start_line(ray: RayPlan) -> str:
    """What to run on another host, where the cluster is not ours."""
    words = f"ray start --address={shlex.quote(ray.address)}"
    if not ray.token_file:
        return words
    return f"RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={shlex.quote(ray.token_file)} {words}"


def assess_nodes(
    before: Sequence[NodeStatus],
    listed: Iterable[RayNode],
    states: Iterable[JoinedHost],
    expected: int,
    now: float,
    line: str,
    head: str = "",
) -> tuple[NodeStatus, ...]:
    """The state of each host. Pure.

    ``before``: the answer of the last time. ``listed``: Ray's nodes, dead ones included. ``states``: what hosts that
    join say of themselves. ``expected``: number of hosts. ``line``: the command for a missing host; ``head``: the
    head's address. Hosts that are missing have no name; there are as many as are neither ready, lost nor joining.
    """
    since = {
        (node.id or node.ip, node.state): node.since for node in before
    }  # a name may change: see _inspected
    found: dict[str, NodeStatus] = {}  # by IP address

    def put(name: str, ip: str, state: State, why: str, node_id: str = "", command: str = "") -> None:
        at = since.get((node_id or ip, state), now)
        found[ip] = NodeStatus(name, ip, node_id, state, why, at, command)

    told = {state.ip: state for state in states}
    nodes = sorted(
        listed, key=lambda node: node.state == "ALIVE"
    )  # a living one replaces its dead predecessor
    for node in nodes:
        name = told[node.ip].host if node.ip in told else node.name or node.ip
        if node.state == "ALIVE":
            said = told[node.ip].why if node.ip in told and told[node.ip].state == "joined" else ""
            put(name, node.ip, "ready", said, node.node_id)
        elif node.state == "DEAD":
            left = told.get(node.ip)
            why = "it left the run" if left is not None and left.state == "left" else _death(node, left, head)
            put(name, node.ip, "lost", why or "Ray says DEAD, without a reason", node.node_id, line)
    for ip, state in told.items():
        known = found.get(ip)
        if known is not None and (known.state == "ready" or state.state in ("joined", "left")):
            continue
        if state.state in ("joining", "joined"):
            put(state.host, ip, "joining", state.why)
        elif state.state == "refused":
            put(state.host, ip, "missing", state.why, command=line)
    present = tuple(found.values())
    missing = expected - len(present)
    return (
        *present,
        *(
            NodeStatus("", "", "", "missing", "no host has joined yet", since.get(("", "missing"), now), line)
            for _ in range(missing)
        ),
    )


def _death(node: RayNode, joined: JoinedHost | None, head: str) -> str:
    """Why a node is DEAD. One that its head cannot reach is ALIVE for 13 to 20 s, until the first checks of its health
    have failed, while its ``join`` lives and sees nothing wrong (measured, Ray 2.60)."""
    if node.lived is None or node.lived >= SHORT_S or joined is None or joined.state != "joined":
        return node.message
    own = joined.reaches_from
    if own and own != node.ip:
        return f"the head cannot reach {node.ip}: wrong interface; join with --node-ip {own}, or without it"
    return f"the head ({head}) cannot reach {node.ip}: is a firewall between them? Ray: {node.message}"


class Nodes:
    """Watches the hosts of a run. ``statuses``: of each; ``cause``: why the run fails, once the deadline has passed
    before all have joined, or a host was lost; ``joined``: number of hosts that are nodes of the cluster now, and have
    what the run needs."""

    def __init__(
        self,
        supervisor: Supervisor,
        ray: RayPlan,
        ask: Ask | None = None,
        fill: Fill = str,
    ) -> None:
        """``ask``: asks nodes what they have; None: what they have is not checked. ``fill``: fills in placeholders."""
        self.statuses: tuple[NodeStatus, ...] = ()
        self.cause: Cause | None = None
        self._supervisor, self._ray = supervisor, ray
        self._held_since: float | None = None  # since when the end of a service is not judged
        self._restart_held = False  # whether a trainer waits to start again
        self._complete = False  # whether all hosts were there
        self._gone: Cause | None = (
            None  # why a host that is waited for is gone, while the trainer starts again
        )
        self._answered: set[tuple[str, str]] = set()  # (IP, id) of lost hosts without which all were there
        # Since when hosts are waited for; None: the head has not answered yet.
        self._since: float | None = None
        self._own: JoinedHost | None = None  # what this host says of itself, once the head has answered
        self._unwritten: str | None = ""  # why that is not written yet; None once it is
        self._figures, self._figures_at = Figures(), float("-inf")
        self._unmeasured = ""  # why the figures are not known; "" if they are
        self._ours = bool(ray.service)
        self._head = ray.dashboard.rpartition(":")[0] if self._ours else ""
        self._line = join_line(supervisor.run_dir) if self._ours else start_line(ray)
        self._inspection: Inspection | None = None
        if ray.checks is not None and ask is not None:
            self._inspection = Inspection(ray.checks, ask, fill, supervisor.kick, supervisor.now)
        self._unlisted = ""  # why the cluster does not list its nodes; "" if it does
        self._known: set[str] = set()  # ids of the nodes that were alive while the run watched

    @property
    def joined(self) -> int:
        """Number of hosts with which a trainer may start. Less than it needs, as long as verl may put a process on a
        host that lacks something."""
        count, inspection = self._usable, self._inspection
        if inspection is None:
            return count
        alive = [node for node in self.statuses if node.id and node.state in ("ready", "joining")]
        held_up = not all(inspection.passed(node.id) for node in alive)
        return min(count, self._ray.hosts - 1) if held_up else count

    @property
    def _usable(self) -> int:
        """Number of hosts that have what the run needs, whatever others lack."""
        ready, inspection = [node for node in self.statuses if node.state == "ready"], self._inspection
        return len(ready) if inspection is None else sum(inspection.counts(node.id) for node in ready)

    def _is_here(self, ip: str | None) -> bool:
        """Whether this is an address of this host."""
        return ip == self._head if self._ours else ip in own_addresses()

    def measured(self) -> tuple[NodeStatus, ...]:
        """``statuses`` with what is measured on the hosts."""
        return self._figures.added(self.statuses)

    def gpus(self, own: Sequence[GpuStatus]) -> tuple[GpuStatus, ...]:
        """``own``, the GPUs of this host, and those of the others that Ray's agents see."""
        name = next((node.name for node in self.statuses if self._is_here(node.ip)), hostname())
        here = (msgspec.structs.replace(gpu, node=name) for gpu in own)
        others = [node for node in self.measured() if not self._is_here(node.ip)]
        return (*here, *self._figures.gpus(others, self._supervisor.now()))

    def name_of(self, ip: str | None) -> str:
        """The name of the host with this address; the address where it is no host's that is known; "" without one."""
        return next((node.name for node in self.statuses if node.ip == ip), ip or "") if ip else ""

    def elsewhere(self, ip: str | None) -> bool:
        """Whether this is the address of another host of the run."""
        return ip is not None and not self._is_here(ip) and any(node.ip == ip for node in self.statuses)

    def may_be_behind(self, failed: str) -> bool:
        """Whether a service that has just failed is not judged yet: a host may be behind it. Ray says that a host is
        gone up to 7 s later than a trainer with an actor on it ends, and on a busy head up to 25 s later (measured,
        Ray 2.60)."""
        now = self._supervisor.now()
        if self._gone is not None and self.cause is None:
            self.cause = self._gone  # it does not start again, so nothing waits for the host
            return True
        if not self._complete or self.cause is not None:
            return False
        if self._held_since is None:
            self._held_since = now
            words = f"{failed} has failed; waiting up to {HOLD_S:g} s for Ray to say whether a host was lost"
            self._supervisor.say("nodes", words, service=failed)
        return now - self._held_since < HOLD_S

    async def before_restart(self, failed_at: Sequence[float], service: str) -> None:
        """Wait, before a trainer that has failed starts again, until no host can be behind it: until each has answered
        anew, or Ray has said that one is gone and all have joined again. ``failed_at``: Unix seconds of its last
        failure; empty: it has not failed.

        Returns once all hosts are there, or the run ends: at the latest after ``node_deadline``. Ray's word alone
        would be too late: it came 25 s after the end of the trainer on a busy host, and the trainer would have started
        on a host that is gone.
        """
        hub, inspection = self._supervisor, self._inspection
        if not failed_at or not (self._complete or self._restart_held or self._gone is not None):
            return
        if self._gone is None:
            self._complete, self._since = False, hub.now()
            words = f"{service} has failed; it restarts once every host has answered, because one may be lost"
            hub.say("nodes", words, service=service)
        if inspection is not None:
            inspection.forget()
        self._restart_held = True
        try:
            while not hub.stopping and self.cause is None:
                answered = inspection is not None or hub.now() - failed_at[-1] >= HOLD_S
                if answered and self._gone is None and self.joined >= self._ray.hosts:
                    self._all_here()
                    return
                await asyncio.sleep(HELD_S)
        finally:
            self._restart_held = False

    async def look(self) -> float:
        """Ask Ray once, and let the run be judged anew; returns seconds until the next time."""
        before, hub = self.statuses, self._supervisor
        listed = await self._listed()
        if any(node.state == "ALIVE" for node in listed):  # until then the head does not list itself
            states: tuple[JoinedHost, ...] = ()
            if self._ours:
                own = await self._of_this_host()
                states = await asyncio.to_thread(read_states, hub.attempt_dir)
                states = (own, *(state for state in states if state.ip != own.ip))
            told = assess_nodes(before, listed, states, self._ray.hosts, hub.now(), self._line, self._head)
            self.observe(self._inspected(told, listed))
            await self._measure()
        elif not self._ours and not before:
            self.observe(assess_nodes((), (), (), self._ray.hosts, hub.now(), self._line))
        else:
            self._judge(hub.now())  # the deadline passes while the cluster does not answer, too
        if self.statuses != before:
            hub.pace.changed()
        hub.kick()
        if self._held_since is not None or self._restart_held:
            return HELD_S
        return LATER_S if self._complete else LOOK_S

    def _inspected(self, told: tuple[NodeStatus, ...], listed: Sequence[RayNode]) -> tuple[NodeStatus, ...]:
        """The hosts' states with what they lack: one that Ray lists is ready once it has what the run needs."""
        inspection = self._inspection
        if inspection is None:
            return told
        alive = [node for node in listed if node.state == "ALIVE"]
        inspection.look(alive, self._head)
        before = {(node.id, node.state): node.since for node in self.statuses}
        enough = sum(inspection.counts(node.node_id) for node in alive) >= self._ray.hosts
        found = []
        for node in told:
            if not self._ours and (name := inspection.host(node.id)):
                node = msgspec.structs.replace(node, name=name)
            if node.state == "ready":
                words = inspection.words(node.id)
                ready = inspection.passed(node.id) and (enough or inspection.counts(node.id))
                state: State = "ready" if ready else "joining"
                since = before.get((node.id, state), self._supervisor.now())
                why = "; ".join(filter(None, (node.why, words)))
                node = msgspec.structs.replace(node, state=state, why=why, since=since)
            found.append(node)
        return tuple(found)

    async def _of_this_host(self) -> JoinedHost:
        """What hosts that join compare with, written where they wait for it; without versions, if these cannot be
        told."""
        hub = self._supervisor
        if self._own is None:
            found: dict[str, str] = {}
            try:
                cluster = await asyncio.to_thread(read_cluster, hub.run_dir)
                if cluster is not None:
                    found = await asyncio.to_thread(versions, cluster)
            except (NotPrivate, OSError, ValueError) as error:
                words = (
                    f"the versions of verl's packages are not compared with those of hosts that join: {error}"
                )
                hub.say("nodes", words, "warning", self._ray.service)
            self._own = JoinedHost(hostname(), self._head, os.getpid(), "joined", "", found)
        if self._unwritten is not None:
            try:
                await asyncio.to_thread(write_state, hub.attempt_dir, self._own)
                self._unwritten = None
            except OSError as error:
                why = f"hosts that join wait until this one can write to {hub.attempt_dir}: {error.strerror}"
                if why != self._unwritten:
                    hub.say("nodes", why, "error", self._ray.service)
                self._unwritten = why
        return self._own

    @property
    def _starts_again(self) -> bool:
        """Whether the trainer is started again by itself when it has failed."""
        ending = [slot for slot in self._supervisor.slots.values() if slot.spec.ends_run]
        final = ("failed", "gave_up")
        return any(slot.spec.restart.mode != "never" and slot.state not in final for slot in ending)

    def _rest(self) -> RayRest | None:
        hub, ray = self._supervisor, self._ray
        if not self._ours:
            token = hub.run_dir / ray.token_file if ray.token_file else variable_token(os.environ)
            return RayRest(hub.http, f"http://{ray.dashboard}", token)
        slot = hub.slots.get(ray.service)
        port = slot.current.port(self._ray.port) if slot is not None and slot.state == "ready" else None
        if port is None:
            return None
        return RayRest(hub.http, f"http://{self._head}:{port}", hub.run_dir / self._ray.token_file)

    async def _listed(self) -> tuple[RayNode, ...]:
        """Ray's nodes; none while the head does not answer, which the probe of our own tells. Of a cluster of others
        those that were dead before the run are left out."""
        rest = self._rest()
        try:
            listed = () if rest is None else await rest.nodes()
        except RayError as error:
            self._unlisted = str(error)
            return ()
        self._unlisted = ""
        self._known |= {node.node_id for node in listed if node.state == "ALIVE"}
        return listed if self._ours else tuple(node for node in listed if node.node_id in self._known)

    async def _measure(self) -> None:
        """Take what Ray's agents measure. Where the dashboard does not tell it, it becomes old, and is shown so."""
        rest, now = self._rest(), self._supervisor.now()
        if rest is None or now - self._figures_at < FIGURES_S:
            return
        self._figures_at = now
        try:
            self._figures.take(await rest.figures(), now)
        except RayError as error:
            if str(error) != self._unmeasured:
                words = f"the hosts' figures are not known: {error}"
                self._supervisor.say("nodes", words, "warning", self._ray.service)
            self._unmeasured = str(error)
        else:
            self._unmeasured = ""

    def observe(self, statuses: tuple[NodeStatus, ...]) -> None:
        """Take these as the hosts' present states: tell what has changed, and decide whether the run fails."""
        now, before = self._supervisor.now(), self.statuses
        self._since = now if self._since is None else self._since
        self.statuses = statuses
        self._tell(before)
        self._judge(now)

    def _tell(self, before: Sequence[NodeStatus]) -> None:
        service = self._ray.service or None
        hub, missing = self._supervisor, sum(not node.id for node in self.statuses)
        if not before and missing > 0:
            words = f"waiting for {quantity(missing, 'host')} of {self._ray.hosts}; run on each: {self._line}"
            hub.say("nodes", words, service=service)
        earlier = {(node.name, node.state, node.why) for node in before}
        for node in self.statuses:
            if not node.name or (node.name, node.state, node.why) in earlier:
                continue
            if node.state == "ready" and (node.ip != self._head or node.why):
                words = f"host {node.name} ({node.ip}) has joined: {self.joined} of {self._ray.hosts}"
                level: Level = "warning" if node.why else "info"
                hub.say("nodes", words + (f"; {node.why}" if node.why else ""), level, service)
            elif node.state == "lost":
                hub.say("nodes", f"host {node.name} is gone: {node.why}", "error", service)
            elif node.command:
                hub.say("nodes", f"host {node.name} cannot join: {node.why}", "warning", service)
            elif (
                node.state == "joining" and self._inspection is not None and node.id in self._inspection.lacks
            ):
                hub.say("nodes", f"host {node.name} ({node.ip}) {node.why}", "warning", service)

    @property
    def _lost(self) -> list[NodeStatus]:
        return [node for node in self.statuses if node.state in ("lost", "missing") and node.name]

    def _all_here(self) -> None:
        """Take note that all hosts are there: none that was lost before is missed any more."""
        if not self._complete:
            self._answered |= {(node.ip, node.id) for node in self._lost}
        self._complete = True
        if self._gone is not None:
            self._supervisor.say("nodes", f"all {self._ray.hosts} hosts have joined again")
            self._gone = self._held_since = None

    def _judge(self, now: float) -> None:
        here = {node.ip for node in self.statuses if node.state == "ready"}
        self._answered = {key for key in self._answered if key[0] not in here}  # it may be lost again
        if self.joined >= self._ray.hosts:
            self._all_here()
        if self.cause is not None or self._supervisor.stopping:
            return
        lost = [node for node in self._lost if (node.ip, node.id) not in self._answered]
        # A cluster of others may have more hosts than the run needs: one is missed once the trainer ended.
        missed = self._usable < self._ray.hosts or self._held_since is not None
        if (self._complete or (self._restart_held and self._gone is None)) and lost and missed:
            last = max(lost, key=lambda node: node.since)
            text = f"host {last.name} ({last.ip}) is gone: {last.why}"
            fix = "find out why it stopped, then continue the run and join that host again"
            cause = Cause(self._ray.service or None, text, now, fix=fix, command=self._line)
            if self._starts_again:
                self._gone, self._complete, self._since = cause, False, now
                words = (
                    f"{text}; waiting up to {self._ray.node_deadline:g} s (ray.node_deadline) for this or another "
                    "host to join, then the trainer restarts from its checkpoint; run on that host: "
                    f"{self._line}"
                )
                self._supervisor.say("nodes", words, "warning", self._ray.service)
            else:
                self.cause = cause
        elif not self._complete and self._since is not None and now - self._since > self._ray.node_deadline:
            missing = [node for node in self.statuses if node.name and node.state != "ready"]
            told = [
                f"{node.name}: {node.why}" for node in missing if (node.ip, node.id) not in self._answered
            ]
            named = "; ".join((*told, *filter(None, (self._unlisted,))))
            before = f"{self._gone.text}; then " if self._gone is not None else ""
            text = (
                f"{before}{quantity(self._ray.hosts - self.joined, 'host')} of {self._ray.hosts} did not join within "
                f"{self._ray.node_deadline:g} s (ray.node_deadline)" + (f": {named}" if named else "")
            )
            fix = f"run on each missing host: {self._line}"
            self.cause = Cause(self._ray.service or None, text, now, fix=fix, command=self._line)
