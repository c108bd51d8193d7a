"""Replaces a configuration file of the user's, after a backup was written beside it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from liverl.util.atomic_file import create, write_atomic
from liverl.util.checked_path import RESOLVED, resolved
from liverl.util.regular_file import read_regular


def replace_with_backup(path: Path, text: str) -> Path:
    """Write ``text`` to ``path``, keeping mode and owner; returns the path of the backup of the old content.

    The backup's name ends in ``.bak-<UTC time>``. A link of the user's is followed: its target is replaced.

    Raises:
        OSError: the backup or the file cannot be written; the file is unchanged.
    """
    path = Path(resolved(path))
    before = read_regular(path)
    status = path.stat()
    backup = _write_new(path, before, status.st_mode & 0o777)
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(backup, status.st_uid, status.st_gid)
    write_atomic(path, text.encode(), status.st_mode & 0o777, inside=RESOLVED)
    if path.stat().st_uid != status.st_uid or path.stat().st_gid != status.st_gid:
        os.chown(path, status.st_uid, status.st_gid)
    return backup


def _write_new(path: Path, data: bytes, mode: int) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        backup = path.with_name(f"{path.name}.bak-{stamp}{suffix}")
        try:
            file = create(backup, mode, inside=RESOLVED)
        except FileExistsError:
            continue
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return backup
    raise FileExistsError(f"{path.name}.bak-{stamp}: too many backups in the same second; try again")
