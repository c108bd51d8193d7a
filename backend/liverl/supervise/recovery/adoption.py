"""Take over a run whose backend was killed, from the journal, the keeper's records and /proc.

No process is started or signalled directly: every service gets back its journalled state, with its process if that is
alive, else with the exit status of that process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from liverl.model import Exit
from liverl.plan.spec import ServiceSpec
from liverl.procs import procfs
from liverl.supervise.keeper.client import exit_of
from liverl.supervise.recovery.replay import RunHistory, ServiceHistory
from liverl.supervise.services import state_machine
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.leader import LeaderProcess
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.state_machine import MachineState
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.regular_file import read_regular


def adopt_service(
    supervisor: Supervisor, spec: ServiceSpec, history: RunHistory, children: Mapping[str, dict[str, Any]]
) -> Slot:
    """Add the slot of a service in its journalled state and attach the processes that are still running.

    ``children``: the keeper's records by token (``service.generation``).
    """
    highest = history.highest.get(spec.name, 0)
    past = history.current(spec.name)
    slot = supervisor.add_slot(spec, highest=highest)
    slot.base = history.base.get(spec.name, 0)
    if past is not None:
        _restore(supervisor, slot.current, past, history, children)
    incoming = history.incoming(spec.name)
    if incoming is not None:
        slot.highest = incoming.generation - 1
        instance = slot.begin_swap(supervisor)
        slot.highest = highest
        _restore(supervisor, instance, incoming, history, children)
    for old in history.retiring(spec.name):
        instance = Instance(supervisor, spec, "retiring", old.machine)
        slot.retiring.append(instance)
        _restore(supervisor, instance, old, history, children)
        if instance.machine.state not in (*state_machine.ENDED, "stopping"):
            instance.retire()  # the backend was killed between the replacement and the start of draining
    return slot


def _restore(
    supervisor: Supervisor,
    instance: Instance,
    past: ServiceHistory,
    history: RunHistory,
    children: Mapping[str, dict[str, Any]],
) -> None:
    key = f"{past.service}.{past.generation}"
    instance.progress = (past.intent or {}).get("progress", "")
    machine = past.machine or MachineState(generation=past.generation)
    process = _process(supervisor, past, history, children.get(key))
    if history.era == procfs.pid_era():
        supervisor.process_scan.trees.seed(key, history.members.get(key, set()))
    if process is None:
        without_process = machine.state in state_machine.ENDED or machine.state in (
            "waiting",
            "backing_off",
            "preparing",
        )
        instance.machine = replace(machine, floor=history.highest.get(past.service, 0))
        if not without_process:
            instance.machine = replace(instance.machine, state="waiting")
        instance.adopt()
        return
    if machine.state in ("waiting", "backing_off") and not procfs.alive(process.pid, process.tick):
        instance.machine = replace(machine, floor=history.highest.get(past.service, 0))
        instance.adopt()  # that generation has ended, and the next one was about to start
        return
    if machine.state in ("preparing", "waiting", "backing_off") and machine.generation == past.generation:
        # The process was started, and the backend was killed before it could journal that.
        machine = replace(
            machine, state="starting", why="waiting until it is ready", leader_gone=False, ready_at=None
        )
        machine = replace(machine, since=process.started_at, exit=None)
    instance.machine = machine
    exit_status = _exit(supervisor.run_dir, key, past, children.get(key))
    instance.leader.take(process)
    if machine.state == "stopped" and procfs.alive(process.pid, process.tick):
        # The stop came while the process was being started, and the backend was killed before it could end it.
        instance.feed(state_machine.Spawned(process.generation))
        return
    if machine.state in state_machine.ENDED:
        instance.machine = replace(machine, floor=history.highest.get(past.service, 0))
        instance.adopt()
        if instance.machine.state != machine.state:
            supervisor.note(instance, "adopted", instance.machine.why, "warning")
        return
    instance.adopt()
    if procfs.alive(process.pid, process.tick):
        supervisor.note(instance, "adopted", f"adopted pid {process.pid} ({machine.state})")
    elif exit_status is not None:
        supervisor.note(
            instance, "adopted", f"exited while no backend was running ({exit_status.words()})", "warning"
        )
        instance.leader.exit_reported(process.generation, exit_status)
    else:
        supervisor.note(
            instance, "adopted", "exited while no backend was running; looking up its exit status", "warning"
        )
        supervisor.spawn_task(instance.leader.resolve(process))


def _process(
    supervisor: Supervisor, past: ServiceHistory, history: RunHistory, child: dict[str, Any] | None
) -> LeaderProcess | None:
    intent = past.intent
    if intent is None:
        return None
    pid, tick = past.pid, past.tick
    if pid is None and child is not None:
        pid, tick = child["pid"], child["tick"]
    if pid is None:
        tag = f"{supervisor.run}/{past.service}/{past.generation}"
        pid, tick = procfs.leader_by_tag(tag, supervisor.run_dir) or (None, None)
    if pid is None:
        return None
    if history.era != procfs.pid_era():
        tick = -1  # journalled before a reboot: the pid now belongs to another process, or to none
    return LeaderProcess(
        generation=past.generation,
        pid=pid,
        tick=tick or 0,
        ports=dict(intent["ports"]),
        log=supervisor.run_dir / intent["log"],
        log_start=intent["log_start"],
        started_at=intent["at"],
        gpus=tuple(intent["gpus"]),
    )


def _exit(run_dir: Path, key: str, past: ServiceHistory, child: dict[str, Any] | None) -> Exit | None:
    """The exit of a generation from the first source that has it: the journal, the keeper, the keeper's file. None if
    none has it."""
    if past.exit is not None:
        return past.exit
    if child is not None:
        return exit_of(child["exit"]) if child["exit"] else None
    try:
        record = json.loads(read_regular(run_dir / "exits" / f"{key}.json"))
    except (OSError, ValueError, RecursionError):
        return None
    return exit_of(record.get("exit"))


async def adopt_listeners(
    supervisor: Supervisor, specs: tuple[ServiceSpec, ...], keeper_was_running: bool
) -> None:
    """Recover the run's listening sockets: from the keeper if it was already running, else from a service
    that has inherited them (``pidfd_getfd``), which are then passed to the new keeper. If neither is possible, the
    next start of the service binds the port again.

    Raises:
        KeeperError, KeeperGone: the keeper refused the socket, or died.
    """
    for spec in specs:
        for port in (p for p in spec.ports if p.held):
            name = f"{spec.name}.{port.name}"
            slot = supervisor.slots.get(spec.name)
            if keeper_was_running and await supervisor.keeper_manager.recover_listener(name, port):
                continue
            process = slot.current.process if slot else None
            if process is None or not procfs.alive(process.pid, process.tick):
                continue
            fd = _steal_listener(process.pid, process.ports.get(port.name, 0))
            if fd is not None:
                await supervisor.keeper_manager.hand_over(name, port, fd)
                supervisor.say(
                    "keeper", f"took over the listening socket on port {process.ports[port.name]}", "debug"
                )


def _steal_listener(pid: int, port: int) -> int | None:
    """A duplicate of the descriptor with which a process listens on a port; None if it does not listen there, or if
    the kernel does not permit it."""
    import ctypes

    descriptor = procfs.listening(pid).get(port)
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


def anything_alive(run_dir: Path, run: str, history: RunHistory) -> bool:
    """Whether any process of the history still runs on this host: by the journal, by the last scan of the process
    trees, or by the tag in its environment. The backend, the keeper and clients do not count."""
    same_boot = history.era == procfs.pid_era()
    leaders = [
        (p.pid, p.tick)
        for generations in history.generations.values()
        for p in generations.values()
        if p.pid is not None
    ]
    if same_boot and any(procfs.alive(pid, tick) for pid, tick in leaders):
        return True
    if same_boot and any(procfs.alive(*m) for members in history.members.values() for m in members):
        return True
    prefix = run + "/"
    for proc in procfs.scan().values():
        tag = procfs.environment_tag(proc.pid)
        if (
            tag
            and tag.startswith(prefix)
            and procfs.environment_tag(proc.pid, b"LIVERL_RUN_DIR") == str(run_dir)
        ):
            service = tag[len(prefix) :].partition("/")[0]
            if service not in ("backend", "keeper", "client") and not proc.zombie:
                return True
    return False
