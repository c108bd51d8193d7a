"""Jumps of a host's clocks between two looks: the system's clock was set, or the host was suspended.

Nothing that the run measures depends on the system's clock (``util.clocks``); but stamps in logs and files do, and who
reads them must know.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from liverl.util import clocks

JUMP_S = 2.0  # seconds: chrony and ntpd slew what is less than 1 s, and look at most every 17 minutes
_APART_S = 0.05  # seconds between the first and the last of the clocks that are read, at most
_TRIES = 5


class Reading(NamedTuple):
    """The clocks of a host at one moment: Unix seconds, and see ``util.clocks``."""

    wall: float
    since_boot: float
    ran: float


def read_clocks() -> Reading:
    """All clocks at one moment, as far as this process is not interrupted between two of them."""
    for _ in range(_TRIES):
        ran = clocks.ran()
        reading = Reading(time.time(), clocks.since_boot(), ran)
        if clocks.ran() - ran < _APART_S:
            break
    return reading


class ClockJump(NamedTuple):
    """What happened between two looks. ``step``: seconds by which the system's clock was set, negative: back;
    ``suspended``: seconds for which the host was; ``behind``: seconds by which the run's own clock is now behind the
    system's, after all jumps so far."""

    step: float
    suspended: float
    behind: float

    @property
    def words(self) -> str:
        """What happened and what it means, as a sentence."""
        happened = []
        if self.suspended:
            happened.append(f"this host was suspended for {span(self.suspended)}; time limits stood still")
        if self.step:
            way = "forward" if self.step > 0 else "back"
            happened.append(
                f"the clock of this host was set {way} by {span(abs(self.step))}; time limits and ages of this run "
                "do not follow it"
            )
        late = "behind" if self.behind > 0 else "ahead of"
        more = f"; its events are stamped {span(abs(self.behind))} {late} the clock until the next attempt"
        return "; ".join(happened) + (more if abs(self.behind) >= JUMP_S else "")


class ClockJumps:
    """Compares the clocks with those of the look before."""

    def __init__(self, read: Callable[[], Reading] = read_clocks) -> None:
        self._read = read
        self._last = read()
        self._behind = 0.0

    def look(self) -> ClockJump | None:
        """What has happened since the last look; None: the clocks went on together."""
        last, now = self._last, self._read()
        self._last = now
        suspended = (now.since_boot - last.since_boot) - (now.ran - last.ran)
        step = (now.wall - last.wall) - (now.since_boot - last.since_boot)
        step, suspended = _if_large(step), _if_large(suspended)
        self._behind += step + suspended
        return ClockJump(step, suspended, self._behind) if step or suspended else None


def _if_large(seconds: float) -> float:
    return seconds if abs(seconds) >= JUMP_S else 0.0


def span(seconds: float) -> str:
    """``5 d 2 h``, ``3 min 20 s``: a duration in its two largest units. Pure."""
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, length)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or "0 s"
