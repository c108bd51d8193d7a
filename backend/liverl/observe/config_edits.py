"""Tells that a configuration file was edited after its run had been made, since that changes nothing in the run.

A run keeps the plan that it was made with, in every attempt. ``record`` notes what the files held then; it is a digest,
as they may hold secrets. A look costs one ``stat`` a file while nothing changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from liverl.util.atomic_file import write_atomic

FILE = "config_files.json"  # in the run directory: path -> digest
_MOST = 4 << 20  # bytes; what is longer is no configuration


def record(run_dir: Path, files: Iterable[Path]) -> None:
    """Note what ``files`` hold now.

    Raises:
        OSError: one of them cannot be read, or the note cannot be written.
    """
    digests = {os.path.abspath(path): _digest(path) for path in files}
    write_atomic(run_dir / FILE, json.dumps(digests, indent=1).encode() + b"\n")


class ConfigEdits:
    """Looks at the files that were noted for a run. One without a note, or with a damaged one, has none."""

    def __init__(self, run_dir: Path) -> None:
        self._noted = _noted(run_dir / FILE)
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._digests = dict(self._noted)  # as they were seen last

    def poll(self) -> list[str]:
        """What is to be told of files edited since the last call (since the run was made, at the first). One that
        is gone or cannot be read is no edit, and neither is one that holds again what it held at first."""
        return [_words(path) for path in self._noted if self._edited(path)]

    def _edited(self, path: str) -> bool:
        try:
            stat = os.stat(path)
            identity = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if self._seen.get(path) == identity:
                return False
            digest = _digest(Path(path))
        except OSError:
            return False
        self._seen[path] = identity
        before, self._digests[path] = self._digests[path], digest
        return digest not in (before, self._noted[path])


def _words(path: str) -> str:
    return (
        f"{path} was edited after this run was created; the run keeps its plan, also with `up --resume`; "
        f"to use the new version, start another run: liverl-tui up --config {path} --name NEW"
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.sha256(file.read(_MOST)).hexdigest()


def _noted(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: text for name, text in found.items() if isinstance(text, str)}
