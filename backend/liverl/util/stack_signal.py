"""Lets the backend ask a process of ours for its stacks where py-spy is absent or refused: ``faulthandler`` on SIGUSR2.

``register`` creates a file named ``pid.start_tick`` in the folder that ``LIVERL_STACKS`` names. That file is the proof
that this very process writes its stacks there on the signal: any other process would be ended by it.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal
from pathlib import Path

from liverl.util.kernel_file import read_kernel
from liverl.util.modes import make_directory
from liverl.util.regular_file import open_append

VARIABLE = "LIVERL_STACKS"
ON_SIGNAL = ".on_signal"  # that folder's name, in the attempt's
SIGNAL = signal.SIGUSR2


def register() -> None:
    """Write the stacks of all threads on SIGUSR2 from now on. Does nothing outside of a run, or if the folder cannot be
    written: a process works without it."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    try:
        path = Path(folder) / f"{os.getpid()}.{_start_tick()}"
        make_directory(path.parent, 0o700)
        fd = open_append(path, 0o600, empty=True)
    except (OSError, ValueError, IndexError):
        return
    faulthandler.register(SIGNAL, file=fd, all_threads=True)
    atexit.register(_remove, path, os.getpid())


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a child that was forked
        with contextlib.suppress(OSError):
            path.unlink()


def _start_tick() -> int:
    """Field 22 of /proc/self/stat: pid and tick together identify a process."""
    return int(read_kernel("/proc/self/stat").rpartition(b")")[2].split()[19])
