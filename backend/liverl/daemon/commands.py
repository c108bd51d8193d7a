"""What clients may ask of a run, and the event that says who asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from liverl.control.messages import CommandError
from liverl.daemon.sampler import Sampler
from liverl.daemon.service_detail import actor_detail, live_detail
from liverl.external.repair import Repair
from liverl.serving.endpoint import ReplicaEndpoint, owned_by_verl
from liverl.serving.scaling import Scaling
from liverl.supervise.services import state_machine
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor


class Commands:
    """``stop(now=..., who=...)`` ends the run. ``found``: the replicas that verl keeps. ``repair``: where a launch
    script's own services were adopted."""

    def __init__(
        self,
        supervisor: Supervisor,
        scaling: Scaling,
        sampler: Sampler,
        stop: Callable[..., None],
        found: Callable[[], list[ReplicaEndpoint]],
        repair: Repair | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._scaling = scaling
        self._observer = sampler
        self._stop = stop
        self._found = found
        self._repair = repair

    async def run(self, name: str, args: dict[str, Any], client: str) -> dict[str, Any]:
        """Carry out one command.

        Raises:
            CommandError: unknown, or it cannot be done; the message says why.
        """
        supervisor = self._supervisor
        if name == "stop":
            self._stop(now=bool(args.get("now")), who=client or "a client")
            await supervisor.records.journalled()  # what was answered holds, whatever happens to this backend
            return {"text": "stopping"}
        if name == "scale":
            to, delta, remove = args.get("to"), args.get("delta"), args.get("remove")
            how = f"scale {to}" if to is not None or not isinstance(delta, int) else f"scale {delta:+d}"
            self._log(client, how if remove is None else f"remove {remove}")
            if self._repair is not None:
                return await self._repair.add(to, delta, remove)
            return await self._scaling.scale(to, delta, remove)
        if name in ("restart", "stop_service", "start_service"):
            service = str(args.get("service", ""))
            if self._repair is not None and self._repair.knows(service):
                self._log(client, f"{name.removesuffix('_service')} {service}")
                return await self._repair.run(name, service)
            if self._is_actor(service):
                raise owned_by_verl(service)
            slot = supervisor.slot(service)
            self._log(client, f"{name.removesuffix('_service')} {service}")
            if name == "restart":
                return await supervisor.restart(service)
            if name == "start_service":
                return await self._start_service(slot)
            return await self._stop_service(slot)
        if name == "inspect":
            return await self._inspect(str(args.get("service", "")))
        known = "inspect, restart, scale, start_service, stop, stop_service"
        raise CommandError("unknown_command", f"unknown command {name!r}; commands: {known}")

    async def _inspect(self, service: str) -> dict[str, Any]:
        supervisor, sampler = self._supervisor, self._observer
        if self._is_actor(service):
            pids = sampler.gpu_members(supervisor.process_scan.members()).get(service, ())
            return actor_detail(service, pids, sampler.pid_memory)
        if self._repair is not None and self._repair.knows(service):
            return await self._repair.run("inspect", service)
        return await live_detail(supervisor, service, sampler.pid_memory)

    def _is_actor(self, service: str) -> bool:
        """Whether this is a replica that verl keeps."""
        return any(endpoint.name == service for endpoint in self._found())

    def _log(self, client: str, text: str) -> None:
        self._supervisor.say("command", f"{client or 'a client'}: {text}", data_client=client)

    async def _stop_service(self, slot: Slot) -> dict[str, Any]:
        if slot.incoming is not None:
            slot.incoming.feed(state_machine.Stop())
        slot.current.feed(state_machine.Stop())
        await self._supervisor.until(lambda: slot.current.machine.state in state_machine.ENDED)
        return {"service": slot.name, "state": slot.state}

    async def _start_service(self, slot: Slot) -> dict[str, Any]:
        if self._supervisor.stopping:
            raise CommandError("stopping", "the run is stopping")
        before = slot.current.machine.generation
        if slot.state in ("ready", "starting", "preparing"):
            return {
                "service": slot.name,
                "generation": before,
                "text": f"{slot.name} is already {slot.state}",
            }
        slot.current.feed(state_machine.Start())
        self._supervisor.kick()
        await self._supervisor.until(lambda: slot.state == "ready" or slot.state in state_machine.ENDED)
        if slot.state in state_machine.ENDED:
            raise CommandError("not_started", f"{slot.name} did not start: {slot.current.machine.why}")
        return {"service": slot.name, "generation": slot.current.machine.generation}
