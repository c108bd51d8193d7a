"""Whether the interface is started for the first time on this account."""

from __future__ import annotations

from liverl.util.atomic_file import create
from liverl.util.modes import make_directory

FILE = "hints-shown"


def first_start() -> bool:
    """Whether the hints were never shown; notes that they are shown now. False if that cannot be noted, since they
    would come back at each start."""
    from liverl.rundir.state_home import interface_root

    path = interface_root() / FILE
    try:
        make_directory(path.parent)
        create(path, 0o600).close()
    except OSError:
        return False
    return True
