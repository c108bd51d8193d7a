"""One delivery: starts ``sender.py``, and reads what became of it, also of one that an earlier backend has begun."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from liverl.notify import sender
from liverl.notify.message import Message
from liverl.notify.target import Unusable, request
from liverl.plan.spec import NotifyTarget
from liverl.procs import procfs
from liverl.util import redact
from liverl.util.atomic_file import create
from liverl.util.decode import decode_json
from liverl.util.descriptors import readable
from liverl.util.regular_file import read_regular
from liverl.util.visible import visible

# Seconds that the sender has beside its time-out: for its start on a busy host, and to kill what a program has left.
BESIDE_S = sender.KILLED_S + 7.0
_LOOK_S = 0.1  # between two looks at a delivery of an earlier backend
_LARGEST = 64 << 10
_UNKNOWN = "the delivering process ended without a result"


class Outcome(NamedTuple):
    """``why``: why it was not delivered, without keys or addresses. ``pause``: seconds that the receiver asks for."""

    ok: bool
    why: str = ""
    pause: float | None = None


class _Claim(msgspec.Struct):
    pid: int
    tick: int


class _Told(msgspec.Struct):
    ok: bool
    why: str = ""
    pause: float | None = None


async def deliver(
    target: NotifyTarget, message: Message, env: Mapping[str, str], timeout: float, claim: Path
) -> Outcome:
    """Deliver a message once, within ``timeout`` seconds. ``claim``: a path for the file of this delivery, in a
    directory that exists."""
    try:
        data, variables = await asyncio.to_thread(request, target, message, env, timeout, claim)
    except Unusable as error:
        return Outcome(False, str(error))
    try:
        line = await asyncio.to_thread(_send, data, variables, timeout + BESIDE_S)
    except OSError as error:
        return Outcome(False, f"cannot start a process for it: {error.strerror}")
    return _decoded(line)


def _send(data: bytes, variables: Mapping[str, str], seconds: float) -> bytes:
    """Start a sender, and return the line that it prints, within ``seconds``; empty without one. It may go on: what a
    program has left in the background still has time.

    Raises:
        OSError: it cannot be started.
    """
    with os.fdopen(os.memfd_create("notification"), "w+b") as file:  # a whole request, whatever becomes of us
        file.write(data)
        file.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", sender.__file__],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(variables),
            cwd="/",
            start_new_session=True,
        )
    threading.Thread(target=process.wait, name="notification", daemon=True).start()  # reaped whenever it ends
    assert process.stdout is not None
    with process.stdout as printed:
        ready = readable([printed.fileno()], seconds)
        if not ready:
            process.kill()
        return printed.readline(_LARGEST) if ready else b""


async def settle(claim: Path, timeout: float) -> Outcome | None:
    """What became of a delivery that an earlier backend has begun; waits until it is over. None: it was never made,
    and cannot begin any more."""
    give_up = asyncio.get_running_loop().time() + timeout + BESIDE_S
    while True:
        if await asyncio.to_thread(_void, claim):
            return None
        if (found := await asyncio.to_thread(_outcome, claim)) is not None:
            return found
        holder = await asyncio.to_thread(_holder, claim)
        if holder is None or not procfs.alive(holder.pid, holder.tick):
            return await asyncio.to_thread(_outcome, claim)  # it may have ended just now
        if asyncio.get_running_loop().time() > give_up:
            return Outcome(False, _UNKNOWN)
        await asyncio.sleep(_LOOK_S)


def _void(claim: Path) -> bool:
    """Claim a delivery that nobody has claimed, so that a sender which only starts cannot make it any more."""
    try:
        create(claim, 0o600).close()
        return True
    except FileExistsError:
        return False
    except OSError:
        return True  # the directory cannot be written: neither can the sender have claimed it


def _lines(claim: Path) -> list[bytes]:
    try:
        return read_regular(claim, _LARGEST).split(b"\n")[:-1]
    except OSError:
        return []


def _holder(claim: Path) -> _Claim | None:
    lines = _lines(claim)
    try:
        return decode_json(lines[0], type=_Claim) if lines else None
    except (ValueError, RecursionError):
        return None


def _outcome(claim: Path) -> Outcome | None:
    """The outcome in a claim; None while there is none."""
    lines = _lines(claim)
    return _decoded(lines[1]) if len(lines) > 1 else None


def _decoded(line: bytes) -> Outcome:
    try:
        told = decode_json(line, type=_Told)
    except (ValueError, RecursionError):
        return Outcome(False, _UNKNOWN)
    return Outcome(told.ok, visible(redact.value(told.why)), told.pause)
