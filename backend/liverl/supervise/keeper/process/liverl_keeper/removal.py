"""The end of a run whose directory was removed.

If no backend is connected then, nobody can find the run any more. The keeper ends every process below it (TERM to the
leaders, TERM to all, KILL to all) and exits, which frees the ports. The directory counts as removed when its link count
is 0: a directory that was moved still has a link, and an error from the file system proves nothing.
"""

import os
import signal
import time
from collections.abc import Container

from .descriptors import Reserve
from .faults import complain
from .processes import descendants, send

# Seconds of each stage; after KILL_GRACE the keeper exits although processes could not be killed.
LEADERS_GRACE, TREE_GRACE, KILL_GRACE = 10.0, 5.0, 30.0


class Removal:
    """Whether the run directory was removed, and how far the processes were ended since."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._since: float | None = None  # monotonic seconds; None while the run directory exists
        self._stage = 0  # 1: TERM sent to the leaders, 2: TERM sent to all

    @property
    def noticed(self) -> bool:
        """Whether the directory was found removed."""
        return self._since is not None

    def look(self) -> None:
        """Look whether the directory was removed."""
        if self._since is None and directory_removed():
            complain("the run directory was removed; stopping its services")
            self._since = time.monotonic()

    def end_all(self, leaders: Container[int]) -> bool:
        """If the directory was found removed, carry out the stage that is due. Returns whether to exit: nothing is
        running any more, or the last grace is over."""
        if self._since is None:
            return False
        passed = time.monotonic() - self._since
        tree = self._reserve.use(lambda: descendants(os.getpid()))
        if not tree or passed > LEADERS_GRACE + TREE_GRACE + KILL_GRACE:
            return True
        self._reserve.release()
        if passed > LEADERS_GRACE + TREE_GRACE:
            send(tree, signal.SIGKILL)  # repeated: new forks may have escaped the previous signal
        elif passed > LEADERS_GRACE and self._stage < 2:
            self._stage = 2
            send(tree, signal.SIGTERM)
        elif self._stage < 1:
            self._stage = 1
            send({pid: tick for pid, tick in tree.items() if pid in leaders}, signal.SIGTERM)
        self._reserve.fill()
        return False


def directory_removed() -> bool:
    """Whether the keeper's working directory, the run directory, was removed. False if it was moved, or if the file
    system returns an error."""
    try:
        return os.stat(".").st_nlink == 0
    except OSError:
        return False
