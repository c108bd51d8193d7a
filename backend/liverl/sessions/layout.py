"""What lies beside the journals, for another number of processes: done before one of them starts, under the lock that
they all hold."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from liverl.sessions.finished import finished_files, move_to, name_of
from liverl.sessions.journal import SUFFIX, DamagedJournal, Opened, first_entry
from liverl.sessions.shares import Share
from liverl.util.lock_file import open_lock

logger = logging.getLogger(__name__)

LOCK = "lock"
_LOOK_S = 0.05  # seconds between two looks whether the processes of an earlier service have ended
# What a file system says that has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def lock(folder: Path, pause: Callable[[float], None] = time.sleep) -> int:
    """Wait until no process of an earlier service is left: two must not write one journal. Returns a descriptor, of
    which each process of the service gets a copy: the lock is free when all have ended.

    Raises:
        OSError: the directory or the file cannot be used.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = open_lock(folder / LOCK, 0o600, only_locked=True)
    told = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                logger.warning(
                    "waiting until the processes of an earlier service have ended: %s",
                    _holders(fd) or "not found",
                )
            told = True
            pause(_LOOK_S)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning("%s has no locks: %s", folder, error.strerror)
            return fd
        else:
            return fd


def _holders(fd: int) -> str:
    """The process ids of the others that have the file ``fd`` open, as far as this user may see them."""
    ours, found = os.fstat(fd), []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            theirs = path.stat()
            if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
                found.append(int(path.parts[2]))
    return ", ".join(map(str, sorted({*found} - {os.getpid()})))


def share_out(folder: Path, of: int) -> None:
    """Put the ended sessions into the files of ``of`` processes, if they are in those of another number.

    Raises:
        OSError: a file cannot be written.
    """
    wanted = {name_of(Share(number, of)) for number in range(of)}
    if not {path.name for path in finished_files(folder)} <= wanted:
        logger.info("the ended sessions are shared out anew, to %d processes", of)
        move_to(folder, [Share(number, of) for number in range(of)])


def misplaced(folder: Path) -> list[Path]:
    """The journals that have the name of another session: its process would not look there."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            opened = first_entry(path)
        except (DamagedJournal, OSError):
            continue  # the process that it belongs to by its name says so
        if isinstance(opened, Opened) and f"{opened.id}{SUFFIX}" != path.name:
            found.append(path)
    return found
