"""The directory of a run's own Ray head: sockets, logs and spilled objects. It is outside of the run directory because
the path of a socket must be short."""

from __future__ import annotations

import os
from pathlib import Path

from liverl.util.remove_tree import remove_tree


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
    left = remove_tree(path)
    return f"{left[0].filename}: {left[0].strerror or left[0]}" if left else None
