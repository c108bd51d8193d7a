"""Permission bits of the files and directories that liverl creates: no other user can write them, whatever the umask
and the default access control list of the directory above.

A process of ours calls ``exclude_others`` first. What it starts for the user gets ``callers_umask``, as from a shell.
"""

from __future__ import annotations

import os
from pathlib import Path

from liverl.util.checked_path import StrPath, open_at, open_checked, open_folder
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


def new_directory(path: Path, mode: int = DIRECTORY, *, inside: StrPath | None = None) -> None:
    """Create one directory, which only its owner can write, as is what is created below it later.

    ``mode``: permission bits, before the umask. ``inside``: a directory above it, in the path's own spelling, below
    which no link is followed.

    Raises:
        FileExistsError: there is one, or a file.
        LinkRefusedError: a link on the way must not be followed, see ``checked_path``.
        OSError: it cannot be created.
    """
    name = os.path.basename(os.path.abspath(path))
    above = open_folder(os.path.dirname(os.path.abspath(path)), inside=inside and os.path.abspath(inside))
    try:
        try:
            os.mkdir(name, mode, dir_fd=above)
        except OSError as error:
            error.filename = os.fspath(path)
            raise
        made = open_at(above, name, os.O_RDONLY | os.O_DIRECTORY, path)
    finally:
        os.close(above)
    try:
        exclude_others_below(made)
    finally:
        os.close(made)


def make_directory(path: Path, mode: int = DIRECTORY, *, inside: StrPath | None = None) -> None:
    """Create a directory and its missing parents, writable by their owner only. Existing ones keep their mode.

    ``mode``: permission bits of the last one, before the umask. ``inside``: as for ``new_directory``.

    Raises:
        LinkRefusedError: a link must not be followed, see ``checked_path``.
        OSError: a directory cannot be created, or a file is in its place.
    """
    try:
        new_directory(path, mode, inside=inside)
    except FileNotFoundError:
        if inside is not None and path.parent == Path(inside):
            raise
        make_directory(path.parent, inside=inside)
        try:
            new_directory(path, mode, inside=inside)  # once: /proc refuses it in these words, too
        except FileExistsError:
            if not _is_directory(path, inside):
                raise
    except FileExistsError:
        if not _is_directory(path, inside):
            raise


def _is_directory(path: Path, inside: StrPath | None) -> bool:
    try:
        os.close(open_checked(path, os.O_PATH | os.O_DIRECTORY, inside=inside))
    except NotADirectoryError:
        return False
    return True
