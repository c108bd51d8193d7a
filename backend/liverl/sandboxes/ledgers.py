"""What the ledgers of a run say of its sandboxes, read again only after one of them has changed. Blocking."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from liverl.agents.harbor.owned import FOLDER, known_identity, read_ledgers, start_tick
from liverl.sandboxes.whose import Trials, trials_of, without_worker


class Begun(msgspec.Struct, frozen=True):
    """``run_id``: "" if the run has begun nothing; ``docker`` and ``pods``: its trials there."""

    run_id: str
    docker: Trials
    pods: Trials


class Ledgers:
    """Reads the ledgers for all that look at the sandboxes of one run after the other, also from several threads."""

    def __init__(self) -> None:
        self._known: tuple[object, Begun] | None = None  # the files as they were, and what they said

    def read(self, run_dir: Path) -> Begun:
        """What they say now.

        Raises:
            OSError: a file cannot be read.
        """
        now = (run_dir, _marks(run_dir / FOLDER))
        known = self._known
        if known is None or known[0] != now:
            known = self._known = (now, read(run_dir))
        return known[1]


def read(run_dir: Path) -> Begun:
    """What the ledgers of a run say, from one reading.

    Raises:
        OSError: a file cannot be read.
    """
    run_id = known_identity(run_dir)
    entries = read_ledgers(run_dir) if run_id else ()
    return Begun(run_id, trials_of(entries, run_id), trials_of(entries, run_id, pods=True))


def lost(found: Trials) -> frozenset[str]:
    """The trials whose sandboxes nobody will end any more, as far as this host can tell now."""
    pids = {found.begun[name].pid for name in found.open}
    return without_worker(found, socket.gethostname(), {pid: start_tick(pid) for pid in pids})


def _marks(folder: Path) -> object:
    """What is different once a file in a folder has changed."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries)
    except (FileNotFoundError, NotADirectoryError):
        return None
