"""Take over a run whose backend was killed: its services, their processes, and its listening sockets.

No process is started or signalled directly: every service gets back its state (``replay``, completed by
``evidence``), with its process if that is alive, else with the exit status of that process.
"""

from __future__ import annotations

import os
from typing import Any

from liverl.plan.spec import BRIDGE, RestartPolicy, ServiceSpec
from liverl.procs import procfs
from liverl.supervise.recovery import evidence
from liverl.supervise.recovery.replay import RunHistory, ServiceHistory, lineup, takeover
from liverl.supervise.services import state_machine
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.leader import LeaderProcess
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor


def adopt_service(supervisor: Supervisor, spec: ServiceSpec, history: RunHistory) -> Slot:
    """Add the slot of a service in its state of ``history``, which ``evidence`` has completed, and attach the
    processes that are still running."""
    highest = history.highest.get(spec.name, 0)
    slot = supervisor.add_slot(spec, highest=highest)
    slot.base = history.base.get(spec.name, 0)
    for role, past in lineup(history, spec.name):
        if role == "current":
            instance = slot.current
        elif role == "incoming":
            slot.highest = past.generation - 1
            instance = slot.begin_swap(supervisor)
            slot.highest = highest
        else:
            instance = Instance(supervisor, spec, "retiring", past.machine)
            slot.retiring.append(instance)
        _restore(supervisor, instance, past, history)
        if role == "retiring" and instance.machine.state not in (*state_machine.ENDED, "stopping"):
            instance.retire()  # the backend was killed between the replacement and the start of draining
    return slot


def _restore(supervisor: Supervisor, instance: Instance, past: ServiceHistory, history: RunHistory) -> None:
    key = f"{past.service}.{past.generation}"
    instance.progress = past.intent.progress if past.intent is not None else ""
    past = evidence.with_inferred_intent(instance.spec, past, supervisor.attempt)
    process = _process(supervisor, past, history)
    if history.era == procfs.pid_era():
        supervisor.process_scan.trees.seed(key, history.members.get(key, set()))
    alive = process is not None and procfs.alive(process.pid, process.tick)
    floor = history.highest.get(past.service, 0)
    machine, follow = takeover(past, floor, found=process is not None, alive=alive)
    instance.machine = machine
    if process is not None and (follow != "nothing" or machine.state in state_machine.ENDED):
        instance.leader.take(process)
    if process is not None and follow == "end":
        instance.feed(state_machine.Spawned(process.generation))
        return
    instance.adopt()
    if process is None or follow == "nothing":
        if process is not None and instance.machine.state != machine.state in state_machine.ENDED:
            supervisor.note(instance, "adopted", instance.machine.why, "warning")
    elif follow == "watch":
        supervisor.note(instance, "adopted", f"adopted pid {process.pid} ({machine.state})")
    elif past.exit is not None:
        text = f"exited while no backend was running ({past.exit.words()})"
        supervisor.note(instance, "adopted", text, "warning")
        instance.leader.exit_reported(process.generation, past.exit)
    else:
        text = "exited while no backend was running; looking up its exit status"
        supervisor.note(instance, "adopted", text, "warning")
        supervisor.spawn_task(instance.leader.resolve(process))


def _process(supervisor: Supervisor, past: ServiceHistory, history: RunHistory) -> LeaderProcess | None:
    intent = past.intent
    if intent is None or past.pid is None:
        return None
    same_boot = past.seen or history.era == procfs.pid_era()
    # Journalled before a reboot, the pid now belongs to another process, or to none.
    tick = past.tick or 0 if same_boot else -1
    return LeaderProcess(
        generation=past.generation,
        pid=past.pid,
        tick=tick,
        ports=dict(intent.ports),
        log=supervisor.run_dir / intent.log,
        log_start=intent.log_start,
        started_at=intent.at,
        gpus=intent.gpus,
    )


def unplanned(name: str) -> ServiceSpec:
    """A service that runs and is not in the plan: it is watched and stopped, and never started."""
    return ServiceSpec(name, "task", (), restart=RestartPolicy(mode="never"), fatal=False)


def journal_anew(supervisor: Supervisor, history: RunHistory) -> None:
    """Write the whole adopted state to the journal, after parts of it were lost: the next backend reads it there."""
    journal = supervisor.records.journal_soon
    journal({"k": "attempt", "n": supervisor.attempt, "era": procfs.pid_era()})
    if history.stop is not None:
        journal(history.stop)
    if history.replicas is not None:
        journal({"k": "replicas", "indices": history.replicas, "leaving": history.leaving})
    for instance in supervisor.instances():
        process = instance.process
        if process is not None:
            key = {"svc": instance.name, "gen": process.generation}
            log = os.path.relpath(process.log, supervisor.run_dir)
            intent: dict[str, Any] = {
                "role": instance.role,
                "ports": process.ports,
                "gpus": list(process.gpus),
                "log": log,
            }
            intent |= {
                "log_start": process.log_start,
                "progress": instance.progress,
                "at": process.started_at,
            }
            journal({"k": "intent", **key, **intent})
            journal({"k": "spawned", **key, "pid": process.pid, "tick": max(0, process.tick)})
        journal(instance.record())


async def adopt_listeners(
    supervisor: Supervisor, specs: tuple[ServiceSpec, ...], keeper_was_running: bool, history: RunHistory
) -> None:
    """Recover the run's listening sockets: from the keeper if it was already running, else from a service
    that has inherited them (``pidfd_getfd``), which are then passed to the new keeper. If neither is possible, the
    next start of the service binds the port again: also a free one that was chosen, since its clients know it.

    Raises:
        KeeperError, KeeperGone: the keeper refused the socket, or died.
    """
    for spec in specs:
        for port in (p for p in spec.ports if p.held):
            name = f"{spec.name}.{port.name}"
            slot = supervisor.slots.get(spec.name)
            if keeper_was_running and await supervisor.keeper_manager.recover_listener(name, port):
                continue
            last = history.current(spec.name)
            if last is not None and last.intent is not None:
                supervisor.keeper_manager.prefer(name, last.intent.ports.get(port.name, 0))
            process = slot.current.process if slot else None
            if process is None or not procfs.alive(process.pid, process.tick):
                continue
            fd = _steal_listener(process.pid, process.ports.get(port.name, 0), bridge=port.host == BRIDGE)
            if fd is not None:
                await supervisor.keeper_manager.hand_over(name, port, fd)
                supervisor.say(
                    "keeper", f"took over the listening socket on port {process.ports[port.name]}", "debug"
                )


def _steal_listener(pid: int, port: int, *, bridge: bool) -> int | None:
    """A duplicate of the descriptor with which a process listens on a port; None if it does not listen there, or if
    the kernel does not permit it. ``bridge``: of two with the same number, that which is not at a loopback address."""
    import ctypes

    found = sorted(
        procfs.listening_at(pid, port).items(), key=lambda one: one[0].startswith("127.") is bridge
    )
    descriptor = found[0][1] if found else None
    if descriptor is None:
        return None
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(438, pidfd, descriptor, 0)  # SYS_pidfd_getfd, the same number everywhere
    os.close(pidfd)
    if fd < 0:
        return None
    os.set_inheritable(fd, False)
    return fd
