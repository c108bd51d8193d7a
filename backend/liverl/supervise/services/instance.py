"""One service instance: drives the pure state machine (``state_machine``) with a real process.

A service normally has one instance through all its generations. While it is swapped there are more: the current one,
an incoming one, and retiring ones that drain. ``hub`` is the supervisor, which owns what all instances share.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from liverl.model import Exit
from liverl.plan.spec import ServiceSpec, StopStage
from liverl.procs import procfs, tree
from liverl.procs.programs import programs
from liverl.rundir.log_names import LogName
from liverl.supervise.keeper.client import KeeperError, KeeperGone
from liverl.supervise.services import prepare, probes, state_machine
from liverl.supervise.services.failpoints import crashpoint
from liverl.supervise.services.leader import Leader, LeaderProcess
from liverl.supervise.services.state_machine import MachineState
from liverl.util.regular_file import read_end, read_text

if TYPE_CHECKING:
    from liverl.supervise.services.keeper_manager import KeeperManager
    from liverl.supervise.services.process_scan import ProcessScan
    from liverl.supervise.services.records import Records

Role = Literal["current", "incoming", "retiring"]

_LAST_BYTES = 1 << 20  # of a start's log that are searched for why it failed


class InstanceHost(Protocol):
    """The part of the supervisor that an instance uses."""

    run: str
    run_dir: Path
    attempt_dir: Path
    records: Records
    keeper_manager: KeeperManager
    batch_end: str  # see ``liverl.plan.spec``

    @property
    def process_scan(self) -> ProcessScan:
        """The process trees of all services."""

    http: probes.Http

    def now(self) -> float:
        """Unix seconds; never steps back."""

    def changed(self, instance: Instance, before: MachineState) -> None:
        """Called after each change of the instance's machine state."""

    def note(self, instance: Instance, kind: str, text: str, level: str = "info", **data: Any) -> None:
        """Add an event about the instance's service."""

    def reserve_gpus(self, name: str, count: int) -> tuple[str, ...]:
        """Reserve GPUs for a service; returns their UUIDs. Raises PrepareProblem if there are not enough."""

    def pythons(self) -> Mapping[str, Path]:
        """Interpreters of the environments that are ready, by name."""

    def service_ports(self) -> dict[str, int]:
        """Port numbers of all services, by ``service.port`` and by service name."""

    async def before_start(self, instance: Instance) -> None:
        """Called before a process is started. Raises PrepareProblem if it must not be."""

    async def before_kill(self, instance: Instance, why: str) -> None:
        """Called before processes that hang get a signal, for what can only be seen while they live."""

    def kick(self) -> None:
        """Request a ``reconcile`` soon."""

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background; its exceptions are reported."""


class Instance:
    """One instance of a service: its machine state, its newest process, its probes and its timers."""

    def __init__(
        self,
        hub: InstanceHost,
        spec: ServiceSpec,
        role: Role = "current",
        machine: MachineState | None = None,
    ) -> None:
        self.hub = hub
        self.spec = spec
        self.role: Role = role
        self.machine = machine or MachineState(since=hub.now())
        self.leader = Leader(hub, self._leader_ended)
        self.last_problem: str | None = None  # of the newest startup check
        # The newest check of each probe: Unix time, and problem.
        self.looks: dict[str, tuple[float, str | None]] = {}
        self.left_behind: tuple[str, ...] = ()  # programs that still ran when the leader had ended by itself
        self.progress = ""  # content of spec.restart_needs at the last start
        self.work: asyncio.Task[None] | None = None  # the newest start
        self._probing: asyncio.Task[None] | None = None
        self._emptying: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._hangs = ""  # why the next signal is for a process that hangs; "" if it is not

    # --- identity ---

    @property
    def process(self) -> LeaderProcess | None:
        """The newest process, also after it has ended; None before the first start."""
        return self.leader.process

    @property
    def name(self) -> str:
        """The service's name."""
        return self.spec.name

    @property
    def key(self) -> str:
        """``service.generation`` of the machine state: key of its process tree, and token at the keeper."""
        return f"{self.spec.name}.{self.machine.generation}"

    def key_of(self, generation: int) -> str:
        """The key of another generation of this service."""
        return f"{self.spec.name}.{generation}"

    @property
    def rules(self) -> state_machine.RestartRules:
        """The rules of the state machine; a retiring instance stops by its drain sequence, if it has one."""
        draining = self.role == "retiring" and self.spec.drain
        stop = self.spec.drain if draining else self.spec.stop
        spec = self.spec
        return state_machine.RestartRules(spec.restart, stop, spec.probes.startup_deadline, spec.completes)

    @property
    def busy(self) -> bool:
        """Whether a start is still being carried out, also one that a stop has overtaken."""
        return self.work is not None and not self.work.done()

    def port(self, name: str) -> int | None:
        """Number of a port of the newest process; None without a process or such a port."""
        return self.process.ports.get(name) if self.process else None

    # --- the machine ---

    def feed(self, event: state_machine.Input) -> None:
        """Pass an event to the state machine and carry out the resulting actions."""
        before = self.machine
        machine, actions = state_machine.step(
            before, event, self.hub.now(), self.rules, random.uniform(-1, 1)
        )
        self._hangs = self._hung(event, before, machine) or self._hangs
        self._apply(before, machine, actions)

    def _hung(self, event: state_machine.Input, before: MachineState, machine: MachineState) -> str:
        """Why the process hangs, if this event says so: its time to start or to end is over, or it does not answer."""
        if machine.state != "stopping" or self.role == "retiring":
            return ""
        if isinstance(event, state_machine.LivenessFailed) and before.state != "stopping":
            return event.why
        if not isinstance(event, state_machine.DeadlinePassed):
            return ""
        if before.state == "starting":
            return machine.why
        stage = self.rules.stop[before.stage]
        return f"has not ended {stage.grace:.0f} s after SIG{stage.signal}"

    def adopt(self) -> None:
        """Set the timers and repeat the actions of a state that was restored from the journal."""
        before = self.machine
        machine, actions = state_machine.adopted(before, self.hub.now(), self.rules)
        self._apply(before, machine, actions)

    def retire(self) -> None:
        """End a replaced instance by its drain sequence."""
        self.role = "retiring"
        self.feed(state_machine.Stop(why="its next generation has taken over"))

    def end_drain(self) -> None:
        """Go on to the second stop stage at once if this instance is draining. Called when the run stops."""
        if self.role == "retiring" and self.machine.state == "stopping" and self.machine.stage == 0:
            self.machine = replace(self.machine, deadline=self.hub.now())
            self.feed(state_machine.DeadlinePassed())

    def _apply(
        self, before: MachineState, machine: MachineState, actions: tuple[state_machine.Action, ...]
    ) -> None:
        self.machine = machine
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if machine.deadline is not None:
            delay = max(0.0, machine.deadline - self.hub.now())
            self._timer = asyncio.get_running_loop().call_later(
                delay + 0.001, self.feed, state_machine.DeadlinePassed()
            )
        if machine.state not in state_machine.LIVE and self._probing is not None:
            self._probing.cancel()
            self._probing = None
        if machine != before:
            self.hub.changed(self, before)
        for action in actions:
            self._do(action)

    def _do(self, action: state_machine.Action) -> None:
        match action:
            case state_machine.Prepare(generation=generation):
                self.last_problem, self.left_behind = None, ()
                self.work = self.hub.spawn_task(self._start(generation))
                # If a stop came meanwhile, the service has ended only when this task has.
                self.work.add_done_callback(lambda _: self.hub.kick())
            case state_machine.Watch(generation=generation):
                self._watch(generation)
            case state_machine.Escalate(generation=generation, stage=stage):
                self.hub.spawn_task(self._escalate(generation, stage))

    # --- starting ---

    async def _start(self, generation: int) -> None:
        try:
            await self.hub.before_start(self)
            values, ports = await self._prepare(generation)
            crashpoint("before_spawn", self.name)
            await self._spawn(generation, values, ports)
        except prepare.PrepareProblem as problem:
            self.feed(state_machine.PrepareFailed(generation, str(problem), problem.final))
        except (KeeperError, KeeperGone, OSError) as error:
            why = str(error) or "the keeper has exited"
            self.feed(state_machine.PrepareFailed(generation, why))

    async def _prepare(self, generation: int) -> tuple[prepare.Placeholders, dict[str, int]]:
        hub, spec = self.hub, self.spec
        if spec.restart_needs:
            await asyncio.to_thread(self._check_progress, spec.restart_needs)
        ports: dict[str, int] = {}
        for port in spec.ports:
            number = (
                await hub.keeper_manager.hold_port(spec.name, port)
                if port.held
                else await asyncio.to_thread(prepare.choose_port, port)
            )
            if number is not None:
                ports[port.name] = number
        all_ports = {**hub.service_ports(), **ports}
        values = prepare.Placeholders(
            hub.run_dir, hub.attempt_dir, generation, hub.pythons(), all_ports, hub.batch_end
        )
        if spec.files:
            await asyncio.to_thread(prepare.write_files, spec, values)
        return values, ports

    def _check_progress(self, needed: str) -> None:
        """Refuse an automatic restart if the file ``needed`` of the run has not changed since the last start: without
        progress the service would be restarted for ever.

        Raises:
            PrepareProblem: the file has not changed.
        """
        path = self.hub.run_dir / needed
        progress = read_text(path) if path.exists() else ""
        restarted_automatically = self.machine.streak > 0
        if restarted_automatically and progress == self.progress:
            name = path.name
            raise prepare.PrepareProblem(
                f"not restarted: {name} has not changed since the last start", final=True
            )
        self.progress = progress

    async def _spawn(self, generation: int, values: prepare.Placeholders, ports: dict[str, int]) -> None:
        hub, spec = self.hub, self.spec
        gpus = hub.reserve_gpus(spec.name, spec.gpus) if spec.gpus else ()
        log = hub.attempt_dir / "logs" / str(LogName(spec.name, generation))
        token = self.key_of(generation)
        held = [port.name for port in spec.ports if port.held and port.name in ports]
        variables = ["LIVERL_LISTEN_FD", *(f"LIVERL_LISTEN_FD_{name.upper()}" for name in held[1:])]
        tag = f"{hub.run}/{spec.name}/{generation}"

        def prepared() -> tuple[dict[str, str], int, list[str]]:
            env = prepare.environment(spec, values, tag, gpus)
            return env, log.stat().st_size if log.exists() else 0, prepare.command_line(spec, values)

        env, log_start, argv = await asyncio.to_thread(prepared)
        intent = {
            "k": "intent",
            "svc": spec.name,
            "gen": generation,
            "role": self.role,
            "ports": ports,
            "gpus": list(gpus),
            "log": str(log.relative_to(hub.run_dir)),
            "log_start": log_start,
            "progress": self.progress,
            "argv": argv,
            "at": hub.now(),
        }
        await hub.records.journal(intent)
        if self.machine.generation == generation and self.machine.state != "preparing":
            return  # stopped meanwhile; no process has been started
        self.feed(state_machine.Prepared(generation))
        try:
            child = await hub.keeper_manager.spawn(
                token=token,
                argv=argv,
                env=env,
                cwd=prepare.fill(spec.cwd, values),
                log=str(log),
                fds={
                    variable: f"{spec.name}.{name}" for variable, name in zip(variables, held, strict=False)
                },
                about=intent,
            )
        except KeeperGone:
            # The keeper may have forked before it died; a second process must not be started beside that one.
            orphan = await hub.keeper_manager.orphan(tag)
            if orphan is None:
                raise
            child = {"pid": orphan[0], "tick": orphan[1]}
        # Add it to the trees at once, whatever its state: a scan would take it for a stray.
        hub.process_scan.trees.seed(token, [(child["pid"], child["tick"] or 0)])
        if child.get("exit") is not None:
            raise prepare.PrepareProblem(f"generation number {generation} is already in use")
        crashpoint("after_spawn", self.name)
        if self.role == "incoming":
            crashpoint("mid_swap", "spawned")
        self.leader.take(
            LeaderProcess(
                generation,
                child["pid"],
                child["tick"] or 0,
                ports,
                log,
                log_start,
                hub.now(),
                gpus,
            )
        )
        record = {
            "k": "spawned",
            "svc": spec.name,
            "gen": generation,
            "pid": child["pid"],
            "tick": child["tick"],
        }
        # A full disk must not fail the start: the process runs, and the keeper has its record.
        hub.records.journal_soon(record)
        await hub.records.journalled()
        self.feed(state_machine.Spawned(generation))
        process = self.process
        if process is not None and not procfs.alive(process.pid, process.tick):
            hub.spawn_task(self.leader.resolve(process))  # it died before its pidfd was watched

    # --- the leader's end ---

    def _leader_ended(self, generation: int, exit_: Exit) -> None:
        if self.machine.generation != generation or self.machine.leader_gone:
            return
        self.hub.records.journal_soon(
            {"k": "exit", "svc": self.name, "gen": generation, "exit": msgspec.to_builtins(exit_)}
        )
        crashpoint("leader_exited", self.name)
        self.feed(state_machine.LeaderExited(generation, exit_))

    # --- watching ---

    def _watch(self, generation: int) -> None:
        process = self.process
        if (
            process is None
            or process.generation != generation
            or self.machine.state not in state_machine.LIVE
        ):
            return
        spec = self.spec.probes
        host = self.spec.host
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1"
        target = probes.Target(
            host, process.ports, process.log, process.log_start, self.hub.run_dir, generation, process.pid
        )

        def report(meaning: str, problem: str | None) -> None:
            if meaning == "up":
                self.feed(state_machine.ProbeReady(generation))
            elif meaning == "down":
                self.feed(state_machine.ProbeUnready(generation, problem or ""))
            elif meaning == "refused":
                self.feed(state_machine.StartupRefused(generation, problem or ""))
            elif meaning == "dead":
                self.feed(state_machine.LivenessFailed(generation, problem or ""))
            else:
                self.last_problem = problem

        def looked(probe: str, problem: str | None) -> None:
            self.looks[probe] = (self.hub.now(), problem)

        self.looks = {}
        if spec.startup.kind == "process" and spec.ready is None and spec.live is None:
            asyncio.get_running_loop().call_soon(self.feed, state_machine.ProbeReady(generation))
            return
        already = self.machine.state in state_machine.SERVING
        self._probing = self.hub.spawn_task(
            probes.watch(
                spec.startup,
                spec.ready,
                spec.live,
                target,
                self.hub.http,
                report,
                already_up=already,
                degraded=self.machine.state == "degraded",
                looked=looked,
            )
        )

    # --- ending ---

    async def _escalate(self, generation: int, stage: StopStage) -> None:
        process = self.process
        if process is None or process.generation != generation:
            return
        if self._emptying is None or self._emptying.done():
            self._emptying = self.hub.spawn_task(self._until_empty(generation))
        hangs, self._hangs = self._hangs, ""
        # Journal the stop before the signal: a later backend must not take the exit for a failure.
        await self.hub.records.journalled()
        if hangs:
            await self.hub.before_kill(self, hangs)
        number = signal.Signals[f"SIG{stage.signal}"]
        if stage.target == "leader":
            targets = set() if self.machine.leader_gone else {process.member}
        else:
            targets = self.hub.process_scan.live_members(self)
        if self.machine.leader_gone and not self.machine.ended_by_us and not self.left_behind:
            self.left_behind = programs(pid for pid, _ in sorted(targets))
        if targets:
            crashpoint("stopping", self.name)
            problems = tree.send_all(sorted(targets), number)
            count = "1 process" if len(targets) == 1 else f"{len(targets)} processes"
            whom = "the main process" if stage.target == "leader" else count
            self.hub.note(self, "signal", f"sent {number.name} to {whom} of {self.name}", "debug")
            for problem in problems:
                self.hub.note(self, "signal", problem, "error")

    async def _until_empty(self, generation: int) -> None:
        """Feed ``TreeEmpty`` once the leader has ended and two scans in a row find no process of the tree."""
        pause, empty_scans = 0.005, 0
        while self.machine.state == "stopping" and self.machine.generation == generation:
            process = self.process
            if self.machine.leader_gone:
                tables_before = self.hub.process_scan.tables
                if self.hub.process_scan.live_members(self):
                    empty_scans = 0
                elif self.hub.process_scan.tables != tables_before or not empty_scans:
                    empty_scans += 1
                if empty_scans >= 2:
                    passing = await self._passing(process)
                    self.feed(state_machine.TreeEmpty(generation, passing))
                    return
                if empty_scans:  # until there is another table: the same one says the same
                    await asyncio.sleep(max(0.001, self.hub.process_scan.table_lasts))
                    continue
            elif process is not None and not procfs.alive(process.pid, process.tick):
                await self.leader.resolve(process)
                continue
            await asyncio.sleep(pause)
            pause = min(0.25, pause * 1.6)

    async def _passing(self, process: LeaderProcess | None) -> str:
        """Why a start failed that may succeed when repeated, by the end of its log; "" if that does not say so."""
        passing = self.spec.restart.passing
        if not passing or process is None:
            return ""
        try:
            end = await asyncio.to_thread(read_end, process.log, process.log_start, _LAST_BYTES)
        except OSError:
            return ""
        text = end.decode(errors="replace")
        return next((why for words, why in passing.items() if words in text), "")

    def close(self) -> None:
        """Cancel all tasks and timers; the process keeps running. Called when the backend exits."""
        for task in (self.work, self._probing, self._emptying):
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.leader.drop()

    def record(self) -> dict[str, Any]:
        """The machine state as a journal record, without its deadline."""
        machine = replace(self.machine, deadline=None)
        return {
            "k": "state",
            "svc": self.name,
            "gen": machine.generation,
            "role": self.role,
            "unit": msgspec.to_builtins(machine),
        }
