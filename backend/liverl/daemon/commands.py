"""The commands that clients can send to a run; each one adds an event that names the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from liverl.control.commands import (
    Arguments,
    Inspect,
    InspectGpu,
    Reconfigure,
    Restart,
    SaveCheckpoint,
    Scale,
    ServiceCommand,
    StartService,
    Stop,
    StopService,
    parse_arguments,
    unknown_command,
)
from liverl.control.messages import CommandError
from liverl.daemon.batch_end import BatchEndWatch
from liverl.daemon.gpu_detail import GpuDetails
from liverl.daemon.reconfigure import Reconfiguration, at_once
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.daemon.sampler import Sampler
from liverl.daemon.service_detail import actor_detail, live_detail
from liverl.serving.endpoint import hosted_in_workers, owned_by_verl
from liverl.serving.replica_source import ReplicaSource
from liverl.serving.scaling import Scaling
from liverl.supervise.services import operations
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor

if TYPE_CHECKING:
    from liverl.external.repair import Repair

Answer = dict[str, Any]  # plain data, sent as JSON
Change = Callable[[Supervisor, Slot], Awaitable[Answer]]


@dataclass(frozen=True)
class Entry(Generic[Arguments]):
    """One command. ``handler(arguments, client)`` carries it out; ``client``: who requested it, in words."""

    arguments: type[Arguments]
    handler: Callable[[Arguments, str], Awaitable[Answer]]

    async def run(self, name: str, args: dict[str, Any], client: str) -> Answer:
        """Parse the arguments and carry out the command ``name``.

        Raises:
            CommandError: the arguments are wrong, or it cannot be done; the message says why.
        """
        return await self.handler(parse_arguments(name, args, self.arguments), client)


class Commands:
    """The table of commands. ``stop(now=..., who=...)`` ends the run. ``source``: of the replicas that verl manages,
    None without verl. ``repair``: for services that a launch script started, None if there are none."""

    def __init__(
        self,
        supervisor: RunSupervisor,
        scaling: Scaling,
        sampler: Sampler,
        stop: Callable[..., None],
        source: ReplicaSource | None,
        reconfiguration: Reconfiguration,
        batch_end: BatchEndWatch,
        repair: Repair | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._scaling = scaling
        self._sampler = sampler
        self._end_run = stop
        self._source = source
        self._reconfiguration = reconfiguration
        self._batch_end = batch_end
        self._repair = repair
        self._gpus = GpuDetails(supervisor, sampler)
        self.table: dict[str, Entry[Any]] = {
            "inspect": Entry(Inspect, self._inspect),
            "inspect_gpu": Entry(InspectGpu, self._inspect_gpu),
            "reconfigure": Entry(Reconfigure, self._reconfigure),
            "restart": Entry(Restart, self._restart),
            "save_checkpoint": Entry(SaveCheckpoint, self._save_checkpoint),
            "scale": Entry(Scale, self._scale),
            "start_service": Entry(StartService, self._start_service),
            "stop": Entry(Stop, self._stop),
            "stop_service": Entry(StopService, self._stop_service),
        }

    async def run(self, name: str, args: dict[str, Any], client: str) -> Answer:
        """Carry out one command of ``client`` (who requested it, in words; may be empty).

        Raises:
            CommandError: ``unknown_command``, ``bad_args``, or it cannot be done; the message says why.
        """
        entry = self.table.get(name)
        if entry is None:
            raise unknown_command(name, self.table)
        return await entry.run(name, args, client or "a client")

    # --- the run ---

    async def _stop(self, command: Stop, client: str) -> Answer:
        self._end_run(now=command.now, who=client)
        # Journal the stop before the answer: it must hold even if this backend is killed.
        await self._supervisor.records.journalled()
        return {"text": "stopping"}

    async def _save_checkpoint(self, _command: SaveCheckpoint, client: str) -> Answer:
        return {"text": await self._batch_end.save_now(client)}

    async def _scale(self, command: Scale, client: str) -> Answer:
        to, delta, remove = command.to, command.delta, command.remove
        how = f"scale {to}" if to is not None or delta is None else f"scale {delta:+d}"
        self._log(client, how if remove is None else f"remove {remove}")
        if self._repair is not None:
            return await self._repair.add(to, delta, remove)
        return await self._scaling.scale(to, delta, remove, force=command.force)

    async def _reconfigure(self, command: Reconfigure, client: str) -> Answer:
        if self._repair is not None and not at_once(command.values):
            raise CommandError("next_attempt", "the services of a launch script are not started by this run")
        self._log(client, f"change {', '.join(command.values)}")
        return await self._reconfiguration.change(command.values, client)

    # --- one service ---

    async def _restart(self, command: Restart, client: str) -> Answer:
        return await self._change(command, f"restart {command.service}", client, operations.restart)

    async def _stop_service(self, command: StopService, client: str) -> Answer:
        return await self._change(command, f"stop {command.service}", client, operations.stop)

    async def _start_service(self, command: StartService, client: str) -> Answer:
        return await self._change(command, f"start {command.service}", client, operations.start)

    async def _change(self, command: ServiceCommand, text: str, client: str, change: Change) -> Answer:
        """``change`` a service of this run, or pass the command to ``Repair`` if a launch script started the service.
        ``text``: for the event."""
        if self._repair is not None and self._repair.knows(command.service):
            self._log(client, text)
            return await self._repair.run(command)
        if self._is_actor(command.service):
            raise owned_by_verl(command.service)
        if self._supervisor.plan.carrier == "workers" and command.service in ("proxy", "sessions"):
            raise hosted_in_workers(command.service)
        slot = self._supervisor.slot(command.service)
        self._log(client, text)
        return await change(self._supervisor, slot)

    async def _inspect(self, command: Inspect, _client: str) -> Answer:
        supervisor, sampler, service = self._supervisor, self._sampler, command.service
        if self._is_actor(service):
            pids = sampler.gpu_members(supervisor.process_scan.members()).get(service, ())
            return actor_detail(service, pids, sampler.pid_memory)
        if self._repair is not None and self._repair.knows(service):
            return await self._repair.run(command)
        return await live_detail(supervisor, service, sampler.pid_memory)

    async def _inspect_gpu(self, command: InspectGpu, _client: str) -> Answer:
        return await self._gpus.of(command.gpu)

    def _is_actor(self, service: str) -> bool:
        """Whether this is a replica that verl manages."""
        endpoints = self._source.endpoints() if self._source is not None else []
        return any(endpoint.name == service for endpoint in endpoints)

    def _log(self, client: str, text: str) -> None:
        self._supervisor.say("command", f"{client}: {text}", data_client=client)
