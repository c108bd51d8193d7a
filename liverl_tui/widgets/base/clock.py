"""The present time by the backend's clock, also between two snapshots."""

from __future__ import annotations

import time

from liverl.model import Snapshot
from liverl_tui.data.view import View


class Clock:
    """The time of the newest snapshot plus the time since it arrived. Durations are thus right even if the clock of
    this machine differs from the backend's.

    The clock stops when the backend is lost, since the state may have changed since then. After the end of the run it
    goes on, to show how long ago things happened. It stops at the end of a recording.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._arrived = 0.0
        self._running = False

    def take(self, view: View) -> None:
        """Set the clock by a new view, and start or stop it by the state of the view's link."""
        self._running = view.link in ("live", "ended") or (view.demo and not view.why)
        if view.snapshot is not self._snapshot:
            self._snapshot, self._arrived = view.snapshot, time.monotonic()

    def now(self) -> float:
        """Unix seconds; 0 before the first snapshot."""
        if self._snapshot is None:
            return 0.0
        return self._snapshot.at + (time.monotonic() - self._arrived if self._running else 0.0)
