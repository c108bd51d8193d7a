"""Start, stop and restart one service. Each returns when that is done, as plain data for the client that requested
it."""

from __future__ import annotations

import asyncio
from typing import Any

from liverl.control.messages import CommandError
from liverl.supervise.services import state_machine
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor


async def start(supervisor: Supervisor, slot: Slot) -> dict[str, Any]:
    """Start a service that is down; nothing happens if it is up or starting. Returns when it is ready.

    Raises:
        CommandError: the run is stopping, or the service did not start.
    """
    refuse_while_stopping(supervisor)
    before = slot.current.machine.generation
    if slot.state in state_machine.LIVE or slot.state == "preparing":
        return {
            "service": slot.name,
            "generation": before,
            "text": f"{slot.name} is already {slot.state}",
        }
    slot.current.feed(state_machine.Start())
    supervisor.kick()
    await supervisor.until(lambda: slot.state in state_machine.SERVING | state_machine.ENDED)
    if slot.state in state_machine.ENDED:
        raise CommandError("not_started", f"{slot.name} did not start: {slot.current.machine.why}")
    return {"service": slot.name, "generation": slot.current.machine.generation}


async def stop(supervisor: Supervisor, slot: Slot) -> dict[str, Any]:
    """Stop a service, and the new generation if one is being started beside it. Returns when the service has ended; it
    is not restarted, unless another command starts it: then ``text`` of the answer says so."""
    before = slot.current.machine.generation
    if slot.incoming is not None:
        slot.incoming.feed(state_machine.Stop())
    slot.current.feed(state_machine.Stop())

    def started_again() -> bool:
        machine = slot.current.machine
        return machine.generation != before or (machine.wanted and machine.state != "stopping")

    await supervisor.until(lambda: slot.state in state_machine.ENDED or started_again())
    answer = {"service": slot.name, "state": slot.state}
    if started_again():
        answer["text"] = f"{slot.name} was stopped, but another command has started it again"
    return answer


async def restart(supervisor: Supervisor, slot: Slot) -> dict[str, Any]:
    """Restart a service. One that serves and has a drain sequence is replaced without a gap: the new generation starts
    beside the current one. Returns when the new generation is ready. A request during such a restart waits for it and
    gets its answer.

    Raises:
        CommandError: the run is stopping, the service was not started by this run, or the restart failed.
    """
    refuse_while_stopping(supervisor)
    if slot.spec.owner == "foreign":
        raise CommandError("foreign", f"this run did not start {slot.name} and does not manage it")
    if slot.being_restarted and slot.restarting is not None:
        supervisor.say("restart", "a restart is already in progress; waiting for it", service=slot.name)
    else:
        drains = slot.spec.drain and slot.current.machine.state in state_machine.SERVING
        slot.restarting = asyncio.ensure_future((_swap if drains else _replace)(supervisor, slot))
        slot.restarting.add_done_callback(lambda task: task.cancelled() or task.exception())
    return await asyncio.shield(slot.restarting)


async def _replace(supervisor: Supervisor, slot: Slot) -> dict[str, Any]:
    """Stop the process of a service, then start its next generation."""
    # A generation that is being started is already new, also one whose start a stop has overtaken: the restart takes
    # that process.
    before = slot.current.machine.generation - slot.current.busy
    slot.current.feed(state_machine.Restart())
    await supervisor.until(
        lambda: (
            (slot.current.machine.generation > before and slot.state in state_machine.SERVING)
            or slot.state in state_machine.ENDED
        )
    )
    return await _restarted(supervisor, slot)


async def _swap(supervisor: Supervisor, slot: Slot) -> dict[str, Any]:
    """Start a new generation beside the one that serves; wait for the one that is starting, if there is one."""
    if slot.incoming is not None:  # begun under an earlier backend
        return await _until_swapped(supervisor, slot, slot.incoming)
    before = slot.current.machine.generation
    incoming = slot.begin_swap(supervisor)
    supervisor.say("swap", f"starting a new generation beside generation {before}", service=slot.name)
    supervisor.kick()
    return await _until_swapped(supervisor, slot, incoming)


async def _until_swapped(supervisor: Supervisor, slot: Slot, incoming: Instance) -> dict[str, Any]:
    await supervisor.until(lambda: slot.incoming is not incoming)
    if slot.current is not incoming:
        why = (await supervisor.end_causes.of(incoming)).text
        text = f"the new {slot.name} did not start: {why}; the previous process is still serving"
        raise CommandError("not_started", text)
    # If the previous process died meanwhile, the new one was promoted before it was ready.
    await supervisor.until(lambda: slot.state in state_machine.SERVING | state_machine.ENDED)
    return await _restarted(supervisor, slot)


async def _restarted(supervisor: Supervisor, slot: Slot) -> dict[str, Any]:
    machine = slot.current.machine
    if machine.state in state_machine.ENDED:
        why = (await supervisor.end_causes.of(slot.current)).text
        raise CommandError("not_started", f"{slot.name} failed to restart: {why}")
    pid = slot.current.process.pid if slot.current.process else None
    return {"service": slot.name, "generation": machine.generation, "pid": pid}


def refuse_while_stopping(supervisor: Supervisor) -> None:
    """Called before anything is started for a client.

    Raises:
        CommandError: the run is stopping.
    """
    if supervisor.stopping:
        raise CommandError("stopping", "the run is stopping")
