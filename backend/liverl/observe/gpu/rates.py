"""Rates of counters between two readings. Pure."""

from __future__ import annotations

from liverl.control.gpu_detail import Reading

SHORTEST = 0.5  # seconds between two readings; a reading sooner after another gets that one's rate
LONGEST = 30.0  # seconds; the mean over a longer time would pass for the rate of now


class Rates:
    """The rates of several counters, by name."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float, Reading]] = {}  # time and value of a counter, and its rate

    def of(self, name: str, now: float, counter: Reading) -> Reading:
        """The rate per second of a counter whose value at ``now`` (monotonic seconds) is ``counter``."""
        if counter.value is None:
            self._last.pop(name, None)
            return counter
        at, value, rate = self._last.get(name, (float("-inf"), 0.0, Reading()))
        elapsed = now - at
        if elapsed < SHORTEST:
            return rate
        if elapsed > LONGEST:
            rate = Reading(why="known from the second reading on")
        elif counter.value < value:
            rate = Reading(why="the counter was reset")
        else:
            rate = Reading((counter.value - value) / elapsed)
        self._last[name] = (now, counter.value, rate)
        return rate
