"""The supervisor: services of a plan, kept as wanted. Event-driven; whatever changes leads to one ``reconcile``.

It owns the journal, the keeper link, the trees and the slots. What the run is *for* (replica lists, weights,
metrics) lives in other modules, which see it through ``slots``, ``now`` and the callbacks.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from liverl.control.messages import CommandError
from liverl.model import Event, Exit, GpuStatus, Level
from liverl.observe.causes import find_cause
from liverl.observe.gpu_ledger import GpuLedger
from liverl.plan.spec import Dependency, Plan, PortSpec, ServiceSpec
from liverl.supervise import machine, probes, procfs, tree
from liverl.supervise.crashpoints import crashpoint
from liverl.supervise.envs import Environments
from liverl.supervise.eventlog import EventLog, words
from liverl.supervise.instance import Instance
from liverl.supervise.journal import LineFile, complain, write_atomic
from liverl.supervise.keeperlink import Keeper, KeeperError, KeeperGone
from liverl.supervise.machine import Unit
from liverl.supervise.prepare import PrepareProblem
from liverl.supervise.slot import Slot
from liverl.supervise.ticks import until_tick

_WALL = time.time() - time.monotonic()

KEEPER_PATIENCE = 10.0  # seconds that a start waits for a new keeper; one comes up within 0.1
SCAN_AT_LEAST = 15.0  # seconds between two scans on the largest hosts
DISK_PATIENCE = 2.0  # seconds that a signal waits for the journal; a flooded disk takes some 0.01


class Supervisor:
    """Keeps the services of one attempt as wanted."""

    def __init__(self, plan: Plan, run_dir: Path, attempt: int, scan_interval: float) -> None:
        self.plan = plan
        self.run = plan.run
        self.run_dir = run_dir
        self.attempt = attempt
        self.attempt_dir = run_dir / f"attempt_{attempt:03d}"
        self.http = probes.Http()
        self.events = EventLog(run_dir / "events.jsonl", self.now, self.write_failed)
        self.slots: dict[str, Slot] = {}
        self.environments = Environments(plan.environments, self._environment_changed)
        self.trees = tree.Trees(plan.run, str(run_dir))
        self.ledger = GpuLedger()
        self.gpus: tuple[GpuStatus, ...] = ()  # from the last sample
        self.allowed_gpus: tuple[str, ...] = ()  # UUIDs that the inherited environment lets us use
        self.used_generations: dict[str, int] = {}  # highest numbers of services that were removed
        self.on_change: Callable[[], None] = lambda: None
        self.stopping: bool = False
        self.stop_now: bool = False
        self._journal = LineFile(run_dir / "journal.jsonl", durable=True)
        self.keeper = Keeper(run_dir, self._exit_told, self._keeper_gone)
        self._listeners: dict[str, tuple[PortSpec, int]] = {}  # name -> (spec, our duplicate)
        self._scheduled = False
        self._populated = False  # nothing is decided before every service is known
        self._closing = False
        self._dismissed = False
        self._write_errors: set[str] = set()
        self._internal_errors: set[str] = set()
        self._newest_write: Future[None] | None = None
        self._keeper_up = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._scan_interval = scan_interval
        self._told_members: dict[str, list[tree.Member]] = {}
        self._members_written: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._table: dict[int, procfs.Proc] = {}
        self._table_at = self._table_cost = 0.0  # monotonic seconds
        self.tables = 0  # how many were read: two looks at one table are one look

    # --- what instances need (Hub) ---

    def now(self) -> float:
        """Unix time that never steps: the wall clock at our start, plus what has passed since."""
        return _WALL + time.monotonic()

    def changed(self, instance: Instance, before: Unit) -> None:
        if not self._closing:
            self.journal_soon(instance.record())
            said = words(before, instance.unit, self.now())
            if said is not None:
                text, level = said
                if instance.role != "current":
                    text = f"({instance.role} generation {instance.unit.generation}) {text}"
                self.events.add("state", text, level, instance.name, state=instance.unit.state)
        if instance.unit.state in ("stopped", "failed", "gave_up", "backing_off"):
            self.ledger.release(instance.name)
            self.trees.forget(instance.key)
        self.kick()

    def note(self, instance: Instance, kind: str, text: str, level: str = "info", **data: Any) -> None:
        self.say(kind, text, level, instance.name, **data)  # type: ignore[arg-type]

    def say(
        self, kind: str, text: str, level: Level = "info", service: str | None = None, **data: Any
    ) -> Event:
        return self.events.add(kind, text, level, service, **data)

    async def journal(self, record: dict[str, Any]) -> None:
        await self._journal.write({"at": self.now(), **record})

    def journal_soon(self, record: dict[str, Any]) -> None:
        future = self._journal.append({"at": self.now(), **record})
        self._newest_write = future

        def done(f: Future[None]) -> None:
            error = f.exception()
            if error is not None:
                self.write_failed(str(error))

        future.add_done_callback(done)

    async def journalled(self) -> None:
        """Wait until everything given to ``journal_soon`` is on disk, or could not be written, or the disk
        takes longer than is worth waiting for."""
        if self._newest_write is not None:
            written = asyncio.wrap_future(self._newest_write)
            written.add_done_callback(lambda f: f.cancelled() or f.exception())  # told by write_failed
            await asyncio.wait([written], timeout=DISK_PATIENCE)

    def write_failed(self, text: str) -> None:
        """Something could not be written; told once for each text. May be called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell_write_error, text)

    def _tell_write_error(self, text: str) -> None:
        if text in self._write_errors or self._closing:
            return
        self._write_errors.add(text)
        self.say("write", f"cannot be written: {text}", "error")
        complain(f"cannot write: {text}")

    async def keeper_request(self, do: str, **args: Any) -> dict[str, Any]:
        await self._until_kept()
        return await self.keeper.request(do, **args)

    async def _until_kept(self) -> None:
        """Wait for a keeper that has all our sockets: another one would bind the port anew.

        Raises:
            KeeperGone: there is none, and it takes long to get one.
        """
        try:
            await asyncio.wait_for(self._keeper_up.wait(), KEEPER_PATIENCE)
        except TimeoutError:
            raise KeeperGone from None

    async def orphan(self, tag: str) -> tree.Member | None:
        """The leader that a keeper forked before it died without a word, if it did."""
        await self.forks_settled()
        return procfs.leader_by_tag(tag, self.run_dir)

    async def forks_settled(self) -> None:
        """Wait until no fork of a dead keeper is left that has yet to become its service: until then it shows
        the keeper's tag."""
        give_up = self.now() + KEEPER_PATIENCE
        while self.now() < give_up:
            if self._keeper_up.is_set():
                forks = procfs.tagged(f"{self.run}/keeper/0", self.run_dir)
                if all(p.pid == self.keeper.pid or p.zombie for p in forks):
                    return
            await asyncio.sleep(0.02)

    async def hold_port(self, service: str, port: PortSpec) -> int:
        """The number of a port whose socket the keeper holds for the run."""
        name = f"{service}.{port.name}"
        await self._until_kept()
        try:
            number: int = (await self.keeper.request("listen", name=name, host=port.host, port=port.number))[
                "port"
            ]
        except KeeperError as error:
            holder = procfs.port_holder(port.number)
            who = f" is held by {holder.words()}" if holder else f": {error}"
            raise PrepareProblem(f"port {port.number}{who}") from None
        if name not in self._listeners:
            self._listeners[name] = (port, await self.keeper.get_listener(name))
        return number

    def reserve_gpus(self, name: str, count: int) -> tuple[str, ...]:
        grant = self.ledger.reserve(name, count, self.gpus, self.allowed_gpus)
        if grant.reason is not None:
            raise PrepareProblem(grant.reason)
        return grant.uuids

    def pythons(self) -> Mapping[str, Path]:
        return self.environments.pythons

    def service_ports(self) -> dict[str, int]:
        """The ``http`` port of every service that has one now, by its name."""
        found = {name: slot.current.port("http") for name, slot in self.slots.items()}
        return {name: port for name, port in found.items() if port is not None}

    async def live_members(self, instance: Instance) -> set[tree.Member]:
        leaders = self._leaders()
        alone = all(key == instance.key for key in leaders)
        # Strays without any sign are counted to the one that ends only if they cannot be another's.
        ending = instance.key if instance.unit.leader_gone and alone else None
        live = self.trees.update(leaders, ending=ending, table=self._processes())
        return live.get(instance.key, set())

    def _processes(self) -> dict[int, procfs.Proc]:
        """The process table, one for all services that end together: on a large host a scan is dear."""
        now, cost = time.monotonic(), self._table_cost
        if now - self._table_at > 3 * cost:
            self._table = procfs.scan()
            self._table_at = time.monotonic()
            self._table_cost = self._table_at - now
            self.tables += 1
        return self._table

    # --- life ---

    async def connect_keeper(self) -> tuple[bool, list[dict[str, Any]]]:
        """Reach or start the keeper. Returns whether it lived before, and its children's records."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("LIVERL_")}
        env["LIVERL_RUN"] = f"{self.run}/keeper/0"
        env["LIVERL_RUN_DIR"] = str(self.run_dir)
        lived, children, _ = await self.keeper.connect(env)
        self.trees.keeper_pid = self.keeper.pid
        self.trees.not_ours = frozenset({os.getpid(), self.keeper.pid})
        try:
            record = {"pid": self.keeper.pid, "tick": procfs.start_tick(self.keeper.pid)}
            write_atomic(self.run_dir / "keeper.json", msgspec.json.encode(record))
        except OSError as error:
            self.write_failed(str(error))  # it is for people: we find the keeper by its socket
        if not self._listeners:
            self._keeper_up.set()
        return lived, children

    def add_slot(self, spec: ServiceSpec, unit: Unit | None = None, highest: int = 0) -> Slot:
        instance = Instance(self, spec, "current", unit or Unit(generation=highest, since=self.now()))
        highest = max(highest, instance.unit.generation)
        slot = Slot(spec, instance, highest=highest, base=highest)
        self.slots[spec.name] = slot
        return slot

    def start(self) -> None:
        """Begin: build environments, start what may start, scan from now on."""
        self._populated = True
        if not self.stopping:
            self.environments.start()
        self.spawn_task(self.forever(self._scan_and_pause))
        self.kick()

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.internal(error)

    def internal(self, error: BaseException) -> None:
        """A fault of ours: told once by an event, and with its traceback in our log."""
        text = f"{type(error).__name__}: {error}"
        if text not in self._internal_errors:
            self._internal_errors.add(text)
            self.say("internal", text, "error")
            complain("".join(traceback.format_exception(error)))

    async def forever(self, look: Callable[[], Coroutine[Any, Any, float]]) -> None:
        """Call ``look`` again and again, each time after the seconds that it returned. A fault in one look must
        not end all later ones."""
        while True:
            try:
                pause = await look()
            except Exception as error:  # noqa: BLE001 - told
                self.internal(error)
                pause = 1.0
            await asyncio.sleep(pause)

    def kick(self) -> None:
        """Something changed: look once at everything, soon."""
        if self._populated and not self._scheduled and not self._closing:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._reconcile)

    def _reconcile(self) -> None:
        self._scheduled = False
        for slot in list(self.slots.values()):
            self._settle(slot)
        try:
            self.on_change()
        except Exception as error:  # noqa: BLE001 - told; services must be kept whatever is wrong with the lists
            self.internal(error)
        if self.stopping:
            self._stop_in_order()
            return
        for slot in self.slots.values():
            current, incoming = slot.current, slot.incoming
            if _may_start(current) and not self.blocked_by(slot.spec):
                current.feed(machine.DependenciesMet())
            # A successor takes over what runs: it waits for nobody.
            if incoming is not None and _may_start(incoming):
                incoming.feed(machine.DependenciesMet())

    def _settle(self, slot: Slot) -> None:
        for over in slot.settle():
            self.say("swap", f"generation {over.unit.generation} has drained and ended", service=slot.name)
        incoming = slot.incoming
        if incoming is None:
            return
        current = slot.current.unit
        if current.state == "stopping" and current.after == "decide" and current.wanted:
            # It died while its successor starts: it must not start a third.
            slot.current.feed(machine.Yield())
        if incoming.unit.state == "ready":
            self._promote(slot)
        elif incoming.unit.state in machine.ENDED and not incoming.busy:
            why = _why_ended(incoming)
            slot.drop_incoming()
            current = slot.current.unit
            goes = "is started again" if current.after == "hold" else "goes on"
            text = f"the new generation did not start ({why}); generation {current.generation} {goes}"
            self.say("swap_failed", text, "error", slot.name)
            if current.after == "hold" and current.wanted and not self.stopping:
                slot.current.feed(machine.Start())
        elif slot.current.unit.state in machine.ENDED and not self.stopping:
            self._promote(slot)

    def _promote(self, slot: Slot) -> None:
        crashpoint("mid_swap", "ready")
        old = slot.promote()
        old.role = "retiring"
        new = slot.current
        # One record: with half of it a successor would find two current generations, or none.
        record = {"k": "promoted", "svc": slot.name, "records": [new.record(), old.record()]}
        if old in slot.retiring:
            text = f"generation {new.unit.generation} serves; generation {old.unit.generation} drains"
            self.spawn_task(self._retire(old, record))
        else:
            text = (
                f"generation {old.unit.generation} has died; generation {new.unit.generation} takes its place"
            )
            self.journal_soon(record)
        self.say("swap", text, service=slot.name)

    async def _retire(self, old: Instance, record: dict[str, Any]) -> None:
        try:
            await self.journal(record)
        except OSError as error:
            self.write_failed(str(error))
        crashpoint("mid_swap", "promoted")
        old.retire()

    # --- dependencies ---

    def blocked_by(self, spec: ServiceSpec) -> str | None:
        """The first dependency that does not hold, in words; None if the service may start."""
        for dependency in spec.depends_on:
            problem = self._unmet(dependency)
            if problem is not None:
                return problem
        return None

    def _unmet(self, dependency: Dependency) -> str | None:
        on = dependency.on
        if dependency.condition == "environment_ready":
            return None if on in self.environments.pythons else f"environment {on}"
        if dependency.condition == "all_ready":
            # As many as are wanted now: the number may have been scaled since the plan was made.
            group = [s for s in self.slots.values() if s.spec.kind == on and s.current.unit.wanted]
            wanted = len(group) or dependency.count or 0
            ready = sum(s.state in ("ready", "degraded") for s in group)
            return None if ready >= wanted else f"{on}s: {ready} of {wanted} ready"
        if dependency.condition == "listening":
            return None if on in self._listeners else f"the socket {on}"
        slot = self.slots.get(on)
        if slot is None:
            return f"{on}, which does not exist"
        if dependency.condition == "started":
            return None if slot.state in machine.LIVE else f"{on} to be started"
        if dependency.condition == "exited_0":
            done = (
                slot.state == "stopped" and slot.current.unit.exit is not None and slot.current.unit.exit.ok
            )
            return None if done else f"{on} to complete"
        return None if slot.state == "ready" else f"{on} to be ready"

    def dependents(self, slot: Slot) -> list[Slot]:
        """The services that need this one: they stop first."""
        names = (slot.name, slot.spec.kind)
        return [
            other
            for other in self.slots.values()
            if other is not slot
            and any(d.on in names and d.condition != "environment_ready" for d in other.spec.depends_on)
        ]

    # --- stopping ---

    def begin_stop(self, *, now: bool = False) -> None:
        """End every service, dependents first; ``now`` skips to SIGKILL."""
        self.stopping = True
        self.stop_now = self.stop_now or now
        self.environments.cancel()
        self.kick()

    def _stop_in_order(self) -> None:
        for slot in self.slots.values():
            # What nothing can kill must not keep the rest alive.
            if self.stop_now or all(o.ended or o.current.unit.stuck for o in self.dependents(slot)):
                for instance in list(slot.instances()):
                    instance.hurry()
                    unit = instance.unit
                    skip = self.stop_now and unit.stage < len(instance.rules.stop) - 1
                    if unit.state not in machine.ENDED and (unit.wanted or unit.after != "down" or skip):
                        instance.feed(machine.Stop(now=self.stop_now))

    @property
    def all_ended(self) -> bool:
        return all(slot.ended for slot in self.slots.values())

    def stuck(self) -> list[str]:
        """What would not die, in words."""
        found = []
        for slot in self.slots.values():
            for instance in slot.instances():
                if instance.unit.stuck:
                    live = sorted(self.trees.members.get(instance.key, ()))
                    alive = [p for p, t in live if procfs.alive(p, t)]
                    states = ", ".join(f"pid {p} ({(procfs.read_proc(p) or _GONE).state})" for p in alive)
                    found.append(f"{instance.name}: {states}")
        return found

    async def sweep_strays(self, grace: float = 3.0) -> list[int]:
        """End whatever still hangs under the keeper although no service claims it. Returns what is left."""
        give_up = self.now() + grace
        number = "TERM"
        while True:
            live = self.trees.update(self._leaders(), ending=tree.STRAYS)
            left = {m for members in live.values() for m in members}
            if not left:
                return []
            if self.now() > give_up:
                return sorted(pid for pid, _ in left)
            import signal

            tree.send_all(left, signal.Signals[f"SIG{number}"])
            number = "KILL" if self.now() > give_up - grace * 0.7 else "TERM"
            await asyncio.sleep(0.05)

    # --- the keeper ---

    def _exit_told(self, token: str, exit_: Exit) -> None:
        name, _, generation = token.rpartition(".")
        slot = self.slots.get(name)
        instance = slot.find(int(generation)) if slot is not None else None
        if instance is not None:
            instance.exit_told(int(generation), exit_)

    async def dismiss_keeper(self) -> None:
        """End the keeper, as nothing is left for it to keep."""
        self._dismissed = True
        try:
            await self.keeper.request("exit")
        except KeeperGone:
            pass
        except KeeperError as error:
            self._dismissed = False
            self.say("keeper", f"the keeper stays: {error}", "warning")

    def _keeper_gone(self) -> None:
        if not self._closing and not self._dismissed:
            self._keeper_up.clear()
            self.say("keeper", "the keeper has died; starting another, services go on", "warning")
            if self._renewing is None or self._renewing.done():
                self._renewing = self.spawn_task(self._new_keeper())

    async def _new_keeper(self) -> None:
        """Start keepers until one lives that has all our sockets."""
        pause, told = 0.05, ""
        while not self._keeper_up.is_set():
            self.keeper.reap()
            try:
                await self.connect_keeper()
                for name, (port, fd) in self._listeners.items():
                    await self.keeper.request("adopt_fd", name=name, fd=fd)
                    self.say("keeper", f"the listening socket on port {port.number} is handed over", "debug")
                self._keeper_up.set()
            except (KeeperError, KeeperGone, OSError) as error:
                if (why := str(error) or "it has died at once") != told:
                    told = why
                    self.say("keeper", f"there is no new keeper yet: {why}; trying again", "error")
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
        self.say("keeper", f"a new keeper runs (pid {self.keeper.pid})")

    def adopt_listener(self, name: str, port: PortSpec, fd: int) -> None:
        """Hold on to a socket that an earlier backend had opened."""
        self._listeners[name] = (port, fd)

    # --- scans ---

    def _leaders(self) -> dict[str, tree.Member]:
        """Of trees that may live. One that was found empty is over: its session's number can come again."""
        return {
            instance.key_of(instance.process.generation): instance.process.member
            for slot in self.slots.values()
            for instance in slot.instances()
            if instance.process is not None
            and instance.process.tick
            and instance.unit.state in (*machine.LIVE, "stopping", "preparing")
            and instance.unit.generation == instance.process.generation
        }

    async def _scan_and_pause(self) -> float:
        began = time.thread_time()
        self.scan()
        cost = time.thread_time() - began
        # On a host with thousands of processes a scan is dear: at most 0.05 % of a core, a quarter of what the
        # backend may cost when idle (tests/bench/supervise.py), but never so seldom that workers go unseen.
        return until_tick(min(max(self._scan_interval, cost * 2000), SCAN_AT_LEAST))

    def scan(self) -> dict[str, set[tree.Member]]:
        """Look at every tree, and note members that are new: they are the only proof of a worker that
        has left its session and wiped its environment."""
        live = self.trees.look(self._leaders())
        known = {key: sorted(members) for key, members in live.items() if members}
        if known != self._told_members and not self._members_written:
            self._told_members = known
            self._members_written = self._loop.run_in_executor(None, self._write_members, known)
            self._members_written.add_done_callback(self._members_done)
        return live

    def _write_members(self, known: dict[str, list[tree.Member]]) -> None:
        data = msgspec.json.encode({"attempt": self.attempt, "trees": known})
        try:
            write_atomic(self.run_dir / "members.json", data)
        except OSError as error:
            self.write_failed(f"members.json: {error.strerror}")

    def _members_done(self, _: asyncio.Future[None]) -> None:
        self._members_written = None

    def members(self) -> dict[str, list[int]]:
        """Live pids per service, from the last scan, for sampling CPU and memory."""
        found: dict[str, list[int]] = {}
        for key, members in self.trees.members.items():
            name = key.rpartition(".")[0] or key
            found.setdefault(name, []).extend(pid for pid, _ in members)
        return found

    # --- commands ---

    def slot(self, name: str) -> Slot:
        """A service by name.

        Raises:
            CommandError: there is none.
        """
        slot = self.slots.get(name)
        if slot is None:
            import difflib

            near = difflib.get_close_matches(name, self.slots, 1, 0.5)
            known = ", ".join(self.slots)
            raise CommandError(
                "unknown_service", f"no service {name!r}; there are: {known}", near[0] if near else None
            )
        return slot

    async def restart(self, name: str) -> dict[str, Any]:
        """Restart a service; one with a drain sequence is swapped without a gap. Returns when it is done.

        Raises:
            CommandError: unknown, not ours, already being swapped, or it did not come back.
        """
        slot = self.slot(name)
        if self.stopping:
            raise CommandError("stopping", "the run is stopping")
        if slot.spec.owner == "foreign":
            raise CommandError("foreign", f"{name} was not started by this run and is not touched")
        if slot.spec.drain and slot.current.unit.state in ("ready", "degraded"):
            return await self._swap(slot)
        unit = slot.current.unit
        before = unit.generation - (unit.state == "preparing")  # what is being made is new already
        slot.current.feed(machine.Restart())
        await self.until(
            lambda: (
                (slot.current.unit.generation > before and slot.current.unit.state == "ready")
                or slot.current.unit.state in machine.ENDED
            )
        )
        return self._restarted(slot)

    async def _swap(self, slot: Slot) -> dict[str, Any]:
        if slot.incoming is not None:
            raise CommandError("busy", f"a new generation of {slot.name} is being started already")
        before = slot.current.unit.generation
        incoming = slot.begin_swap(self)
        self.say("swap", f"starting a new generation beside generation {before}", service=slot.name)
        self.kick()
        await self.until(lambda: slot.incoming is not incoming)
        if slot.current is not incoming:
            raise CommandError(
                "not_started",
                f"the new {slot.name} did not start: {_why_ended(incoming)}; the old one goes on",
            )
        # If the old one died meanwhile, the new one was promoted before it was ready.
        await self.until(lambda: slot.state in ("ready", "degraded", *machine.ENDED))
        return self._restarted(slot)

    def _restarted(self, slot: Slot) -> dict[str, Any]:
        unit = slot.current.unit
        if unit.state in machine.ENDED:
            raise CommandError("not_started", f"{slot.name} did not come back: {_why_ended(slot.current)}")
        pid = slot.current.process.pid if slot.current.process else None
        return {"service": slot.name, "generation": unit.generation, "pid": pid}

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition over states."""
        while not condition():  # noqa: ASYNC110 - conditions over many states, asked at most 50 times a second
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Let go of everything; processes go on."""
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        for slot in self.slots.values():
            for instance in slot.instances():
                instance.close()
        self.environments.cancel()
        for _, fd in self._listeners.values():
            os.close(fd)
        try:
            self.keeper.close()
        except KeeperGone:
            pass
        self._journal.close()
        self.events.close()

    def _environment_changed(self, name: str, text: str, level: Level) -> None:
        self.say("environment", text, level, f"env:{name}")
        self.kick()


def _may_start(instance: Instance) -> bool:
    return instance.unit.state == "waiting" and instance.unit.wanted and not instance.busy


_GONE = procfs.Proc(0, 0, 0, 0, 0, "gone", "")


def _why_ended(instance: Instance) -> str:
    """Why an instance is not up: its state's reason and what its log says."""
    unit, process = instance.unit, instance.process
    why = unit.last_failure or unit.why
    found = find_cause(process.log, process.log_start) if process is not None and unit.exit else None
    return f"{why}: {found[0]}" if found else why
