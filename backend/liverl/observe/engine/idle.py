"""Detects replicas that are loaded but idle: ready, but without requests while there is work. Pure.

A replica that sleeps, receives weights or has finished its share of a step looks the same on its GPU: memory in use,
no computation. The trainer's phase, the proxy's list and the load of the other replicas tell these cases apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# Seconds without requests after which a replica counts as idle. From the design of the dashboard ("loaded but
# idle"): longer than a pause between two turns of an agent, far shorter than a rollout.
IDLE_S = 60.0
# Seconds without work anywhere after which the idle time of a replica that has worked in this rollout is counted anew.
# Shorter gaps are normal: between two turns an agent sends no request. One that has had no request at all in a rollout
# in which others had some is idle however long the gaps are: agents that all run a tool for half a minute send their
# requests in bursts.
PAUSE_S = 10.0


class Load(NamedTuple):
    """The load of one replica in a sample.

    ``may_work``: it is ready, listed, not leaving, has the trainer's weights and has just answered a scrape.
    ``busy``: requests run or wait there, or did since the last sample."""

    may_work: bool
    busy: bool
    waiting: bool = False  # requests are queued there


class LoadSample(NamedTuple):
    """The load of all replicas at one moment.

    ``rollout``: the step whose trials run; None outside of a rollout. ``handed_out``: all trials of that step have
    been started, so that no new one will come. ``held``: the proxy has requests in flight. ``few``: the step has fewer
    trials than there are replicas, so that some get none."""

    at: float  # seconds, monotonic
    rollout: int | None
    loads: Mapping[str, Load]
    held: bool = False
    handed_out: bool = False
    few: bool = False


@dataclass(frozen=True)
class _Clock:
    since: float  # start of the idle time during which there was work elsewhere
    work_at: float  # when there was work last


@dataclass(frozen=True)
class IdleDetector:
    """The idle times after some samples; immutable: ``seen`` returns the detector after one more sample."""

    at: float = 0.0
    rollout: int | None = None
    worked: frozenset[str] = frozenset()  # replicas that were busy in this rollout
    _clocks: Mapping[str, _Clock] = field(default_factory=dict)

    def since(self, name: str) -> float | None:
        """Return the time since which a replica is idle while there is work; None before ``IDLE_S`` seconds of it."""
        clock = self._clocks.get(name)
        return clock.since if clock is not None and self.at - clock.since >= IDLE_S else None

    def seen(self, look: LoadSample) -> IdleDetector:
        """Return the detector after sample ``look``. Outside of a rollout, and in one of ``few`` trials, all idle
        times are dropped."""
        if look.rollout is None or look.few:
            return IdleDetector(look.at)
        same = look.rollout == self.rollout
        clocks = self._clocks if same and look.at - self.at <= PAUSE_S else {}
        busy = {name for name, load in look.loads.items() if load.busy}
        worked = self.worked | busy if same else frozenset(busy)
        work = look.held or bool(busy) or any(load.waiting for load in look.loads.values())
        after = {}
        for name, load in look.loads.items():
            if not load.may_work or load.busy:
                continue
            clock, left_out = clocks.get(name), bool(worked) and name not in worked
            if look.handed_out and name in worked:
                # It has done its share, and the others finish theirs: not idle, unless it was already reported so.
                if clock is not None and self.since(name) is not None:
                    after[name] = clock
            elif work:
                after[name] = _Clock(clock.since if clock else look.at, look.at)
            elif clock is not None and (left_out or look.at - clock.work_at <= PAUSE_S):
                after[name] = clock
        return IdleDetector(look.at, look.rollout, worked, after)
