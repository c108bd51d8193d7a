"""Rules for processes that stand still: stopped by a signal or a debugger, or in a wait that does not end. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from liverl.diagnose.tracker import GOING, SHOWN, Resolved, Window
from liverl.model import Evidence, ServiceStatus, Snapshot, StalledProcess, Symptom

Severity = Literal["warning", "critical"]
BLOCKED_S = 60.0  # seconds in a wait without progress: even a busy network file system is quicker
_CRITICAL = ("trainer", "ray")  # beside what carries the trials: kinds for which everything else waits
KEEPER = "keeper"


def waits_for_stalled(now: Snapshot) -> bool:
    """Whether a process of a service stands still, so that the rest of the run may wait for it."""
    return any(
        process.explains_waiting(now.at)
        for service in now.services
        if not now.spares(service)
        for process in service.stalled
    )


def process_stopped(window: Window) -> Iterator[Symptom | Resolved]:
    """A process of a service, or the keeper, is stopped by a signal or by a debugger.

    - the title says ``by a debugger`` -> continue the process in the debugger, or end the debugger: ``grep TracerPid
      /proc/PID/status`` prints its pid
    - the title says ``by a signal`` -> ``kill -CONT PID``, which the alert shows; ``Ctrl-Z`` in a terminal, a batch
      system that suspends jobs, or ``kill -STOP`` stop processes
    """
    now = window.now
    if now.state not in (*GOING, "stopping"):
        return
    for service in now.services:
        if stopped := [p for p in service.stalled if p.state in ("T", "t")]:
            yield _stopped(now, service.name, stopped, _severity(now, service), "")
    keeper = now.backend.keeper_stalled
    if keeper is not None and keeper.state in ("T", "t"):
        effect = "; until it is continued no service can be started, and no exit is reported"
        yield _stopped(now, KEEPER, [keeper], "critical", effect)


def process_blocked(window: Window) -> Iterator[Symptom | Resolved]:
    """A process of a service, or the keeper, has waited in the kernel for ``BLOCKED_S`` without CPU time or I/O."""
    now = window.now
    if now.state not in (*GOING, "stopping"):
        return
    for service in now.services:
        if blocked := _blocked(now, service.stalled):
            yield _waits(now, service.name, blocked, _severity(now, service))
    keeper = now.backend.keeper_stalled
    if keeper is not None and (blocked := _blocked(now, (keeper,))):
        yield _waits(now, KEEPER, blocked, "critical")


def _blocked(now: Snapshot, stalled: tuple[StalledProcess, ...]) -> list[StalledProcess]:
    return [p for p in stalled if p.state == "D" and now.at - p.since >= BLOCKED_S]


def _severity(now: Snapshot, service: ServiceStatus) -> Severity:
    return "critical" if service.kind in (*_CRITICAL, now.carrier) else "warning"


def _pid(now: Snapshot, process: StalledProcess) -> str:
    """Its pid, and the replica that it is: those of verl are processes of Ray."""
    replica = next((r.name for r in now.replicas.items if r.pid == process.pid), None)
    return str(process.pid) if replica is None else f"{process.pid} ({replica})"


def _pids(now: Snapshot, processes: list[StalledProcess]) -> str:
    shown = ", ".join(_pid(now, p) for p in processes[:SHOWN])
    more = f" and {len(processes) - SHOWN} more" if len(processes) > SHOWN else ""
    return f"pid {shown}{more}" if len(processes) == 1 else f"pids {shown}{more}"


def _stopped(
    now: Snapshot, name: str, stopped: list[StalledProcess], severity: Severity, effect: str
) -> Symptom:
    traced = all(p.state == "t" for p in stopped)
    is_ = "is" if len(stopped) == 1 else "are"
    by = "a debugger" if traced else "a signal"
    states = ", ".join(sorted({p.state for p in stopped}))
    how = "a debugger such as gdb" if traced else "a signal such as SIGSTOP or Ctrl-Z"
    pids = " ".join(str(p.pid) for p in stopped)
    return Symptom(
        id=f"process_stopped:{name}",
        severity=severity,
        title=f"{_pids(now, stopped)} of {name} {is_} stopped by {by}",
        cause=f"{_pids(now, stopped)} of {name} {is_} stopped (state {states}), by {how}{effect}",
        fix=f"continue the process in the debugger, or end the debugger: {_tracer(stopped)}"
        if traced
        else f"kill -CONT {pids}",
        evidence=tuple(Evidence(f"pid {_pid(now, p)}: state {p.state}") for p in stopped[:SHOWN]),
        since=min(p.since for p in stopped),
    )


def _tracer(stopped: list[StalledProcess]) -> str:
    return f"its pid is printed by: grep TracerPid /proc/{stopped[0].pid}/status"


def _waits(now: Snapshot, name: str, blocked: list[StalledProcess], severity: Severity) -> Symptom:
    has = "has" if len(blocked) == 1 else "have"
    since = min(p.since for p in blocked)
    return Symptom(
        id=f"process_blocked:{name}",
        severity=severity,
        title=f"{_pids(now, blocked)} of {name} {has} stopped making progress",
        cause=f"{_pids(now, blocked)} of {name} {has} been in an uninterruptible wait (state D) for "
        f"{now.at - since:.0f} s without CPU time or I/O: a disk, a network file system or a driver does not respond",
        fix=f"cat /proc/{blocked[0].pid}/stack (as root) and dmesg show what the kernel waits for; a process in state "
        "D cannot be killed before that responds",
        evidence=tuple(
            Evidence(f"pid {_pid(now, p)}: state D for {now.at - p.since:.0f} s", value=now.at - p.since)
            for p in blocked[:SHOWN]
        ),
        since=since,
    )
