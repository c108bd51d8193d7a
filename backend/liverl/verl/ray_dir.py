"""The directory of a run's own Ray head: sockets, logs and spilled objects, outside of the run directory because its
name must be short."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def remove_ray_directory(path: Path) -> str | None:
    """Remove it; why not, in words, where that cannot be done. What is not there needs no removal.

    A link, or somebody else's directory, is left alone: the name can be guessed, and /tmp is everybody's.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not path.is_dir() or path.is_symlink() or found.st_uid != os.geteuid():
        return f"{path} is not a directory of this user"
    problems: list[str] = []

    def note(_function: object, name: str, error: object) -> None:
        problems.append(f"{name}: {error[1] if isinstance(error, tuple) else error}")

    shutil.rmtree(path, onerror=note)
    return problems[0] if problems else None
