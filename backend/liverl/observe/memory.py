"""Whether the memory of the host, or of the control group around the run, fills up, when it is full, and which service
takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from liverl.model import Snapshot
from liverl.procs.memory_limit import MemoryLimit
from liverl.util.trend import LEAST, Point, trend

BUCKET_S = 60.0  # of the samples of so many seconds the smallest counts: what is freed again is no growth
MOST = 600  # buckets that are kept: ten steps of an hour
SURE = 4.0  # |t| of the growth; the memory of many programs grows a little for a while
# A rate is extrapolated to at most this many times the time over which it was measured (as that of disks is).
AHEAD = 2.0
LEAST_SHARE = 0.05  # of the growth that a service must take to be named
# Seconds in which a run without steps may still load its models (LiveRL's own script waits 30 minutes, liverl.md §4).
LOADED_S = 1800.0


class Growth(msgspec.Struct, frozen=True):
    """Memory that fills up. Sizes are bytes. ``per_second``: how fast its use grows, ``seconds_left``: until it is full
    at that rate. ``services``: those that grow, with their size and bytes per second, the fastest first."""

    used: int
    total: int
    per_second: float
    seconds_left: float
    services: tuple[tuple[str, int, float], ...] = ()


class MemoryWatch:
    """Collects samples of the memory in use, and finds a growth that goes on."""

    def __init__(self) -> None:
        self._begun: list[float] = []  # of each bucket, Unix time
        self._least: list[dict[str, int]] = []  # and the least bytes in it, by service; "": all of the host
        self._total = 0

    def add(self, at: float, used: int, total: int, services: Mapping[str, int]) -> None:
        """Add a sample: bytes in use, bytes that there are, and of each service, at Unix time ``at``."""
        self._total = total
        now = {"": used, **services}
        begun = math.floor(at / BUCKET_S) * BUCKET_S
        if not self._begun or begun > self._begun[-1]:
            self._begun.append(begun)
            self._least.append(now)
            del self._begun[:-MOST], self._least[:-MOST]
            return
        least = self._least[-1]
        for name, size in now.items():
            least[name] = min(size, least.get(name, size))

    def growth(self, period: float | None = None) -> Growth | None:
        """How the memory fills; None while it does not, or not for long enough. ``period``: seconds of a step: memory
        that is freed at the end of each step does not fill, and ten steps must have been seen."""
        points = self._points("", period or 0.0)
        whole, later = trend(points), trend(points[len(points) // 2 :])
        if len(points) < LEAST or whole.t < SURE or later.t < 2.0 or later.slope <= 0.0:
            return None
        rate = min(whole.slope, later.slope)  # a growth that slows down may end
        used = self._least[-1][""]
        left = max(0.0, (self._total - used) / rate)
        if left > AHEAD * (points[-1][0] - points[0][0]):
            return None
        return Growth(used, self._total, rate, left, self._growing(rate, period or 0.0))

    def _growing(self, rate: float, period: float) -> tuple[tuple[str, int, float], ...]:
        found = []
        for name in self._least[-1]:
            points = self._points(name, period) if name else []
            slope = trend(points)
            if len(points) >= LEAST and slope.t >= SURE and slope.slope >= LEAST_SHARE * rate:
                found.append((name, self._least[-1][name], slope.slope))
        return tuple(sorted(found, key=lambda one: -one[2]))

    def _points(self, name: str, period: float) -> list[Point]:
        """The least bytes of each minute, or of each ``period`` where that is longer. The newest one may go on."""
        width = max(1, math.ceil(period / BUCKET_S))
        sizes = [
            (at, least[name]) for at, least in zip(self._begun, self._least, strict=True) if name in least
        ]
        whole = len(sizes) // width * width
        groups = [sizes[at : at + width] for at in range(len(sizes) - whole, len(sizes), width)]
        return [(group[0][0], float(min(size for _, size in group))) for group in groups]


def memory_growth(watch: MemoryWatch, now: Snapshot, limit: MemoryLimit) -> Growth | None:
    """Add what a snapshot says to ``watch``, and return how the memory fills; None while it does not. The limit of the
    control group counts where there is one. Until the first step has ended, models are loaded: that is no growth."""
    if not now.step and now.at - now.started_at < LOADED_S:
        return None
    host, group = now.host, limit.look()
    used, total = (host.memory_used, host.memory_total) if group is None else group
    if used is None or total is None:
        return None
    sizes = {service.name: service.tree.rss_bytes for service in now.services if service.tree.processes}
    watch.add(now.at, used, total, sizes)
    return watch.growth(now.step_seconds)
