"""The lock under which an environment is made, so that two runs that start at once do it once."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

from liverl.config.trusted_roots import ROOTS_VARIABLE, trusted_roots
from liverl.environments.errors import BuildError
from liverl.environments.uv import Progress
from liverl.rundir.path_facts import facts_of, present_caller
from liverl.rundir.trust import assess
from liverl.util.append import write_all
from liverl.util.decode import decode_loose_json
from liverl.util.lock_file import open_lock
from liverl.util.modes import make_directory

_LOCK_POLL = 0.2  # seconds


@contextlib.asynccontextmanager
async def locked(name: str, folder: Path, progress: Progress, doing: str) -> AsyncIterator[None]:
    """Hold the lock beside ``folder``, over all processes of the user that make the environment ``name`` there. While
    another one holds it, ``progress`` says which, and that it is ``doing``.

    Raises:
        BuildError: another user could change what is there.
        OSError: the lock cannot be made.
    """
    make_directory(folder.parent)
    path = folder.with_name(f".{folder.name}.lock")
    _require_own(name, folder.parent, path)
    fd = open_lock(path)
    try:
        announced = ""
        while not _try_lock(fd):
            holder = _holder(fd)
            if holder != announced:
                announced = holder
                progress(f"waiting for {holder}, which {doing}", None)
            await asyncio.sleep(_LOCK_POLL)
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": round(time.time(), 1)}
        os.ftruncate(fd, 0)
        write_all(fd, json.dumps(note).encode())
        yield
    finally:
        os.close(fd)  # which unlocks; the file stays, since removing it would let two builders in


def _require_own(name: str, folder: Path, lock: Path) -> None:
    """Check that nobody but the user and root could put files into ``folder``, which are executed later.

    Raises:
        BuildError: another user could.
    """
    try:
        verdict = assess(facts_of([folder, lock]), present_caller(), trusted_roots(os.environ))
    except ValueError as error:
        raise BuildError(f"environment {name!r}: {error}") from None
    if verdict.refused:
        found = verdict.refused[0]
        cure = f"; to mend it: {found.cure}" if found.cure else ""
        raise BuildError(
            f"environment {name!r} is not built in {folder}, since another user could change it: {found.path}: "
            f"{found.problem}{cure}. Set LIVERL_CACHE_DIR to a folder of yours, or trust this one: "
            f"{ROOTS_VARIABLE}=[DIR]"
        )


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(fd: int) -> str:
    try:
        note = decode_loose_json(os.pread(fd, 4096, 0))
        return f"process {int(note['pid'])} on {note['host']}"
    except (ValueError, KeyError, TypeError, OverflowError):
        return "another process"
