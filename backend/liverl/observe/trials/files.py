"""What a trial left besides its trajectory: its verifier's and its agent's files, its sandbox."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

MOST = 200  # files that are listed
_FOLDERS = 500  # that are looked into
HEAD_LINES = 200
_HEAD_BYTES = 256 << 10
_FIRST = ("verifier", "agent")  # the rest follows


class TrialFile(msgspec.Struct, frozen=True):
    name: str  # relative to the trial's directory
    size: int  # bytes


def list_files(trial_dir: Path, leave_out: Sequence[str | None] = ()) -> tuple[TrialFile, ...]:
    """The regular files below a trial's directory, at most ``MOST``: the verifier's, the agent's, the others.
    Links are not followed: a sandbox may point anywhere."""
    found: list[TrialFile] = []
    for count, (folder, folders, names) in enumerate(os.walk(trial_dir)):
        if count == _FOLDERS:
            break
        folders.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
        for name in sorted(names):
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue  # gone since it was listed
            shown = os.path.relpath(path, trial_dir)
            if stat.S_ISREG(status.st_mode) and shown not in leave_out:
                found.append(TrialFile(shown, status.st_size))
            if len(found) == MOST:
                return tuple(found)
    return tuple(found)


def head_of_file(trial_dir: Path, name: str, lines: int = HEAD_LINES) -> str:
    """The first ``lines`` lines of one of them; says so where it is no text.

    Raises:
        OSError: it is gone, or no regular file.
    """
    fd = os.open(trial_dir / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{name} is not a regular file")
        data = file.read(_HEAD_BYTES)
    if b"\0" in data:
        return "[not a text file]"
    rows = data.decode("utf-8", "replace").split("\n")
    text = "\n".join(rows[:lines])
    if len(rows) > lines or status.st_size > len(data):
        text += f"\n… the first {min(lines, len(rows))} lines of {status.st_size} bytes"
    return text
