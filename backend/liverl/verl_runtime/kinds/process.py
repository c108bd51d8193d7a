"""Runs one program with all that it starts, and keeps the beginning and the end of its output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from liverl.util.checked_path import RESOLVED
from liverl.util.deadline import not_held_up, within
from liverl.util.kernel_file import read_kernel
from liverl.util.regular_file import open_append

HEAD, TAIL = 4 << 20, 1 << 20  # bytes of output that are kept: from its beginning, and from its end
_CHUNK = 1 << 16
_AFTER_S = 1.0  # seconds that output may come after the program's exit: by what it left in the background


class NotStarted(Exception):
    """The program cannot be started; the text says why."""


class NotLogged(Exception):
    """The program's output cannot be written to its log; the text says why."""


async def run_program(
    words: Sequence[str],
    work: Path,
    log: Path,
    env: Mapping[str, str],
    tag: str,
    seconds: float,
    held_up: Callable[[], float] = not_held_up,
) -> int:
    """Run a program in a session of its own and return its exit status, negative for a signal. Afterwards nothing of it
    lives: what is in its session, what has ``tag`` (``NAME=value``) in its environment, and the children of both.
    Out of reach is only an orphan that has both left the session and removed the tag. ``held_up``: see ``within``.

    Raises:
        NotStarted: it cannot be started.
        NotLogged: the log cannot be written, and so the program was killed.
        TimeoutError: it was still running after ``seconds``.
    """
    # A pipe of our own: ``Process.wait`` would also wait until all that holds one of asyncio's has ended.
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as output:
        stream = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb", buffering=0)
        )
        copying = asyncio.ensure_future(_copy(stream, log))
        process, leader = None, None
        try:
            process = await _start(words, work, env, output)
            leader = Leader(process.pid, _start_of(process.pid))
            status = await within(_end_of(process, copying), seconds, held_up)
        finally:
            output.close()  # otherwise the output would never end
            # In a task of its own: another cancellation does not end it.
            await asyncio.shield(asyncio.ensure_future(_end(process, leader, tag, copying, pipe)))
        if not copying.cancelled():  # it is if somebody still held the output
            copying.result()
        return status


async def _end_of(process: asyncio.subprocess.Process, copying: asyncio.Future[None]) -> int:
    """The exit status of a program.

    Raises:
        NotLogged: its output could not be written before it has ended.
    """
    ending = asyncio.ensure_future(process.wait())
    either: set[asyncio.Future[Any]] = {ending, copying}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            copying.result()
        return await ending
    finally:
        ending.cancel()


async def _start(
    words: Sequence[str], work: Path, env: Mapping[str, str], output: IO[bytes]
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            cwd=work,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        raise NotStarted(error.strerror or str(error)) from error


async def _end(
    process: asyncio.subprocess.Process | None,
    leader: Leader | None,
    tag: str,
    copying: asyncio.Future[None],
    pipe: asyncio.ReadTransport,
) -> None:
    """Kill what lives of a program, and wait for the last of its output."""
    try:
        # In a thread: reading the environment of some thousand processes takes longer than a turn may wait.
        await asyncio.get_running_loop().run_in_executor(None, _kill, leader, tag)
        with contextlib.suppress(TimeoutError):
            if process is not None:
                await within(process.wait(), _AFTER_S)
            with contextlib.suppress(NotLogged):
                await within(copying, _AFTER_S)
    finally:
        pipe.close()


async def _copy(stream: asyncio.StreamReader, log: Path) -> None:
    """Write the beginning of the output as it comes, and its end at last; what lies between is left out.

    Raises:
        NotLogged: it cannot be written.
    """
    try:
        with os.fdopen(open_append(log, empty=True, inside=RESOLVED), "wb") as file:
            await _copy_to(file, stream)
    except OSError as error:
        raise NotLogged(error.strerror or str(error)) from error


async def _copy_to(file: IO[bytes], stream: asyncio.StreamReader) -> None:
    left, end, held, dropped = HEAD, deque[bytes](), 0, 0
    try:
        while chunk := await stream.read(_CHUNK):
            file.write(chunk[:left])
            file.flush()
            rest = chunk[left:]
            left = max(0, left - len(chunk))
            if rest:
                end.append(rest)
                held += len(rest)
            while held > TAIL and len(end) > 1:
                gone = len(end.popleft())
                held, dropped = held - gone, dropped + gone
    finally:
        if dropped:
            file.write(f"\n[{dropped} bytes of output left out]\n".encode())
        file.writelines(end)


class Leader(NamedTuple):
    """A process that has begun a session. Its pid is another's once it has ended with its session. ``start``: see
    ``_Process``; None: it had ended before that could be read."""

    pid: int
    start: int | None


class _Process(NamedTuple):
    """``parent``, ``session``: pids; ``start``: clock ticks from the machine's start to the process's."""

    parent: int
    session: int
    start: int


def _kill(leader: Leader | None, tag: str) -> None:
    """Kill what belongs to a program, until nothing new appears. ``leader``: of its session; None: it has none."""
    killed: set[tuple[int, int]] = set()
    sessions = {} if leader is None else {leader.pid: leader.start}
    while found := _members(sessions, tag.encode()) - killed:
        for pid, _ in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found


def _members(sessions: dict[int, int | None], tag: bytes) -> set[tuple[int, int]]:
    """The living processes, each with its start, that are in one of ``sessions`` (pid of the leader -> its start), have
    the tag, or descend from such a one. The sessions that these have begun are added to ``sessions``."""
    table = dict(_processes())
    for pid, start in tuple(sessions.items()):
        if pid in table and table[pid].start != start:
            del sessions[
                pid
            ]  # a stranger got the pid: while the session has members, the system gives it to nobody
    members = {pid for pid in table if tag in _environment(pid)}
    while True:
        sessions.update({pid: table[pid].start for pid in members if table[pid].session == pid})
        more = {pid for pid, each in table.items() if each.parent in members or each.session in sessions}
        if more <= members:
            return {(pid, table[pid].start) for pid in members}
        members |= more


def _start_of(pid: int) -> int | None:
    """When a process has started, see ``_Process``; None if it has ended."""
    try:
        return int(read_kernel(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _processes() -> Iterator[tuple[int, _Process]]:
    """Each process that is no zombie, by its pid."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = read_kernel(f"/proc/{entry.name}/stat").rpartition(b")")[2].split()
            state, parent, session, start = fields[0], fields[1], fields[3], fields[19]
        except (OSError, IndexError):
            continue  # it has ended
        if state not in b"ZX":
            yield int(entry.name), _Process(int(parent), int(session), int(start))


def _environment(pid: int) -> list[bytes]:
    try:
        return read_kernel(f"/proc/{pid}/environ").split(b"\0")
    except OSError:  # it has ended, or is another user's
        return []
