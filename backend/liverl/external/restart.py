"""Stops a proxy that we did not start, and waits until its replacement responds."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from liverl.external import port_holders
from liverl.external.litellm import words
from liverl.external.port_holders import HolderProcess, PortHolders
from liverl.logs.last_lines import last_lines
from liverl.plan.spec import DEFAULT_STOP
from liverl.procs import procfs, tree
from liverl.util import redact
from liverl.util.atomic_file import write_atomic

# Seconds between TERM and KILL: requests in flight may finish, but a trial may take longer.
GRACE = DEFAULT_STOP[0].grace
_KILLED = 5.0  # seconds in which a killed process disappears
_FREE = 10.0  # seconds until no process listens any more
# Seconds until the proxy responds: LiteLLM needs 6 to 12, with two workers on busy cores a minute and more.
UP = 180.0
_LAST = 12  # lines of the new proxy's log that an error quotes

Healthy = Callable[[], Awaitable[str | None]]  # None = the proxy responds, else what failed


class RestartProblem(Exception):
    """The proxy was not restarted, or its replacement did not start; the text says why, and what state it is in now."""


def refusal(held: PortHolders) -> str | None:
    """Why this run may not stop these processes; None if it may."""
    for process in held.holders:
        if process.uid != os.geteuid():
            return f"{words(process)} belongs to another user, so this run cannot stop it; restart it as that user"
    return None


async def end(held: PortHolders, grace: float = GRACE) -> list[int]:
    """Stop every holder of exactly these sockets: TERM to the parents, which stop their workers, and KILL to all that
    live after ``grace`` seconds. Returns the stopped pids once none of them lives: a server closes its socket first
    and then finishes the requests in flight.

    Raises:
        RestartProblem: a process may not be signalled, or does not exit.
    """
    processes = {process.member: process for process in held.holders}
    _send(held.roots, signal.SIGTERM)
    living = await _until_exited(held, processes, grace)
    give_up = time.monotonic() + _KILLED
    while living:
        if time.monotonic() > give_up:
            raise RestartProblem(f"{'; '.join(words(p) for p in living)} could not be killed")
        _send(living, signal.SIGKILL)
        living = await _until_exited(held, processes, 0.5)
    return sorted(pid for pid, _ in processes)


def _send(processes: Iterable[HolderProcess], number: signal.Signals) -> None:
    problems = tree.send_all([process.member for process in processes], number)
    if problems:
        raise RestartProblem("; ".join(problems))


async def end_tree(root: tree.Member, grace: float = GRACE) -> None:
    """Stop a process that we have started ourselves, and all that descend from it: TERM, then KILL after ``grace``
    seconds. Returns at once if the process has exited."""
    table = await asyncio.to_thread(procfs.scan)
    if root[0] not in table or table[root[0]].tick != root[1]:
        return
    pids = {root[0]}
    for proc in sorted(table.values(), key=lambda p: p.tick):  # parents before their children
        if proc.ppid in pids:
            pids.add(proc.pid)
    members = [(pid, table[pid].tick) for pid in pids]
    tree.send(root, signal.SIGTERM)
    give_up = time.monotonic() + grace
    while time.monotonic() < give_up and any(procfs.alive(*m) for m in members):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    tree.send_all(members, signal.SIGKILL)


async def _until_exited(
    held: PortHolders, processes: dict[tree.Member, HolderProcess], seconds: float
) -> list[HolderProcess]:
    """The ``processes`` that still live after at most ``seconds``, parents first. A parent that lost a worker may have
    started another, so all holders of the sockets are added to ``processes``."""
    give_up = time.monotonic() + seconds
    while True:
        again = await asyncio.to_thread(port_holders.look_again, held)
        if again is not None:
            processes.update((process.member, process) for process in again.holders)
        living = [process for member, process in processes.items() if procfs.alive(*member)]
        if not living or time.monotonic() > give_up:
            return sorted(living, key=lambda process: (process.tick, process.pid))
        await asyncio.sleep(0.1)


async def until_free(port: int) -> PortHolders | None:
    """Wait up to 10 s until no process listens on ``port``; returns the holders if one still or again does."""
    give_up = time.monotonic() + _FREE
    while time.monotonic() < give_up and list(procfs.listeners(port)):  # noqa: ASYNC110 - the kernel sends no event
        await asyncio.sleep(0.1)
    return await asyncio.to_thread(port_holders.look, port)


def write_pid(paths: Iterable[Path], pid: int) -> list[Path]:
    """Write ``pid`` into those of ``paths`` that exist as regular files; returns these.

    Raises:
        OSError: a file cannot be written.
    """
    written = [path for path in dict.fromkeys(paths) if path.is_file() and not path.is_symlink()]
    for path in written:
        write_atomic(path, f"{pid}\n".encode(), path.stat().st_mode & 0o777)
    return written


async def until_up(member: tree.Member, healthy: Healthy, log: Path, start: int, limit: float = UP) -> None:
    """Wait until the new proxy is healthy. ``start``: byte in ``log`` at which its output begins; ``limit``: seconds.

    Raises:
        RestartProblem: it exited, or did not respond in time; quotes the last lines of its log.
    """
    give_up = time.monotonic() + limit
    while True:
        problem = await healthy()
        alive = procfs.alive(*member)
        if alive and problem is None:
            return
        if not alive or time.monotonic() > give_up:
            state = f"has not responded within {limit:g} s ({problem})" if alive else "has exited"
            output = await asyncio.to_thread(_output, log, start)
            raise RestartProblem(f"the new proxy, pid {member[0]}, {state}; last lines of {log}:\n{output}")
        await asyncio.sleep(0.3)


def _output(log: Path, start: int) -> str:
    """The last lines of ``log`` after byte ``start``."""
    try:
        grown = log.stat().st_size - start
        lines = last_lines(log, _LAST, grown) if grown > 0 else []
    except OSError as error:
        return f"(cannot read the log: {os.strerror(error.errno or 0)})"
    return "\n".join(redact.value(line) for line in lines) or "(no new lines)"
