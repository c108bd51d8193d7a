"""Lists the files of a trial besides its trajectory: those of verifier and agent, its sandbox."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from liverl.util.regular_file import open_binary

MOST = 200  # maximum files listed
_FOLDERS = 500  # maximum directories searched
HEAD_LINES = 200
_HEAD_BYTES = 256 << 10
_FIRST = ("verifier", "agent")  # other directories follow


class TrialFile(msgspec.Struct, frozen=True):
    """A file of a trial."""

    name: str  # relative to the trial's directory
    size: int  # bytes
    modified: int = 0  # ns


def list_files(trial_dir: Path, leave_out: Sequence[str | None] = ()) -> tuple[TrialFile, ...]:
    """Return the regular files below a trial's directory, at most ``MOST``: the verifier's, the agent's, then
    others.

    Links are not followed, as a sandbox may link anywhere.
    """
    collected: list[TrialFile] = []
    for count, (folder, folders, names) in enumerate(os.walk(trial_dir)):
        if count == _FOLDERS:
            break
        folders.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
        for name in sorted(names):
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue  # removed since it was listed
            shown = os.path.relpath(path, trial_dir)
            if stat.S_ISREG(status.st_mode) and shown not in leave_out:
                collected.append(TrialFile(shown, status.st_size, status.st_mtime_ns))
            if len(collected) == MOST:
                return tuple(collected)
    return tuple(collected)


def head_of_file(trial_dir: Path, name: str, lines: int = HEAD_LINES) -> str:
    """Return the first ``lines`` lines of a file of the trial, or a note if it is not text.

    Raises:
        OSError: it was removed or is not a regular file.
    """
    with open_binary(trial_dir / name, inside=trial_dir.parent) as file:
        status = os.fstat(file.fileno())
        data = file.read(_HEAD_BYTES)
    if b"\0" in data:
        return "[not a text file]"
    rows = data.decode("utf-8", "replace").split("\n")
    text = "\n".join(rows[:lines])
    if len(rows) > lines or status.st_size > len(data):
        text += f"\n… the first {min(lines, len(rows))} lines of {status.st_size} bytes"
    return text
