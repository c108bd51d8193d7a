"""Whether the interface is started for the first time on this account."""

from __future__ import annotations

import os

from liverl.util.modes import make_directory

FILE = "hints-shown"


def first_start() -> bool:
    """Whether the hints were never shown; notes that they are shown now. False if that cannot be noted, since they
    would come back at each start."""
    from liverl.rundir.index import interface_root

    path = interface_root() / FILE
    try:
        make_directory(path.parent)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True
