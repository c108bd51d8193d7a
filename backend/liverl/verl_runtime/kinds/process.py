"""Runs one program with all that it starts, and keeps the beginning and the end of its output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from liverl.util.deadline import within

HEAD, TAIL = 4 << 20, 1 << 20  # bytes of output that are kept: from its beginning, and from its end
_CHUNK = 1 << 16
_AFTER_S = 1.0  # seconds that output may come after the program's exit: by what it left in the background


async def run_program(
    words: Sequence[str], work: Path, log: Path, env: Mapping[str, str], tag: str, seconds: float
) -> int:
    """Run a program in a session of its own and return its exit status, negative for a signal. Afterwards nothing of it
    lives: neither its process group nor what has ``tag`` (``NAME=value``) in its environment.

    Raises:
        OSError: it cannot be started, or the log cannot be written.
        TimeoutError: it was still running after ``seconds``.
    """
    # A pipe of our own: asyncio waits for the end of its pipes as well, which what runs in the background holds open.
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=work,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    copying = asyncio.ensure_future(_copy(reading, log))
    try:
        status = await within(process.wait(), seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # In a thread: reading the environment of some thousand processes takes longer than a turn may wait.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, _kill_tagged, tag))
        with contextlib.suppress(TimeoutError):
            await within(copying, _AFTER_S)
    return status


async def _copy(reading: int, log: Path) -> None:
    """Write the beginning of the output as it comes, and its end at last; what lies between is left out. ``reading``:
    descriptor of the pipe, which is closed at the end."""
    left, end, held, dropped = HEAD, deque[bytes](), 0, 0
    stream = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(stream)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: protocol, os.fdopen(reading, "rb", 0)
    )
    with contextlib.closing(pipe), log.open("wb") as file:
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


def _kill_tagged(tag: str) -> None:
    """Kill everything with the tag, until nothing new appears."""
    killed: set[int] = set()
    while found := set(_tagged(tag)) - killed:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found


def _tagged(tag: str) -> list[int]:
    wanted = tag.encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if wanted in variables:
            found.append(int(entry.name))
    return found
