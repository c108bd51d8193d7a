"""The supervisor: services of a plan, kept as wanted. Event-driven; whatever changes leads to one ``reconcile``.

It owns the slots; ``records`` writes what happens, ``keeper_manager`` starts and ends processes, ``process_scan``
finds them. What the run is *for* (replica lists, weights, metrics) is in other modules, which see it through
``slots`` and ``now``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from liverl.control.messages import CommandError
from liverl.model import Event, Exit, GpuStatus, Level
from liverl.observe.gpu.ledger import GpuLedger
from liverl.plan.spec import Plan, ServiceSpec
from liverl.supervise.services import probes, state_machine
from liverl.supervise.services.dependencies import StartStagger, dependents, hold_sockets, unmet
from liverl.supervise.services.environments import Environments
from liverl.supervise.services.event_log import words
from liverl.supervise.services.failpoints import crashpoint
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.keeper_manager import KeeperManager
from liverl.supervise.services.prepare import PrepareProblem
from liverl.supervise.services.process_scan import ProcessScan
from liverl.supervise.services.records import Records
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.state_machine import MachineState

_WALL = time.time() - time.monotonic()


class Supervisor:
    """Keeps the services of one attempt as wanted."""

    def __init__(
        self,
        plan: Plan,
        run_dir: Path,
        attempt: int,
        scan_interval: float,
        *,
        on_change: Callable[[], None] = lambda: None,
        found_serving: Callable[[], int] = lambda: 0,
    ) -> None:
        """``scan_interval``: seconds between two scans of the processes. ``on_change`` is called whenever something
        has changed in the services, from ``start`` on. ``found_serving``: how many of verl's replicas serve now."""
        self.plan = plan
        self.run = plan.run
        self.run_dir = run_dir
        self.attempt = attempt
        self.attempt_dir = run_dir / f"attempt_{attempt:03d}"
        self.http = probes.Http()
        self.slots: dict[str, Slot] = {}
        self.environments = Environments(plan.environments, self._environment_changed)
        self.ledger = GpuLedger()
        self.gpus: tuple[GpuStatus, ...] = ()  # from the last sample
        self.allowed_gpus: tuple[str, ...] = ()  # UUIDs that the inherited environment lets us use
        self.used_generations: dict[str, int] = {}  # highest numbers of services that were removed
        self.found_serving = found_serving
        self.unheld: dict[str, str] = {}  # sockets that could not be had, and why
        self.stopping: bool = False
        self.stop_now: bool = False
        self.records = Records(run_dir, self.now)
        self.keeper_manager = KeeperManager(self.run, run_dir, self.records, self._exit_told, self._keeper_is)
        self.process_scan = ProcessScan(
            self.keeper_manager, attempt, self.records, self.instances, scan_interval
        )
        self.turns = StartStagger(plan.settings.replica_stagger)
        self._on_change = on_change
        self._scheduled = False
        self._populated = False  # nothing is decided before every service is known
        self._closing = False
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- what instances need (Hub) ---

    def now(self) -> float:
        """Unix time that never steps: the wall clock at our start, plus what has passed since."""
        return _WALL + time.monotonic()

    def changed(self, instance: Instance, before: MachineState) -> None:
        if not self._closing:
            self.records.journal_soon(instance.record())
            said = words(before, instance.machine, self.now(), completes=instance.spec.completes)
            if said is not None:
                text, level = said
                if instance.role != "current":
                    text = f"({instance.role} generation {instance.machine.generation}) {text}"
                self.say("state", text, level, instance.name, state=instance.machine.state)
        if _starts_again(before, instance.machine) and instance.process is not None:
            self.spawn_task(self._tell_why(instance.name, instance.process.log, instance.process.log_start))
        if instance.machine.state in ("stopped", "failed", "gave_up", "backing_off"):
            self.ledger.release(instance.name)
            self.process_scan.trees.forget(instance.key)
        self.kick()

    async def _tell_why(self, service: str, log: Path, start: int) -> None:
        found = await asyncio.to_thread(self.records.log_says, log, start)
        if found is not None:
            self.say("log_cause", f"its log shows: {found[0]}", "warning", service)

    def note(self, instance: Instance, kind: str, text: str, level: str = "info", **data: Any) -> None:
        self.say(kind, text, level, instance.name, **data)  # type: ignore[arg-type]

    def say(
        self, kind: str, text: str, level: Level = "info", service: str | None = None, **data: Any
    ) -> Event:
        return self.records.say(kind, text, level, service, **data)

    def reserve_gpus(self, name: str, count: int) -> tuple[str, ...]:
        grant = self.ledger.reserve(name, count, self.gpus, self.allowed_gpus)
        if grant.reason is not None:
            raise PrepareProblem(grant.reason)
        return grant.uuids

    def gpus_missing(self, names: Sequence[str], each: int) -> str | None:
        """Why services that do not run yet cannot have ``each`` GPUs each, by the last sample; None if they can."""
        return self.ledger.refusal(names, each, self.gpus, self.allowed_gpus)

    def pythons(self) -> Mapping[str, Path]:
        return self.environments.pythons

    def service_ports(self) -> dict[str, int]:
        """Every port that a service has now, as ``service.port``, and its ``http`` port by its name alone; a socket
        that the run holds counts before there is a process behind it."""
        found: dict[str, int] = {}
        for name, slot in self.slots.items():
            for spec in slot.spec.ports:
                whole = f"{name}.{spec.name}"
                port = slot.current.port(spec.name) or self.keeper_manager.held_port(whole)
                if port is not None:
                    found[whole] = port
                    if spec.name == "http":
                        found[name] = port
        return found

    # --- life ---

    def instances(self) -> Iterator[Instance]:
        """Every instance of every service."""
        for slot in self.slots.values():
            yield from slot.instances()

    def add_slot(self, spec: ServiceSpec, machine: MachineState | None = None, highest: int = 0) -> Slot:
        instance = Instance(
            self, spec, "current", machine or MachineState(generation=highest, since=self.now())
        )
        highest = max(highest, instance.machine.generation)
        slot = Slot(spec, instance, highest=highest, base=highest)
        self.slots[spec.name] = slot
        return slot

    def start(self) -> None:
        """Begin: build environments, start what may start, scan from now on."""
        self._populated = True
        if not self.stopping:
            self.environments.start()
            self.spawn_task(hold_sockets(self))
        self.spawn_task(self.forever(self.process_scan.scan_and_pause))
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
            self.records.internal(error)

    async def forever(self, look: Callable[[], Coroutine[Any, Any, float]]) -> None:
        """Call ``look`` again and again, each time after the seconds that it returned. A fault in one look must
        not end all later ones."""
        while True:
            try:
                pause = await look()
            except Exception as error:  # noqa: BLE001 - told
                self.records.internal(error)
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
        with self.records.guarded():
            self._on_change()
        if self.stopping:
            self._stop_in_order()
            return
        for slot in self.slots.values():
            current, incoming = slot.current, slot.incoming
            if _may_start(current) and not self.blocked_by(slot.spec):
                pause = self.turns.take(slot.spec, self.now())
                if pause > 0:
                    asyncio.get_running_loop().call_later(pause, self.kick)
                else:
                    current.feed(state_machine.DependenciesMet())
            # A successor takes over what runs: it waits for nobody.
            if incoming is not None and _may_start(incoming):
                incoming.feed(state_machine.DependenciesMet())

    def _settle(self, slot: Slot) -> None:
        for over in slot.settle():
            self.say(
                "swap", f"generation {over.machine.generation} has drained and exited", service=slot.name
            )
        incoming = slot.incoming
        if incoming is None:
            return
        current = slot.current.machine
        if current.state == "stopping" and current.after == "decide" and current.wanted:
            # It died while its successor starts: it must not start a third.
            slot.current.feed(state_machine.AwaitSuccessor())
        if incoming.machine.state == "ready":
            self._promote(slot)
        elif incoming.machine.state in state_machine.ENDED and not incoming.busy:
            why = why_ended(incoming)
            slot.drop_incoming()
            current = slot.current.machine
            goes = "will be restarted" if current.after == "hold" else "is still serving"
            text = f"the new generation did not start ({why}); generation {current.generation} {goes}"
            self.say("swap_failed", text, "error", slot.name)
            if current.after == "hold" and current.wanted and not self.stopping:
                slot.current.feed(state_machine.Start())
        elif slot.current.machine.state in state_machine.ENDED and not self.stopping:
            self._promote(slot)

    def _promote(self, slot: Slot) -> None:
        crashpoint("mid_swap", "ready")
        old = slot.promote()
        old.role = "retiring"
        new = slot.current
        # One record: with half of it a successor would find two current generations, or none.
        record = {"k": "promoted", "svc": slot.name, "records": [new.record(), old.record()]}
        if old in slot.retiring:
            text = f"generation {new.machine.generation} is serving; generation {old.machine.generation} is draining"
            self.spawn_task(self._retire(old, record))
        else:
            text = (
                f"generation {old.machine.generation} exited; generation {new.machine.generation} replaces it"
            )
            self.records.journal_soon(record)
        self.say("swap", text, service=slot.name)

    async def _retire(self, old: Instance, record: dict[str, Any]) -> None:
        try:
            await self.records.journal(record)
        except OSError as error:
            self.records.write_failed(str(error))
        crashpoint("mid_swap", "promoted")
        old.retire()

    # --- dependencies ---

    def blocked_by(self, spec: ServiceSpec) -> str | None:
        """The first dependency that does not hold, in words; None if the service may start."""
        return next((why for d in spec.depends_on if (why := unmet(self, d)) is not None), None)

    def dependents(self, slot: Slot) -> list[Slot]:
        """The services that need this one: they stop first."""
        return dependents(self.slots.values(), slot)

    # --- stopping ---

    def begin_stop(self, *, now: bool = False) -> None:
        """End every service, dependents first; ``now`` skips to SIGKILL."""
        self.stopping = True
        self.stop_now = self.stop_now or now
        self.environments.cancel()
        # What ends by itself while its dependents are still being stopped must not be started again.
        for instance in list(self.instances()):
            instance.feed(state_machine.NoRestart())
        self.kick()

    def _stop_in_order(self) -> None:
        for slot in self.slots.values():
            # What nothing can kill must not keep the rest alive.
            if self.stop_now or all(self.hopeless(other) for other in self.dependents(slot)):
                for instance in list(slot.instances()):
                    instance.hurry()
                    machine = instance.machine
                    skip = self.stop_now and machine.stage < len(instance.rules.stop) - 1
                    if machine.state not in state_machine.ENDED and (
                        machine.wanted or machine.after != "down" or skip
                    ):
                        instance.feed(state_machine.Stop(now=self.stop_now))

    def hopeless(self, slot: Slot) -> bool:
        """Whether waiting for a service's end is of no use any more."""
        return slot.hopeless(self.now(), self.plan.settings.stuck_after)

    @property
    def all_ended(self) -> bool:
        return all(slot.ended for slot in self.slots.values())

    # --- what the keeper tells ---

    def _keeper_is(self, pid: int) -> None:
        self.process_scan.set_keeper(pid)

    def _exit_told(self, token: str, exit_: Exit) -> None:
        name, _, generation = token.rpartition(".")
        slot = self.slots.get(name)
        instance = slot.find(int(generation)) if slot is not None else None
        if instance is not None:
            instance.leader.told(int(generation), exit_)

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
                "unknown_service", f"no service {name!r}; known services: {known}", near[0] if near else None
            )
        return slot

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
        self.keeper_manager.close()
        self.records.close()

    def _environment_changed(self, name: str, text: str, level: Level) -> None:
        self.say("environment", text, level, f"env:{name}")
        self.kick()


def _may_start(instance: Instance) -> bool:
    return instance.machine.state == "waiting" and instance.machine.wanted and not instance.busy


def _starts_again(before: MachineState, machine: MachineState) -> bool:
    """Whether its process has failed and the next one is started at once: nothing else would ever say why. What
    killed it from outside is not in its log, and neither is why we shut it down."""
    failed = (
        bool(machine.failures)
        and machine.failures[-1:] != before.failures[-1:]
        and before.state == "stopping"
    )
    told = machine.exit is not None and machine.exit.code is not None and not machine.shut_down
    return failed and machine.state == "preparing" and told


def why_ended(instance: Instance) -> str:
    """Why an instance is not up: its state's reason and what its log says."""
    machine, process = instance.machine, instance.process
    why = machine.last_failure or machine.why
    says = instance.hub.records.log_says
    tells = process is not None and machine.exit is not None and not machine.shut_down
    found = says(process.log, process.log_start) if process is not None and tells else None
    return f"{why}: {found[0]}" if found else why
