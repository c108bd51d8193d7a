"""One service instance: the pure state machine (``state_machine``) joined to a real process.

A service normally has one instance through all its generations. While a proxy is swapped there are more:
the current one, an incoming one, and retiring ones that drain. The hub (the supervisor) lends what they share.
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
from liverl.supervise.keeper.client import KeeperError, KeeperGone
from liverl.supervise.services import prepare, probes, state_machine
from liverl.supervise.services.failpoints import crashpoint
from liverl.supervise.services.leader import Leader, LeaderProcess
from liverl.supervise.services.state_machine import MachineState

if TYPE_CHECKING:
    from liverl.supervise.services.keeper_manager import KeeperManager
    from liverl.supervise.services.process_scan import ProcessScan
    from liverl.supervise.services.records import Records

Role = Literal["current", "incoming", "retiring"]


class InstanceHost(Protocol):
    """What an instance needs of its supervisor."""

    run: str
    run_dir: Path
    attempt_dir: Path
    records: Records
    keeper_manager: KeeperManager

    @property
    def process_scan(self) -> ProcessScan: ...

    http: probes.Http

    def now(self) -> float: ...
    def changed(self, instance: Instance, before: MachineState) -> None: ...
    def note(self, instance: Instance, kind: str, text: str, level: str = "info", **data: Any) -> None: ...
    def reserve_gpus(self, name: str, count: int) -> tuple[str, ...]: ...
    def pythons(self) -> Mapping[str, Path]: ...
    def service_ports(self) -> dict[str, int]: ...
    def kick(self) -> None: ...
    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class Instance:
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
        self.last_problem: str | None = None  # of a start-up check
        self.looks: dict[
            str, tuple[float, str | None]
        ] = {}  # the newest check by each probe: when, and problem
        self.progress = ""  # content of spec.restart_needs at the last start
        self.work: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._emptying: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- identity ---

    @property
    def process(self) -> LeaderProcess | None:
        return self.leader.process

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def key(self) -> str:
        return f"{self.spec.name}.{self.machine.generation}"

    def key_of(self, generation: int) -> str:
        return f"{self.spec.name}.{generation}"

    @property
    def rules(self) -> state_machine.RestartRules:
        draining = self.role == "retiring" and self.spec.drain
        stop = self.spec.drain if draining else self.spec.stop
        spec = self.spec
        return state_machine.RestartRules(spec.restart, stop, spec.probes.startup_deadline, spec.completes)

    @property
    def busy(self) -> bool:
        """Whether an earlier start is still being carried out."""
        return self.work is not None and not self.work.done()

    def port(self, name: str) -> int | None:
        return self.process.ports.get(name) if self.process else None

    # --- the machine ---

    def feed(self, event: state_machine.Input) -> None:
        """Deliver an event and carry out what follows."""
        before = self.machine
        machine, actions = state_machine.step(
            before, event, self.hub.now(), self.rules, random.uniform(-1, 1)
        )
        self._apply(before, machine, actions)

    def adopt(self) -> None:
        """After a replayed journal has set ``machine`` and ``process``: make it live."""
        before = self.machine
        machine, actions = state_machine.adopted(before, self.hub.now(), self.rules)
        self._apply(before, machine, actions)

    def retire(self) -> None:
        """Replaced: end it by its drain sequence."""
        self.role = "retiring"
        self.feed(state_machine.Stop())

    def hurry(self) -> None:
        """The run ends: what drains goes on to the next stop stage at once."""
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
                self.last_problem = None
                self.work = self.hub.spawn_task(self._start(generation))
                # A stop may have come meanwhile: until this is over, the service is not.
                self.work.add_done_callback(lambda _: self.hub.kick())
            case state_machine.Watch(generation=generation):
                self._watch(generation)
            case state_machine.Escalate(generation=generation, stage=stage):
                self.hub.spawn_task(self._escalate(generation, stage))

    # --- starting ---

    async def _start(self, generation: int) -> None:
        try:
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
        self._check_progress()
        ports: dict[str, int] = {}
        for port in spec.ports:
            ports[port.name] = (
                await hub.keeper_manager.hold_port(spec.name, port)
                if port.held
                else prepare.choose_port(port)
            )
        known = {**hub.service_ports(), **ports}
        values = prepare.Placeholders(hub.run_dir, hub.attempt_dir, generation, hub.pythons(), known)
        prepare.write_files(spec, values)
        return values, ports

    def _check_progress(self) -> None:
        """An automatic restart of something that got nowhere since its last start would go on for ever."""
        if not self.spec.restart_needs:
            return
        path = self.hub.run_dir / self.spec.restart_needs
        now = path.read_text() if path.exists() else ""
        again = self.machine.streak > 0
        if again and now == self.progress:
            name = path.name
            raise prepare.PrepareProblem(
                f"not restarted: {name} has not changed since the last start", final=True
            )
        self.progress = now

    async def _spawn(self, generation: int, values: prepare.Placeholders, ports: dict[str, int]) -> None:
        hub, spec = self.hub, self.spec
        gpus = hub.reserve_gpus(spec.name, spec.gpus) if spec.gpus else ()
        log = hub.attempt_dir / "logs" / f"{spec.name}.{generation}.log"
        token = self.key_of(generation)
        held = [f"{spec.name}.{port.name}" for port in spec.ports if port.held]
        log_start = log.stat().st_size if log.exists() else 0
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
            "at": hub.now(),
        }
        await hub.records.journal(intent)
        if self.machine.generation == generation and self.machine.state != "preparing":
            return  # stopped meanwhile, and nothing has been started
        self.feed(state_machine.Prepared(generation))
        tag = f"{hub.run}/{spec.name}/{generation}"
        try:
            child = await hub.keeper_manager.spawn(
                token=token,
                argv=[prepare.fill(word, values) for word in spec.argv],
                env=prepare.environment(spec, values, tag, gpus),
                cwd=prepare.fill(spec.cwd, values),
                log=str(log),
                fds={"LIVERL_LISTEN_FD": held[0]} if held else {},
            )
        except KeeperGone:
            # It may have forked before it died: another process beside that one would be a double.
            found = await hub.keeper_manager.orphan(tag)
            if found is None:
                raise
            child = {"pid": found[0], "tick": found[1]}
        # Known from here on, whatever its state: to the others it would be a stray.
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
        # A full disk must not make a failure of it: it runs, and the keeper knows it.
        hub.records.journal_soon(record)
        await hub.records.journalled()
        self.feed(state_machine.Spawned(generation))
        process = self.process
        if process is not None and not procfs.alive(process.pid, process.tick):
            hub.spawn_task(self.leader.resolve(process))  # it died before anybody listened

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
        host = self.spec.ports[0].host if self.spec.ports else "127.0.0.1"
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
        # What was asked comes before what is done: a successor must not take the end for a failure.
        await self.hub.records.journalled()
        number = signal.Signals[f"SIG{stage.signal}"]
        if stage.target == "leader":
            targets = set() if self.machine.leader_gone else {process.member}
        else:
            targets = self.hub.process_scan.live_members(self)
        if targets:
            crashpoint("stopping", self.name)
            problems = tree.send_all(sorted(targets), number)
            whom = (
                "its main process"
                if stage.target == "leader"
                else f"{len(targets)} processes of its process tree"
            )
            self.hub.note(self, "signal", f"sent {number.name} to {whom}", "debug")
            for problem in problems:
                self.hub.note(self, "signal", problem, "error")

    async def _until_empty(self, generation: int) -> None:
        """Report when the leader has ended and two scans in a row find nothing of the tree."""
        pause, empty = 0.005, 0
        while self.machine.state == "stopping" and self.machine.generation == generation:
            process = self.process
            if self.machine.leader_gone:
                seen = self.hub.process_scan.tables
                if self.hub.process_scan.live_members(self):
                    empty = 0
                elif self.hub.process_scan.tables != seen or not empty:
                    empty += 1
                if empty >= 2:
                    self.feed(state_machine.TreeEmpty(generation))
                    return
                if empty:
                    await asyncio.sleep(0.001)
                    continue
            elif process is not None and not procfs.alive(process.pid, process.tick):
                await self.leader.resolve(process)
                continue
            await asyncio.sleep(pause)
            pause = min(0.25, pause * 1.6)

    def close(self) -> None:
        """The backend ends: let go of everything without touching the process."""
        for task in (self.work, self._probing, self._emptying):
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.leader.drop()

    def record(self) -> dict[str, Any]:
        """The state as a journal record."""
        machine = replace(self.machine, deadline=None)
        return {
            "k": "state",
            "svc": self.name,
            "gen": machine.generation,
            "role": self.role,
            "unit": msgspec.to_builtins(machine),
        }
