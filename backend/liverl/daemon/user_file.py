"""The user's own configuration file of a run: changed on request as the run was, its comments kept."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from liverl.config.edit import ChangedLine, EditRefused, changed_lines, edited
from liverl.observe import config_edits
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic
from liverl.util.checked_path import RESOLVED, resolved
from liverl.util.regular_file import read_regular


class FileChange(NamedTuple):
    """``before`` and ``after``: the text of the file ``path``."""

    path: Path
    before: str
    after: str

    @property
    def lines(self) -> list[ChangedLine]:
        """The lines that differ."""
        return changed_lines(self.before, self.after)


def user_file(run: RunDir) -> Path | None:
    """The file that the user gave last with --config for this run; None if there was none, or if it has gone."""
    own = os.path.abspath(run.config)
    given = [Path(path) for path in config_edits.recorded(run.path) if path != own]
    return given[-1] if given and given[-1].is_file() else None


def proposed(path: Path, values: Mapping[str, str]) -> FileChange | None:
    """The file ``path`` with ``values`` (dotted key -> value as for ``--set``); None if it has them already. Nothing is
    written.

    Raises:
        EditRefused: it cannot be changed without a person; the message says why.
        OSError: it cannot be read.
    """
    text = _read(path)
    after = edited(text, values)
    if after == text:
        return None
    _mode(path)
    return FileChange(path, text, after)


def write(run: RunDir, change: FileChange) -> None:
    """Write the changed file, through a link of the user's to it if it is one. The run no longer reports it as edited,
    unless it was before.

    Raises:
        EditRefused: the file has changed since it was read, or is read-only.
        OSError: it cannot be written; it is unchanged.
    """
    target, mode = _unchanged(change)
    unedited = not config_edits.was_edited(run.path, change.path)
    content = change.after.encode()
    if unedited:
        config_edits.expect(run.path, change.path, content)
    try:
        write_atomic(target, content, mode, inside=RESOLVED)
    except OSError:
        if unedited:
            config_edits.record(run.path, [change.path])
        raise


def write_file(change: FileChange) -> None:
    """Write a changed file that belongs to no run yet, through a link to it if it is one.

    Raises:
        EditRefused: the file has changed since it was read, or is read-only.
        OSError: it cannot be written; it is unchanged.
    """
    target, mode = _unchanged(change)
    write_atomic(target, change.after.encode(), mode, inside=RESOLVED)


def _unchanged(change: FileChange) -> tuple[Path, int]:
    """The file to write and its permissions, after a look whether it is as it was."""
    target = Path(resolved(change.path))
    if _read(change.path) != change.before:
        raise EditRefused("it was changed in the meantime; nothing was written")
    return target, _mode(target)


def _mode(path: Path) -> int:
    """The permissions of a file that may be changed."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o222:  # its folder would still let it be replaced
        raise EditRefused(f"it is read-only (mode {mode:04o})")
    return mode


def _read(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except ValueError:
        raise EditRefused("it is not UTF-8") from None
