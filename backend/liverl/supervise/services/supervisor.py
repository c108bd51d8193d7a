"""The supervisor: brings the services of a plan into their wanted state. Every change leads to one ``_reconcile``.

It owns the slots. ``records`` writes the journal and the events, ``keeper_manager`` starts processes, ``process_scan``
finds them. It knows nothing of replica lists, weights and metrics: the modules for those read ``slots``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from liverl.control.messages import CommandError
from liverl.model import Cause, Event, Exit, GpuStatus, Level
from liverl.observe.oom_kills import OomKills
from liverl.plan.spec import Plan, ServiceSpec
from liverl.supervise.services import probes, state_machine
from liverl.supervise.services.asked import Addresses, Ledger, TokenRoutes, no_address
from liverl.supervise.services.asked_of_processes import BeforeStart, Ends
from liverl.supervise.services.dependencies import StartStagger, dependents, hold_sockets, unmet
from liverl.supervise.services.environments import Check, Environments
from liverl.supervise.services.event_log import words
from liverl.supervise.services.failpoints import crashpoint
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.keeper_manager import KeeperManager
from liverl.supervise.services.prepare import PrepareProblem
from liverl.supervise.services.process_scan import ProcessScan
from liverl.supervise.services.records import Records
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.state_machine import MachineState
from liverl.util import clocks
from liverl.util.clocks import Moment
from liverl.util.cpu_limits import cpu_limits
from liverl.util.nearest import nearest
from liverl.util.pace import Pace


class Supervisor:
    """Starts, watches, restarts and stops the services of one attempt."""

    def __init__(
        self,
        plan: Plan,
        run_dir: Path,
        attempt: int,
        scan_interval: float,
        *,
        ledger: Ledger,
        ends: Callable[[Supervisor], Ends],
        token_routes: TokenRoutes,
        on_change: Callable[[], None] = lambda: None,
        found_serving: Callable[[], int] = lambda: 0,
        unwritten: Callable[[str], str | None] = lambda kind: None,
        environment_checks: Mapping[str, Check] | None = None,
        oom_kills: OomKills | None = None,
        before_kill: Callable[[Instance, str], Coroutine[Any, Any, None]] | None = None,
        before_start: BeforeStart | None = None,
        addresses: Addresses = no_address,
        goes_on: Moment | None = None,
    ) -> None:
        """``scan_interval``: seconds between two scans of the processes. ``ledger``, ``ends``, ``token_routes``: what
        it asks for GPUs, for causes of ends, and of replicas, see ``asked``. ``on_change`` is called after every change
        of a service, from ``start`` on. ``found_serving`` returns how many of verl's replicas serve now. ``unwritten``
        gets the kind of a service, and names a file that it reads when it starts as long as the newest content is not
        written; worded to follow "waiting for". ``environment_checks``: see ``Environments``; as long as one of them
        has not succeeded, no service starts. ``before_kill`` gets an instance whose processes hang, and why, before
        they are sent a signal, which waits for it. ``before_start``, ``addresses``: see ``asked``; a start waits for
        both.
        ``goes_on``: the beginning of the attempt by an earlier backend on this boot, whose times this one goes on from.

        Raises:
            OSError: the run directory cannot be written.
        """
        began = goes_on or clocks.moment()
        self._wall = began.wall - began.ran  # Unix time at which ``clocks.ran`` was 0
        self.plan = plan
        self.run = plan.run
        self.run_dir = run_dir
        self.attempt = attempt
        self.attempt_dir = run_dir / f"attempt_{attempt:03d}"
        self.batch_end = ""  # see ``liverl.plan.spec``
        self.http = probes.Http(token_routes)
        self.slots: dict[str, Slot] = {}
        self.environments = Environments(
            plan.environments, self._environment_changed, environment_checks, self.now
        )
        self.ledger = ledger
        self.gpus: tuple[GpuStatus, ...] = ()  # from the last sample
        self.allowed_gpus: tuple[str, ...] = ()  # UUIDs that the inherited environment permits
        self.used_generations: dict[str, int] = {}  # highest numbers of services that were removed
        self.found_serving = found_serving
        self.joined_hosts: Callable[[], int] = lambda: 0  # of a run on several; set by who counts them
        self._unwritten = unwritten
        self.unheld: dict[str, str] = {}  # ``service.port`` of sockets that cannot be opened, and why
        self.stopping: bool = False
        self.stop_now: bool = False
        self._stop_why = state_machine.STOP_REQUESTED
        self.pace = Pace()
        self.records = Records(run_dir, self.now)
        self.records.events.subscribe(lambda _: self.pace.changed())
        self.oom_kills = oom_kills or OomKills(())
        self.end_causes = ends(self)
        self.keeper_manager = KeeperManager(
            self.run, run_dir, self.records, self._exit_reported, self._keeper_connected, addresses
        )
        self.process_scan = ProcessScan(
            self.keeper_manager, attempt, self.records, self.instances, scan_interval, self.pace
        )
        self.turns = StartStagger(plan.settings.replica_stagger, max(2, int(cpu_limits(os.environ).allowed)))
        self._on_change = on_change
        self._before_kill = before_kill
        self._before_start = before_start
        self.refusals: dict[str, Cause] = {}  # service -> why ``before_start`` refused its newest start
        self._scheduled = False  # a reconcile is due
        self._populated = False  # every service has its slot; nothing is decided before
        self._closing = False
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- InstanceHost ---

    def now(self) -> float:
        """Unix seconds, monotonic: the system's clock when the attempt began, plus the time for which the host ran
        since then. All backends of an attempt have the same, whatever the system's clock was set to meanwhile."""
        return self._wall + clocks.ran()

    def changed(self, instance: Instance, before: MachineState) -> None:
        """Journal the new state of an instance, add its event, and release the GPUs of one that has ended."""
        if not self._closing:
            self.records.journal_soon(instance.record())
            event = words(before, instance.machine, self.now(), completes=instance.spec.completes)
            if event is not None:
                text, level = event
                if instance.role != "current":
                    text = f"({instance.role} generation {instance.machine.generation}) {text}"
                self.say("state", text, level, instance.name, state=instance.machine.state)
            self.pace.changed()
        if _has_failed(before, instance.machine) and instance.process is not None:
            # Begun now, because the next process takes the place of the one that ended.
            finding = self.end_causes.begin(instance)
            if instance.machine.state == "preparing":  # no failed state shows the reason
                self.spawn_task(self._report_cause(instance.name, finding))
        if instance.machine.state in ("stopped", "failed", "gave_up", "backing_off"):
            self.ledger.release(instance.name)
            self.process_scan.trees.forget(instance.key)
        self.kick()

    async def _report_cause(self, service: str, finding: asyncio.Task[Cause | None] | None) -> None:
        cause = await finding if finding is not None else None
        if cause is not None and cause.log is not None:
            self.say("log_cause", f"why it ended: {cause.text}", "warning", service)
        self.kick()  # so that it is diagnosed now

    async def _report_failed_swap(self, incoming: Instance, outlook: str) -> None:
        why = (await self.end_causes.of(incoming)).text
        text = f"the new generation did not start ({why}); generation {outlook}"
        self.say("swap_failed", text, "error", incoming.name)

    def note(self, instance: Instance, kind: str, text: str, level: str = "info", **data: Any) -> None:
        """Add an event about the instance's service."""
        self.say(kind, text, level, instance.name, **data)  # type: ignore[arg-type]

    def say(
        self, kind: str, text: str, level: Level = "info", service: str | None = None, **data: Any
    ) -> Event:
        """Add an event; ``service`` is the one that it is about."""
        return self.records.say(kind, text, level, service, **data)

    async def before_kill(self, instance: Instance, why: str) -> None:
        """Called before processes that hang get a signal; an error in it is reported, and the signal sent."""
        if self._before_kill is not None:
            with self.records.guarded():
                await self._before_kill(instance, why)

    async def before_start(self, instance: Instance) -> None:
        """Called before an instance is prepared; an error in it is reported, and the service is started.

        Raises:
            PrepareProblem: it must not be started; ``refusals`` says why.
        """
        self.refusals.pop(instance.name, None)
        cause = None
        if self._before_start is not None:
            with self.records.guarded():
                cause = await self._before_start(instance)
        if cause is not None:
            self.refusals[instance.name] = cause
            raise PrepareProblem(cause.text, final=True)

    def reserve_gpus(self, name: str, count: int) -> tuple[str, ...]:
        """Reserve ``count`` GPUs for a service; returns their UUIDs. They are released when it ends.

        Raises:
            PrepareProblem: there are not enough free GPUs.
        """
        grant = self.ledger.reserve(name, count, self.gpus, self.allowed_gpus)
        if grant.reason is not None:
            raise PrepareProblem(grant.reason)
        return grant.uuids

    def gpus_missing(self, names: Sequence[str], each: int) -> str | None:
        """Why the services ``names``, which do not run yet, cannot get ``each`` GPUs each according to the newest
        sample; None if they can."""
        return self.ledger.refusal(names, each, self.gpus, self.allowed_gpus)

    def pythons(self) -> Mapping[str, Path]:
        """Interpreters of the environments that are ready, by name."""
        return self.environments.pythons

    def service_ports(self) -> dict[str, int]:
        """The port numbers of all services by ``service.port``, and their ``http`` ports also by ``service``. A socket
        that the run holds is included before the service has a process."""
        ports: dict[str, int] = {}
        for name, slot in self.slots.items():
            for spec in slot.spec.ports:
                full_name = f"{name}.{spec.name}"
                port = slot.current.port(spec.name) or self.keeper_manager.held_port(full_name)
                if port is not None:
                    ports[full_name] = port
                    if spec.name == "http":
                        ports[name] = port
        return ports

    # --- slots and background tasks ---

    def instances(self) -> Iterator[Instance]:
        """Every instance of every service."""
        for slot in self.slots.values():
            yield from slot.instances()

    def add_slot(self, spec: ServiceSpec, machine: MachineState | None = None, highest: int = 0) -> Slot:
        """Add a service to the run. ``highest``: the highest generation number that it has used, in all attempts."""
        instance = Instance(
            self, spec, "current", machine or MachineState(generation=highest, since=self.now())
        )
        highest = max(highest, instance.machine.generation)
        slot = Slot(spec, instance, highest=highest, base=highest)
        self.slots[spec.name] = slot
        return slot

    def start(self) -> None:
        """Begin to build environments, start services and scan processes. Called once every service has its slot."""
        self._populated = True
        if not self.stopping:
            self.environments.start()
            self.spawn_task(hold_sockets(self))
        self.spawn_task(self.forever(self.process_scan.scan_and_pause))
        self.kick()

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until it ends or ``close`` is called; its exceptions are reported as internal errors."""
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
        """Call ``look`` repeatedly; it returns the seconds until the next call. An exception is reported, and the next
        call follows after 1 s."""
        while True:
            try:
                pause = await look()
            except Exception as error:  # noqa: BLE001 - reported
                self.records.internal(error)
                pause = 1.0
            await self.pace.sleep(pause)

    def kick(self) -> None:
        """Request one ``_reconcile`` of all services, as soon as the event loop is free."""
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
                delay = self.turns.take(slot.spec, self.now())
                if delay > 0:
                    asyncio.get_running_loop().call_later(delay, self.kick)
                else:
                    current.feed(state_machine.DependenciesMet())
            # The incoming generation replaces a service that has run: its dependencies were met before.
            if incoming is not None and _may_start(incoming):
                incoming.feed(state_machine.DependenciesMet())

    def _settle(self, slot: Slot) -> None:
        for instance in slot.settle():
            self.say(
                "swap", f"generation {instance.machine.generation} has drained and exited", service=slot.name
            )
        incoming = slot.incoming
        if incoming is None:
            return
        current = slot.current.machine
        if current.state == "stopping" and current.after == "decide" and current.wanted:
            # It died while the incoming generation starts: it must not be restarted beside that one.
            slot.current.feed(state_machine.AwaitSuccessor())
        if incoming.machine.state == "ready":
            self._promote(slot)
        elif incoming.machine.state in state_machine.ENDED and not incoming.busy:
            slot.drop_incoming()
            current = slot.current.machine
            outlook = "will be restarted" if current.after == "hold" else "is still serving"
            self.spawn_task(self._report_failed_swap(incoming, f"{current.generation} {outlook}"))
            if current.after == "hold" and current.wanted and not self.stopping:
                slot.current.feed(state_machine.Start())
        elif slot.current.machine.state in state_machine.ENDED and not self.stopping:
            self._promote(slot)

    def _promote(self, slot: Slot) -> None:
        crashpoint("mid_swap", "ready")
        old = slot.promote()
        old.role = "retiring"
        new = slot.current
        # One record for both: after a crash between two records, there would be two current generations or none.
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
        """The first dependency that is not met, or a file that is not written yet, worded to follow "waiting for"; None
        if the service may start."""
        if self.turns.full(spec, self.slots.values()):
            return f"other replicas to start, {self.turns.at_once} at a time"
        unchecked = min(self.environments.unchecked, default=None)
        if unchecked is not None:
            return f"environment {unchecked}, in which the run's data is then checked"
        missing = next((why for d in spec.depends_on if (why := unmet(self, d)) is not None), None)
        return missing or self._unwritten(spec.kind)

    def dependents(self, slot: Slot) -> list[Slot]:
        """The services that depend on this one; they are stopped before it."""
        return dependents(self.slots.values(), slot)

    # --- stopping ---

    def begin_stop(self, *, now: bool = False, why: str = state_machine.STOP_REQUESTED) -> None:
        """Stop every service, dependents first. ``now`` skips to the last stop stage, SIGKILL. Nothing is started any
        more. ``why``: what is shown of each service; that of the first call stays."""
        self._stop_why = self._stop_why if self.stopping else why
        self.stopping = True
        self.stop_now = self.stop_now or now
        self.environments.cancel()
        self.keeper_manager.continue_stopped()
        # A service that exits while its dependents are still being stopped must not be restarted.
        for instance in list(self.instances()):
            instance.feed(state_machine.NoRestart(self._stop_why))
        self.kick()

    def _stop_in_order(self) -> None:
        for slot in self.slots.values():
            # A dependent that cannot be killed must not keep this service running.
            if self.stop_now or all(self.hopeless(other) for other in self.dependents(slot)):
                for instance in list(slot.instances()):
                    instance.end_drain()
                    machine = instance.machine
                    skip = self.stop_now and machine.stage < len(instance.rules.stop) - 1
                    if machine.state not in state_machine.ENDED and (
                        machine.wanted or machine.after != "down" or skip
                    ):
                        instance.feed(state_machine.Stop(self.stop_now, self._stop_why))

    def hopeless(self, slot: Slot) -> bool:
        """Whether waiting for the end of a service is useless (see ``Slot.hopeless``)."""
        return slot.hopeless(self.now(), self.plan.settings.stuck_after)

    @property
    def all_ended(self) -> bool:
        """Whether no service has a process and none will be started without a command."""
        return all(slot.ended for slot in self.slots.values())

    # --- called by the keeper manager ---

    def _keeper_connected(self, pid: int) -> None:
        self.process_scan.set_keeper(pid)

    def _exit_reported(self, token: str, exit_: Exit) -> None:
        name, _, generation = token.rpartition(".")
        slot = self.slots.get(name)
        instance = slot.find(int(generation)) if slot is not None else None
        if instance is not None:
            instance.leader.exit_reported(int(generation), exit_)

    # --- commands ---

    def slot(self, name: str) -> Slot:
        """The slot of a service.

        Raises:
            CommandError: there is no service of this name; the message lists the known ones.
        """
        slot = self.slots.get(name)
        if slot is None:
            names = ", ".join(self.slots)
            raise CommandError(
                "unknown_service",
                f"no service {name!r}; known services: {names}",
                nearest(name, self.slots, 0.5),
            )
        return slot

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition()`` is true; it is checked every 20 ms."""
        while not condition():  # noqa: ASYNC110 - conditions over many states
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Cancel all tasks and close all files and connections; service processes keep running."""
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        for slot in self.slots.values():
            for instance in slot.instances():
                instance.close()
        self.environments.cancel()
        self.keeper_manager.close()
        self.end_causes.close()
        self.records.close()

    def _environment_changed(self, name: str, text: str, level: Level) -> None:
        self.say("environment", text, level, f"env:{name}")
        self.kick()


def _may_start(instance: Instance) -> bool:
    return instance.machine.state == "waiting" and instance.machine.wanted and not instance.busy


def _has_failed(before: MachineState, machine: MachineState) -> bool:
    """Whether the process has just ended by itself, and the next one is started at once or after a pause."""
    failed = (
        bool(machine.failures)
        and machine.failures[-1:] != before.failures[-1:]
        and before.state == "stopping"
    )
    explained_by_log = machine.exit is not None and machine.exit.known and not machine.shut_down
    return failed and machine.state in ("preparing", "backing_off") and explained_by_log
