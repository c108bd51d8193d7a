"""What time it is for the run: the backend's clock, which goes on between two of its snapshots."""

from __future__ import annotations

import time

from liverl.model import Snapshot
from liverl_tui.data.view import View


class Clock:
    """Durations are counted from the snapshot's own time, so that another clock on this side does no harm. It
    stands still where a backend was lost: what was known then is not known to go on. After the run's end it goes
    on, as all that is left to tell is how long ago something was."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._taken = 0.0
        self._goes = False

    def take(self, view: View) -> None:
        self._goes = view.link in ("live", "ended")
        if view.snapshot is not self._snapshot:
            self._snapshot, self._taken = view.snapshot, time.monotonic()

    def now(self) -> float:
        """Unix seconds; 0 before the first snapshot."""
        if self._snapshot is None:
            return 0.0
        return self._snapshot.at + (time.monotonic() - self._taken if self._goes else 0.0)
