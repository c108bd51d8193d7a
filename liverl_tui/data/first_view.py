"""The first snapshot, fetched while Textual is still being imported, so that the first paint can show it."""

from __future__ import annotations

from threading import Thread

from liverl.model import Snapshot
from liverl.rundir.layout import RunDir

PATIENCE_S = 0.3  # maximum seconds for which the first paint waits; a backend answers within milliseconds


class FirstLook:
    """Requests a snapshot from the backend once, in a thread. If it does not answer, ``RunSource`` asks it again."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._snapshot: Snapshot | None = None
        self._thread = Thread(target=self._ask, name="first look", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        from liverl.control.blocking import snapshot
        from liverl.control.messages import ControlError

        try:
            self._snapshot = snapshot(self._run.path)
        except (ControlError, OSError, ValueError):
            return  # ``RunSource`` tries again, and reports the error

    def snapshot(self) -> Snapshot | None:
        """Wait up to ``PATIENCE_S`` seconds for the run's state; None if it is not known by then."""
        self._thread.join(PATIENCE_S)
        return self._snapshot
