"""The time that a session has: counted while its host runs, whatever the system's clock is set to."""

from __future__ import annotations

from liverl.sessions.sampling import Limits
from liverl.util import clocks
from liverl.util.clocks import Moment

PAUSE_S = 30.0  # seconds between two looks from which on a process was stopped, or its machine: it looks each second


class TimeLimit:
    """When a session's time is over. ``end``: on ``clocks.ran``; None: never."""

    def __init__(self, end: float | None = None) -> None:
        self.end = end

    def left(self) -> float | None:
        """Seconds that are left, negative once they are over; None without a limit."""
        return None if self.end is None else self.end - clocks.ran()

    @property
    def over(self) -> bool:
        """Whether no time is left."""
        return self.end is not None and clocks.ran() >= self.end


def time_limit(limits: Limits, opened: Moment) -> TimeLimit:
    """The limit of a session that was opened then, perhaps by an earlier process."""
    if limits.seconds is not None:
        return TimeLimit(opened.here() + limits.seconds)
    if limits.deadline is not None:
        # From a client of an earlier version: seconds of its clock, which was ours when the session was opened.
        return TimeLimit(opened.here() + limits.deadline - opened.wall)
    return TimeLimit()


class Looks:
    """Whether a process that looks regularly has done so for a while. After a pause (it was stopped, or so was its
    machine) others could not reach it either: what they were to do in time needs as long again. ``grace``: seconds."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._last: float | None = None
        self._until = float("-inf")

    def steady(self) -> bool:
        """Call it at each look. Whether there was no pause within the last ``grace`` seconds."""
        now = clocks.ran()
        if self._last is not None and now - self._last > PAUSE_S:
            self._until = now + self._grace
        self._last = now
        return now >= self._until
