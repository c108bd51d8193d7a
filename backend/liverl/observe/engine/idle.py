"""Loaded but idle: a replica that gets nothing to do while there is work. Pure.

A GPU that sleeps, takes new weights or has done its share of a step looks the same: memory full, nothing
computed. What tells them apart is the trainer's phase, the proxy's list and what the others do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# Seconds without anything to do from which on it is a verdict. From the design of the dashboard ("loaded but
# idle"): longer than a pause between two turns of an agent, far shorter than a rollout.
IDLE_S = 60.0
# Seconds for which nobody may have work without the clock starting anew: between two turns every request pauses.
PAUSE_S = 10.0


class Load(NamedTuple):
    """One replica at one look. ``may_work``: it is ready, listed, not leaving, has the trainer's weights, and has
    just said what runs on it. ``busy``: something runs or waits there, or has since the last look."""

    may_work: bool
    busy: bool
    waiting: bool = False  # requests queue there


class LoadSample(NamedTuple):
    """The whole run at one moment. ``rollout``: the step whose trials run, None in any other phase. ``handed_out``:
    every trial of that step has been started, so that no new one will come. ``held``: the proxy has requests."""

    at: float  # seconds of a clock that only grows
    rollout: int | None
    loads: Mapping[str, Load]
    held: bool = False
    handed_out: bool = False


@dataclass(frozen=True)
class _Clock:
    since: float  # idle, while there was work
    work_at: float  # when there was work last


@dataclass(frozen=True)
class IdleDetector:
    """What is known after some looks; ``seen`` gives what is known after one more."""

    at: float = 0.0
    rollout: int | None = None
    worked: frozenset[str] = frozenset()  # in this rollout
    _clocks: Mapping[str, _Clock] = field(default_factory=dict)

    def since(self, name: str) -> float | None:
        """Since when a replica has been idle while there was work, once that is ``IDLE_S`` long."""
        clock = self._clocks.get(name)
        return clock.since if clock is not None and self.at - clock.since >= IDLE_S else None

    def seen(self, look: LoadSample) -> IdleDetector:
        """One look later."""
        if look.rollout is None:
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
            clock = clocks.get(name)
            if look.handed_out and name in worked:
                # The others finish what they have; this one has done its share. Only a verdict that stood stands.
                if clock is not None and self.since(name) is not None:
                    after[name] = clock
            elif work:
                after[name] = _Clock(clock.since if clock else look.at, look.at)
            elif clock is not None and look.at - clock.work_at <= PAUSE_S:
                after[name] = clock
        return IdleDetector(look.at, look.rollout, worked, after)
