"""Counts of what is seen again and again, over a sliding window and in bounded memory. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from liverl.observe.live_logs.facts import WINDOW_S, Counted

SLOT_S = 5.0  # seconds that are counted together
MOST_KEYS = 64  # of which is counted; of more, what was seen last

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Counter:
    """How often something was seen. Times are Unix seconds; they must not be older than those before by more than a
    slot, which they then count for."""

    def __init__(self) -> None:
        self._slots: deque[list[float]] = deque()  # [time of the first one, number]

    def add(self, at: float, number: int = 1) -> None:
        """Count ``number`` more at ``at``."""
        if self._slots and at - self._slots[-1][0] < SLOT_S:
            self._slots[-1][1] += number
        else:
            self._slots.append([at, number])

    def expire(self, now: float) -> bool:
        """Forget what is older than ``WINDOW_S``; return whether something is left."""
        while self._slots and now - self._slots[0][0] > WINDOW_S:
            self._slots.popleft()
        return bool(self._slots)

    def counted(self) -> Counted:
        """What was counted."""
        return Counted(tuple((at, int(number)) for at, number in self._slots))


class Seen(Generic[V]):
    """One thing that is counted, with what was seen of it last."""

    def __init__(self, last: V) -> None:
        self.counter = Counter()
        self.last = last


class Counts(Generic[K, V]):
    """Counters by key, at most ``MOST_KEYS``."""

    def __init__(self) -> None:
        self.seen: dict[K, Seen[V]] = {}  # seen longest ago first

    def add(self, key: K, last: V, at: float, number: int) -> None:
        """Count ``number`` more of ``key``; ``last`` is what was seen."""
        one = self.seen.pop(key, None) or Seen(last)
        one.last = last
        one.counter.add(at, number)
        self.seen[key] = one
        if len(self.seen) > MOST_KEYS:
            del self.seen[next(iter(self.seen))]

    def expire(self, now: float) -> None:
        """Forget what was not seen within the window."""
        for key in [key for key, one in self.seen.items() if not one.counter.expire(now)]:
            del self.seen[key]
