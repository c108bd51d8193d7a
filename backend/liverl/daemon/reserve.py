"""Room on the disk of a run for what is written at its end. A disk that fills up is a frequent reason for an end, and
the result that says so has to fit on it: without one the run would look as if its backend had crashed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic

BYTES = 1 << 20  # a result and a report are some KiB, a last snapshot some 100 KiB


def keep_room(run_dir: Path, attempt: int) -> None:
    """Take the room, until ``give_room``. Blocking; a disk without any keeps none."""
    with suppress(OSError):
        # Random bytes: some file systems store zeros in no room at all.
        write_atomic(RunDir(run_dir).reserve(attempt), os.urandom(BYTES), 0o600, sync=False)


def give_room(run_dir: Path, attempt: int) -> None:
    """Free the room for those that write now. Blocking."""
    with suppress(OSError):
        RunDir(run_dir).reserve(attempt).unlink()
