"""The end of the batch job in which the run lives, as the backend knows it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping

from liverl.control.messages import CommandError
from liverl.model import BatchEnd
from liverl.observe.batch_end import Ask, BatchEndRead, read_batch_end, squeue_end
from liverl.plan.spec import Settings
from liverl.supervise.services.supervisor import Supervisor
from liverl.util import clocks
from liverl.util.ages import ago, clock
from liverl.util.before_end import FILE, BeforeEnd, read, write

# Seconds between two readings: an operator may change the limit of a job that runs. squeue(1) asks not to be called in
# a loop.
ASK_S = 300.0
LOOK_S = 5.0  # seconds between two looks at the configuration


class BatchEndWatch:
    """Knows when the batch job ends. ``status``: as the snapshot has it. ``settings``: of the present plan; ``env``: of
    this process; ``wall``: Unix seconds by the system's clock."""

    def __init__(
        self,
        supervisor: Supervisor,
        settings: Callable[[], Settings],
        env: Mapping[str, str] = os.environ,
        ask: Ask = squeue_end,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.status: BatchEnd | None = None
        self._supervisor, self._settings, self._env, self._ask, self._wall = (
            supervisor,
            settings,
            env,
            ask,
            wall,
        )
        self._path = supervisor.attempt_dir / FILE
        self._written: BeforeEnd | None = None  # what trainers are told
        self._requests = read(self._path).asked  # those of an earlier backend of this attempt, too
        self._read: BatchEndRead | None = None
        self._asked: tuple[float, str] | None = None  # when (``clocks.ran``), and batch.end_time then

    async def look(self) -> float:
        """Read the end anew if that is due; returns seconds until the next look."""
        settings = self._settings()
        configured = settings.batch_end_time
        changed = self._asked is None or self._asked[1] != configured
        if changed or clocks.ran() - (self._asked or (0.0, ""))[0] >= ASK_S:
            self._asked = clocks.ran(), configured
            found = await asyncio.to_thread(read_batch_end, self._env, configured, self._wall(), self._ask)
            self._take(found, changed)
        if self.status is not None:
            self._use(self.status.at, self._read or BatchEndRead(), settings)
        await self._tell()
        return LOOK_S

    async def save_now(self, who: str) -> str:
        """Have the trainer save a checkpoint at the end of its present step, on behalf of ``who``; returns what becomes
        of that, in words.

        Raises:
            CommandError: the run has no trainer that can be asked.
        """
        hub, trainer = self._supervisor, next((s for s in self._supervisor.plan.services if s.ends_run), None)
        if trainer is None or hub.plan.script is not None:
            why = "the run has no trainer" if trainer is None else "its trainer is that of a launch script"
            hub.say("checkpoint", f"{who} asked for a checkpoint, but {why}", "warning")
            raise CommandError("no_trainer", f"no checkpoint can be asked for: {why}")
        self._requests += 1
        await self._tell()
        text = f"{trainer.name} saves a checkpoint at the end of its present step"
        hub.say("checkpoint", f"{text}, as {who} asked", service=trainer.name)
        return text

    async def _tell(self) -> None:
        """Write down what trainers read at the end of each step, and what those get that are told at their start."""
        at = None if self._read is None else self._read.at
        settings = self._settings()
        self._supervisor.batch_end = "" if at is None else f"{at - settings.batch_margin:.0f}"
        told = BeforeEnd(at, settings.batch_margin, self._requests)
        if told == (self._written or BeforeEnd(None, settings.batch_margin)):
            return
        try:
            await asyncio.to_thread(write, self._path, told)
            self._written = told
        except OSError as error:
            self._supervisor.records.write_failed(f"{FILE}: {error.strerror}")

    def _take(self, read: BatchEndRead | None, changed: bool) -> None:
        """Use what was read. A known end stays while nothing else is known: the job may outlast it, and squeue may
        fail. The moment is counted on from its first reading, whatever the system's clock is set to."""
        before = self._read
        if not changed and before is not None:
            kept = before.at is not None and read is not None and bool(read.problem)
            if kept or read == before:
                return
        self._read = read
        if read is None:
            if before is not None:
                self._supervisor.say("batch", "the batch job has no end any more")
            self.status = None
            return
        hub = self._supervisor
        at = None if read.at is None else hub.now() + (read.at - self._wall())
        self._use(at, read, self._settings())
        if read.problem:
            hub.say("batch", f"it is not known when the batch job ends: {read.problem}", "warning")
        elif at is not None and read.at is not None:
            hub.say("batch", f"the batch job ends in {ago(at - hub.now())}, at {clock(read.at)} ({read.by})")

    def _use(self, at: float | None, read: BatchEndRead, settings: Settings) -> None:
        self.status = BatchEnd(at, read.by, read.problem, settings.batch_margin, settings.batch_unsaved)
