"""Detects that a configuration file was edited after its run was created, which has no effect on the run.

A run keeps its plan unless ``up --resume`` is given changes. ``record`` stores digests of the files, not
their content, as they may hold secrets. A poll costs one ``stat`` per file while nothing changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from liverl.rundir.commands import resume_command
from liverl.util.atomic_file import write_atomic
from liverl.util.decode import decode_loose_json
from liverl.util.regular_file import open_binary, read_regular

FILE = "config_files.json"  # in the run directory: path -> digest
_MOST = 4 << 20  # bytes; longer files are not configuration files


def record(run_dir: Path, files: Iterable[Path]) -> None:
    """Store the digests of ``files`` in the run directory; those of other files, stored earlier, stay.

    Raises:
        OSError: a file cannot be read, or the digests cannot be written.
    """
    _note(run_dir, {os.path.abspath(path): _digest(path) for path in files})


def expect(run_dir: Path, path: Path, content: bytes) -> None:
    """Store the digest that the file ``path`` is about to have, so that nobody takes the change for an edit.

    Raises:
        OSError: the digests cannot be written.
    """
    _note(run_dir, {os.path.abspath(path): hashlib.sha256(content[:_MOST]).hexdigest()})


def _note(run_dir: Path, new: dict[str, str]) -> None:
    digests = {path: text for path, text in _recorded(run_dir / FILE).items() if path not in new} | new
    write_atomic(run_dir / FILE, json.dumps(digests, indent=1).encode() + b"\n")


def recorded(run_dir: Path) -> list[str]:
    """The absolute paths of the files that are recorded for the run, those recorded last at the end."""
    return list(_recorded(run_dir / FILE))


class ConfigEdits:
    """Checks the files recorded for a run. Without a valid record there are none."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._recorded = _recorded(run_dir / FILE)
        self._identities: dict[str, tuple[int, int, int]] = {}  # mtime in ns, size, inode
        self._digests = dict(self._recorded)  # as of the last poll

    def poll(self) -> list[str]:
        """Return messages about files edited since the last call (in the first: since the run was created).

        Missing and unreadable files are not edits, nor are files restored to their original content.
        """
        return [_words(self._run_dir, path) for path in self._recorded if self._edited(path)]

    def _edited(self, path: str) -> bool:
        try:
            stat = os.stat(path)
            identity = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if self._identities.get(path) == identity:
                return False
            digest = _digest(Path(path))
        except OSError:
            return False
        self._identities[path] = identity
        before, self._digests[path] = self._digests[path], digest
        if digest == before:
            return False
        # Who changes a file on the user's behalf, as a fix does, records it anew.
        self._recorded[path] = _recorded(self._run_dir / FILE).get(path, self._recorded[path])
        return digest != self._recorded[path]


def was_edited(run_dir: Path, path: Path) -> bool:
    """Whether a file that is recorded for the run differs from its record; one that cannot be read does not."""
    try:
        return _recorded(run_dir / FILE).get(os.path.abspath(path), digest := _digest(path)) != digest
    except OSError:
        return False


def _words(run_dir: Path, path: str) -> str:
    own = Path(path) == Path(os.path.abspath(run_dir / "config.yaml"))
    return (
        f"{path} was edited after this run was created; the run keeps its plan. To use the new version, "
        + (
            f"start another run: liverl-tui up --config {shlex.quote(path)} --name NEW"
            if own
            else f"stop the run, then: {resume_command(run_dir)} --config {shlex.quote(path)}"
        )
    )


def _digest(path: Path) -> str:
    with open_binary(path) as file:
        return hashlib.sha256(file.read(_MOST)).hexdigest()


def _recorded(path: Path) -> dict[str, str]:
    try:
        digests = decode_loose_json(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(digests, dict):
        return {}
    return {name: text for name, text in digests.items() if isinstance(text, str)}
