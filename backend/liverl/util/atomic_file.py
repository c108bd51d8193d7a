"""Atomic file writes: a reader sees either the old content or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(path: Path, data: bytes, mode: int = 0o644, *, sync: bool = True) -> None:
    """Replace the content of ``path`` by ``data`` through a temporary file and a rename.

    ``sync`` flushes the data to disk before the rename. ``mode`` holds the permission bits of the new file.

    Raises:
        OSError: the directory is not writable or the disk is full; the old file is kept, the
            temporary one removed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(fd, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(fd)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
