"""The directory of a run's own Ray head: sockets, logs and spilled objects. It is outside of the run directory because
the path of a socket must be short."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def remove_ray_directory(path: Path) -> str | None:
    """Remove the directory at ``path``. Returns why it could not be removed; None if it is gone or never existed.

    A link, or another user's directory, is not removed: the name can be guessed, and /tmp is writable for all.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if not path.is_dir() or path.is_symlink() or status.st_uid != os.geteuid():
        return f"{path} is not a directory of this user"
    problems: list[str] = []

    def note(_function: object, name: str, error: object) -> None:
        problems.append(f"{name}: {error[1] if isinstance(error, tuple) else error}")

    shutil.rmtree(path, onerror=note)
    return problems[0] if problems else None
