"""The first view, fetched while Textual is still being imported, so that the first paint has facts in it."""

from __future__ import annotations

from threading import Thread

from liverl.model import Snapshot
from liverl.rundir.layout import RunDir

PATIENCE_S = 0.3  # how long the first paint may wait for it; a backend answers within milliseconds


class FirstLook:
    """Asks the backend once, in the background; whoever cannot answer in time is asked again by the source."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._found: Snapshot | None = None
        self._thread = Thread(target=self._ask, name="first look", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        from liverl.control.blocking import snapshot
        from liverl.control.messages import ControlError

        try:
            self._found = snapshot(self._run.path)
        except (ControlError, OSError, ValueError):
            return  # what is wrong is said by the source, which tries again

    def snapshot(self) -> Snapshot | None:
        """The run's state; None where it is not known yet."""
        self._thread.join(PATIENCE_S)
        return self._found
