"""The supervisor: services of a plan, kept as wanted. Event-driven; whatever changes leads to one ``reconcile``.

It owns the journal, the keeper link, the trees and the slots. What the run is *for* (replica lists, weights,
metrics) lives in other modules, which see it through ``slots``, ``now`` and the callbacks.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from liverl.control.messages import CommandError
from liverl.model import Event, Exit, GpuStatus, Level
from liverl.observe.gpu_ledger import GpuLedger
from liverl.plan.spec import Dependency, Plan, PortSpec, ServiceSpec
from liverl.supervise import machine, probes, procfs, tree
from liverl.supervise.envs import Environments
from liverl.supervise.eventlog import EventLog, words
from liverl.supervise.instance import Instance
from liverl.supervise.journal import LineFile
from liverl.supervise.keeperlink import Keeper, KeeperError, KeeperGone
from liverl.supervise.machine import Unit
from liverl.supervise.prepare import PrepareProblem
from liverl.supervise.slot import Slot

_WALL = time.time() - time.monotonic()


class Supervisor:
    """Keeps the services of one attempt as wanted."""

    def __init__(self, plan: Plan, run_dir: Path, attempt: int, scan_interval: float) -> None:
        self.plan = plan
        self.run = plan.run
        self.run_dir = run_dir
        self.attempt = attempt
        self.attempt_dir = run_dir / f"attempt_{attempt:03d}"
        self.http = probes.Http()
        self.events = EventLog(run_dir / "events.jsonl", self.now, self._write_failed)
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
        self._closing = False
        self._dismissed = False
        self._write_error = ""
        self._scan_interval = scan_interval
        self._told_members: dict[str, set[tree.Member]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

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
        loop = asyncio.get_running_loop()

        def done(f: Any) -> None:
            error = f.exception()
            if error is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self._write_failed, str(error))

        future.add_done_callback(done)

    def _write_failed(self, text: str) -> None:
        if text != self._write_error:
            self._write_error = text
            print(f"cannot write: {text}", file=sys.stderr, flush=True)

    async def keeper_request(self, do: str, **args: Any) -> dict[str, Any]:
        return await self.keeper.request(do, **args)

    async def hold_port(self, service: str, port: PortSpec) -> int:
        """The number of a port whose socket the keeper holds for the run."""
        name = f"{service}.{port.name}"
        try:
            number: int = (
                await self.keeper.request("listen", name=name, host=port.host, port=port.number)
            )["port"]
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
        ending = instance.key if instance.unit.leader_gone else None
        live = self.trees.update(self._leaders(), ending=ending)
        return live.get(instance.key, set())

    # --- life ---

    async def connect_keeper(self) -> tuple[bool, list[dict[str, Any]]]:
        """Reach or start the keeper. Returns whether it lived before, and its children's records."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("LIVERL_")}
        env["LIVERL_RUN"] = f"{self.run}/keeper/0"
        env["LIVERL_RUN_DIR"] = str(self.run_dir)
        lived, children, _ = await self.keeper.connect(env)
        self.trees.keeper_pid = self.keeper.pid
        self.trees.not_ours = frozenset({os.getpid(), self.keeper.pid})
        return lived, children

    def add_slot(self, spec: ServiceSpec, unit: Unit | None = None, highest: int = 0) -> Slot:
        instance = Instance(self, spec, "current", unit or Unit(generation=highest, since=self.now()))
        highest = max(highest, instance.unit.generation)
        slot = Slot(spec, instance, highest=highest, base=highest)
        self.slots[spec.name] = slot
        return slot

    def start(self) -> None:
        """Begin: build environments, start what may start, scan from now on."""
        self.environments.start()
        self.spawn_task(self._scan_forever())
        self.kick()

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            self.say("internal", f"{type(error).__name__}: {error}", "error")
            import traceback

            traceback.print_exception(error)

    def kick(self) -> None:
        """Something changed: look once at everything, soon."""
        if not self._scheduled and not self._closing:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._reconcile)

    def _reconcile(self) -> None:
        self._scheduled = False
        for slot in list(self.slots.values()):
            self._settle(slot)
        self.on_change()
        if self.stopping:
            self._stop_in_order()
            return
        for slot in self.slots.values():
            for instance in (slot.current, slot.incoming):
                if instance is None or instance.unit.state != "waiting" or instance.busy:
                    continue
                if instance.unit.wanted and not self.blocked_by(slot.spec):
                    instance.feed(machine.DependenciesMet())

    def _settle(self, slot: Slot) -> None:
        for over in slot.settle():
            self.say("swap", f"generation {over.unit.generation} has drained and ended", service=slot.name)
        incoming = slot.incoming
        if incoming is None:
            return
        current = slot.current.unit
        if current.state == "stopping" and current.after == "decide" and current.wanted:
            # It died while its successor starts: it must not start a third.
            slot.current.feed(machine.Stop())
        if incoming.unit.state == "ready":
            self._promote(slot)
        elif incoming.unit.state in machine.ENDED:
            why = incoming.unit.last_failure or incoming.unit.why
            slot.drop_incoming()
            text = (
                f"the new generation did not start ({why}); generation {slot.current.unit.generation} goes on"
            )
            self.say("swap_failed", text, "error", slot.name)
        elif slot.current.unit.state in machine.ENDED and not self.stopping:
            self._promote(slot)

    def _promote(self, slot: Slot) -> None:
        old = slot.promote()
        old.role = "retiring"
        self.journal_soon(slot.current.record())
        self.journal_soon(old.record())
        text = f"generation {slot.current.unit.generation} serves; generation {old.unit.generation} drains"
        self.say("swap", text, service=slot.name)
        if old in slot.retiring:
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
            group = [s for s in self.slots.values() if s.spec.kind == on]
            wanted = dependency.count if dependency.count is not None else len(group)
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
            if self.stop_now or all(other.ended for other in self.dependents(slot)):
                for instance in list(slot.instances()):
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
            self.say("keeper", "the keeper has died; starting another, services go on", "warning")
            self.spawn_task(self._new_keeper())

    async def _new_keeper(self) -> None:
        self.keeper.reap()
        await self.connect_keeper()
        for name, (port, fd) in self._listeners.items():
            await self.keeper.request("adopt_fd", name=name, fd=fd)
            self.say("keeper", f"the listening socket on port {port.number} is handed over", "debug")
        self.say("keeper", f"a new keeper runs (pid {self.keeper.pid})")

    def adopt_listener(self, name: str, port: PortSpec, fd: int) -> None:
        """Hold on to a socket that an earlier backend had opened."""
        self._listeners[name] = (port, fd)

    # --- scans ---

    def _leaders(self) -> dict[str, tree.Member]:
        return {
            instance.key_of(instance.process.generation): instance.process.member
            for slot in self.slots.values()
            for instance in slot.instances()
            if instance.process is not None and instance.process.tick
        }

    async def _scan_forever(self) -> None:
        while True:
            began = time.thread_time()
            self.scan()
            cost = time.thread_time() - began
            # On a host with thousands of processes a scan is dear: at most 0.1 % of a core.
            await asyncio.sleep(max(self._scan_interval, cost * 1000))

    def scan(self) -> dict[str, set[tree.Member]]:
        """Look at every tree, and journal members that are new: they are the only proof of a worker that
        has left its session and wiped its environment."""
        live = self.trees.update(self._leaders())
        news = {k: v for k, v in live.items() if v and self._told_members.get(k) != v}
        if news:
            self._told_members.update(news)
            self.journal_soon({"k": "members", "trees": {k: sorted(v) for k, v in news.items()}})
        self._told_members = {k: v for k, v in self._told_members.items() if k in live}
        return live

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
        before = slot.current.unit.generation
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
        if slot.current.unit.generation == before:
            why = incoming.unit.last_failure or incoming.unit.why
            raise CommandError(
                "not_started", f"the new {slot.name} did not start: {why}; the old one goes on"
            )
        return self._restarted(slot)

    def _restarted(self, slot: Slot) -> dict[str, Any]:
        unit = slot.current.unit
        if unit.state in machine.ENDED:
            raise CommandError("not_started", f"{slot.name} did not come back: {unit.why}")
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


_GONE = procfs.Proc(0, 0, 0, 0, 0, "gone", "")
