"""Writing a configuration that is not ours: a copy of the old one beside it first, then the new one in its place."""

from __future__ import annotations

import os
import time
from pathlib import Path

from liverl.util.atomic_file import write_atomic


def replace_with_backup(path: Path, text: str) -> Path:
    """Give ``path`` this text, with its mode and owner as they are; returns the copy of what it was.

    The copy's name ends in ``.bak-<UTC time>``. A link is followed: what it leads to is replaced.

    Raises:
        OSError: one of the two cannot be written; the file is as it was.
    """
    path = path.resolve()
    before = path.read_bytes()
    about = path.stat()
    backup = _write_new(path, before, about.st_mode & 0o777)
    if (about.st_uid, about.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(backup, about.st_uid, about.st_gid)
    write_atomic(path, text.encode(), about.st_mode & 0o777)
    if path.stat().st_uid != about.st_uid or path.stat().st_gid != about.st_gid:
        os.chown(path, about.st_uid, about.st_gid)
    return backup


def _write_new(path: Path, data: bytes, mode: int) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        backup = path.with_name(f"{path.name}.bak-{stamp}{suffix}")
        try:
            fd = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        except FileExistsError:
            continue
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        return backup
    raise FileExistsError(f"{path.name}.bak-{stamp}: too many backups in the same second")
