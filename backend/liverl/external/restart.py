"""Ending a proxy that we did not start, exactly it, and starting the same command line again."""

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

GRACE = DEFAULT_STOP[
    0
].grace  # seconds after TERM: what is in flight may end, a trial's whole time is not waited for
_KILLED = 5.0  # seconds in which a killed process disappears
_FREE = 10.0  # seconds until nobody listens any more
UP = (
    180.0  # seconds until it answers: LiteLLM needs 6 to 12, with two workers on busy cores a minute and more
)
_LAST = 12  # lines of its log that say why it did not start

Healthy = Callable[[], Awaitable[str | None]]  # None = it answers, else what it did instead


class RestartProblem(Exception):
    """Why it is not restarted, or did not come back; the text says how things are now."""


def refusal(held: PortHolders) -> str | None:
    """Why these processes may not be ended by us; None if nothing speaks against it."""
    for process in held.holders:
        if process.uid != os.geteuid():
            return f"{words(process)}: it belongs to another user; this run does not stop it"
    return None


async def end(held: PortHolders, grace: float = GRACE) -> list[int]:
    """End every holder of exactly these sockets: TERM to the first of them, who end their workers, and KILL to
    whoever is left after ``grace`` seconds. Returns the pids that have been ended, once none of them lives: a server
    closes its socket first and then ends what is in flight.

    Raises:
        RestartProblem: one may not be signalled, or does not end.
    """
    known = {process.member: process for process in held.holders}
    _send(held.roots, signal.SIGTERM)
    left = await _until_gone(held, known, grace)
    give_up = time.monotonic() + _KILLED
    while left:
        if time.monotonic() > give_up:
            raise RestartProblem(f"{'; '.join(words(p) for p in left)}: could not be killed")
        _send(left, signal.SIGKILL)
        left = await _until_gone(held, known, 0.5)
    return sorted(pid for pid, _ in known)


def _send(processes: Iterable[HolderProcess], number: signal.Signals) -> None:
    problems = tree.send_all([process.member for process in processes], number)
    if problems:
        raise RestartProblem("; ".join(problems))


async def end_tree(root: tree.Member, grace: float = GRACE) -> None:
    """End a process that we have started ourselves, and what descends from it."""
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


async def _until_gone(
    held: PortHolders, known: dict[tree.Member, HolderProcess], seconds: float
) -> list[HolderProcess]:
    """Who of ``known`` still lives after at most ``seconds``, parents first. A parent that lost a worker meanwhile may
    have started another: whoever holds the sockets now is added to ``known``."""
    give_up = time.monotonic() + seconds
    while True:
        again = await asyncio.to_thread(port_holders.look_again, held)
        if again is not None:
            known.update((process.member, process) for process in again.holders)
        left = [process for member, process in known.items() if procfs.alive(*member)]
        if not left or time.monotonic() > give_up:
            return sorted(left, key=lambda process: (process.tick, process.pid))
        await asyncio.sleep(0.1)


async def until_free(port: int) -> PortHolders | None:
    """Wait until nobody listens on ``port``; returns who does if somebody takes it at once."""
    give_up = time.monotonic() + _FREE
    while time.monotonic() < give_up and list(procfs.listeners(port)):  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.1)
    return await asyncio.to_thread(port_holders.look, port)


def write_pid(paths: Iterable[Path], pid: int) -> list[Path]:
    """Write ``pid`` into those pid files that exist; returns them.

    Raises:
        OSError: one cannot be written.
    """
    written = [path for path in dict.fromkeys(paths) if path.is_file() and not path.is_symlink()]
    for path in written:
        write_atomic(path, f"{pid}\n".encode(), path.stat().st_mode & 0o777)
    return written


async def until_up(member: tree.Member, healthy: Healthy, log: Path, start: int, limit: float = UP) -> None:
    """Wait until it answers; ``start``: offset in its log at which its output begins.

    Raises:
        RestartProblem: it ended, or did not answer in time; quotes the last lines of its log.
    """
    give_up = time.monotonic() + limit
    while True:
        problem = await healthy()
        alive = procfs.alive(*member)
        if alive and problem is None:
            return
        if not alive or time.monotonic() > give_up:
            state = f"has not responded within {limit:g} s ({problem})" if alive else "has exited"
            said = await asyncio.to_thread(_said, log, start)
            raise RestartProblem(f"the new proxy, pid {member[0]}, {state}; last lines of {log}:\n{said}")
        await asyncio.sleep(0.3)


def _said(log: Path, start: int) -> str:
    """The last lines that have come into ``log`` since it was ``start`` bytes long."""
    try:
        grown = log.stat().st_size - start
        lines = last_lines(log, _LAST, grown) if grown > 0 else []
    except OSError as error:
        return f"(cannot read it: {os.strerror(error.errno or 0)})"
    return "\n".join(redact.value(line) for line in lines) or "(nothing)"
