"""Permission bits of the files and directories that liverl creates: no other user can write them, whatever the umask
and the default access control list of the directory above.

A process of ours calls ``exclude_others`` first. What it starts for the user gets ``callers_umask``, as from a shell.
"""

from __future__ import annotations

import os
from pathlib import Path

from liverl.util.posix_acl import exclude_others_below

DIRECTORY = 0o755  # before the umask, which may take more away
_WRITE_BY_OTHERS = 0o022

_callers: list[int] = []  # the umask before the first ``exclude_others``


def exclude_others() -> None:
    """Set this process's umask so that no group and no other user can write what it creates."""
    before = os.umask(0o777)
    os.umask(before | _WRITE_BY_OTHERS)
    if not _callers:
        _callers.append(before)


def callers_umask() -> int | None:
    """Return the umask before ``exclude_others``; None if that has not been called."""
    return _callers[0] if _callers else None


def new_directory(path: Path, mode: int = DIRECTORY) -> None:
    """Create one directory, which only its owner can write, as is what is created below it later.

    ``mode``: permission bits, before the umask.

    Raises:
        FileExistsError: there is one, or a file.
        OSError: it cannot be created.
    """
    path.mkdir(mode)
    exclude_others_below(path)


def make_directory(path: Path, mode: int = DIRECTORY) -> None:
    """Create a directory and its missing parents, writable by their owner only. Existing ones keep their mode.

    ``mode``: permission bits of the last one, before the umask.

    Raises:
        OSError: a directory cannot be created, or a file is in its place.
    """
    try:
        new_directory(path, mode)
    except FileNotFoundError:
        make_directory(path.parent)
        make_directory(path, mode)
    except FileExistsError:
        if not path.is_dir():
            raise
