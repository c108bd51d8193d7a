"""Follows a run's silence, and before a trainer is said to have stalled has everything sampled anew, and the stacks of
its processes saved."""

from __future__ import annotations

import asyncio

from liverl.daemon.stack_saver import StackSaver
from liverl.diagnose.catalogue.progress import stalls_at
from liverl.model import Snapshot
from liverl.observe.hung_stacks import HungStacks
from liverl.observe.silence import Silence, SilenceClock
from liverl.observe.training_processes import training_processes
from liverl.supervise.services.supervisor import Supervisor

# Seconds between two looks at logs, steps, trials, GPUs and processes at most, once they are asked for; a silence that
# lasts longer than this behind its limit is no matter of old samples (a quiet run is sampled every 15 s).
CONFIRMED_S = 4.0


class StallWatch:
    """Of one attempt: call ``look`` with each snapshot, in order of time."""

    def __init__(self, supervisor: Supervisor, saver: StackSaver) -> None:
        self._supervisor = supervisor
        self._saver = saver
        self._clock = SilenceClock(supervisor.plan.trial_timeout)
        self._asked: float | None = None  # Unix time at which everything was asked for anew
        self.suspects: tuple[
            tuple[int, str], ...
        ] = ()  # processes that may hang, while ``look`` returns a silence
        self.stacks = HungStacks()  # of these and others; empty as long as they are not there
        self.due: float | None = None  # Unix time from which the run counts as stalled, if nothing happens

    async def look(self, snapshot: Snapshot, log_written: float | None) -> Silence | None:
        """The silence as of this snapshot; None while a longer one than allowed is not confirmed. ``log_written``: when
        the trainer's logs were last written to, as Unix time."""
        silence = self._clock.update(snapshot, log_written)
        self.due = stalls_at(snapshot, silence)
        if self.due is None or snapshot.at < self.due:
            if self._asked is not None:
                self._asked = None
                self._saver.stall_over()
                self.stacks = HungStacks()
            return silence
        if self._asked is None:
            self._asked = snapshot.at
            self._supervisor.pace.changed()
        if snapshot.at - self._asked < CONFIRMED_S:
            return None
        loop = asyncio.get_running_loop()
        self.suspects = await loop.run_in_executor(None, training_processes, snapshot.services)
        self.stacks = await self._saver.of_stall(snapshot.services, silence.since)
        return silence

    def pause(self, at: float, seconds: float) -> float:
        """``seconds``, or less if the run is to be looked at before, to confirm that it has stalled."""
        if self.due is None:
            return seconds
        awaited = self.due if self._asked is None else self._asked + CONFIRMED_S
        return min(seconds, max(awaited - at, 0.1)) if awaited > at else seconds
