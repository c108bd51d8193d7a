"""Sends the events of a run to the targets in its plan: joins events to messages, delivers them, and journals both, so
that each event is sent once although backends die. A failed delivery never ends the run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liverl.control.history import read_events
from liverl.diagnose.tracker import Unreached
from liverl.model import Event
from liverl.notify import delivery
from liverl.notify.inbox import Batch, Inbox
from liverl.notify.message import About, of_events, of_many
from liverl.notify.records import Begin, End, Formed, Past, Record, Try, journal_record, read_past
from liverl.notify.target import identity
from liverl.plan.spec import NotifyPlan, NotifyTarget
from liverl.rundir.commands import attach_command, resume_command
from liverl.rundir.journal import JournalContent
from liverl.rundir.layout import RunDir, hostname
from liverl.util.modes import make_directory

PAUSE_S, LONGEST_S = 2.0, 300.0  # seconds until the second try, and between any two
GIVE_UP_S = 3600.0  # a message that its target has not got by then is dropped: it is no news any more
BESIDE_END_S = 5.0  # seconds that the end of a run waits beside two deliveries ...
SOON_S = 3.0  # ... and that it waits beside one if it was to end at once
AFTER_ERROR_S = 30.0  # seconds after an error of ours until it is tried again
MOST_WAITING = 100  # messages for one target; the oldest that is not on the run's end is dropped then


@dataclass
class Voice:
    """What the notifier needs of the backend. ``say``: adds an event; ``journal``: returns when a record is on disk,
    raises OSError; ``state``: of the run, in one word; ``unwritten``: reports a write error; ``spawn``: runs a task;
    ``guarded``: reports an exception, and goes on."""

    say: Callable[..., Event]
    journal: Callable[[dict[str, Any]], Awaitable[None]]
    state: Callable[[], str]
    unwritten: Callable[[str], None]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    guarded: Callable[[], AbstractContextManager[None]]


@dataclass
class _Job:
    """A message for one target. ``give_up``: of the loop's clock."""

    formed: Formed
    give_up: float
    tries: int = 0
    unsettled: bool = False  # an earlier backend has begun the last try

    @property
    def order(self) -> tuple[int, bool, tuple[int, ...]]:
        """What was tried least is tried next, so that one message that a target refuses holds up no other; then how
        the run ended, then what happened first."""
        return (self.tries, not self.formed.final, self.formed.seqs)


class _Courier:
    """Delivers to one target, one message after the other."""

    def __init__(self, owner: Notifier, target: NotifyTarget, number: int) -> None:
        self.target, self.number = target, number
        self.id, self.words = identity(target), target.title
        self.jobs: list[_Job] = []
        self.why = ""  # of the last try; "" after a success
        self.since = 0.0
        self.given_up = False  # the run ends, and there is no time for another try
        self._owner = owner
        self._new = asyncio.Event()
        self._hurry = asyncio.Event()

    def add(self, job: _Job) -> None:
        """Deliver one more message."""
        self.jobs.append(job)
        untried = [one for one in self.jobs if not one.formed.final and one.tries == 0]
        if len(self.jobs) > MOST_WAITING and untried:
            self.jobs.remove(untried[0])
            self._owner.forget(self, untried[0].formed, "too many wait")
        self._new.set()

    def hurry(self) -> None:
        """Make no long pause any more."""
        self._hurry.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            with self._owner.guarded():
                await self._work()
            await asyncio.sleep(AFTER_ERROR_S)

    async def _work(self) -> None:
        while True:
            self._new.clear()
            while self.jobs:
                job = min(self.jobs, key=lambda one: one.order)
                if await self._deliver(job):
                    self.jobs.remove(job)
            self._owner.idle.set()
            await self._new.wait()

    async def _deliver(self, job: _Job) -> bool:
        """Try once, and pause after a failure. Returns whether there is nothing left to try."""
        owner, loop = self._owner, asyncio.get_running_loop()
        name = job.formed.message.id
        outcome = None
        if job.unsettled:
            job.unsettled = False
            outcome = await delivery.settle(owner.claim(job.formed, self, job.tries), owner.timeout)
        if outcome is None:
            await owner.remove_claim(job.formed, self, job.tries)  # of a try that was never made, if any
            if not owner.has_time(loop.time()):
                self.given_up = True
                owner.idle.set()
                await asyncio.Event().wait()  # the end of the run cancels this
            job.tries += 1
            await owner.journal(Try(name, self.id, job.tries))
            await owner.make_folder()
            claim = owner.claim(job.formed, self, job.tries)
            outcome = await delivery.deliver(
                self.target, job.formed.message, os.environ, owner.timeout, claim
            )
        if outcome.ok:
            await owner.journal(End(name, self.id, True))
            await owner.remove_claim(job.formed, self, job.tries)
            self.why = ""
            owner.delivered(self, job.formed, job.tries)
            return True
        if not self.why:
            self.since = owner.now()
        self.why = outcome.why
        await owner.remove_claim(job.formed, self, job.tries)
        if loop.time() >= job.give_up:
            owner.forget(self, job.formed, outcome.why)
            return True
        pause = min(LONGEST_S, PAUSE_S * 2 ** min(job.tries - 1, 16))
        pause = max(pause, outcome.pause or 0.0)
        try:
            async with asyncio.timeout(PAUSE_S if self._hurry.is_set() else pause):
                if self._hurry.is_set():
                    await asyncio.Event().wait()
                await self._hurry.wait()
        except TimeoutError:
            pass
        return False


class Notifier:
    """Of one attempt. ``now``: Unix seconds. Nothing is told before ``begin``."""

    def __init__(
        self, plan: NotifyPlan, run_dir: Path, attempt: int, now: Callable[[], float], voice: Voice
    ) -> None:
        self.timeout, self.now, self.guarded = plan.timeout, now, voice.guarded
        self.idle = asyncio.Event()
        self._plan, self._voice = plan, voice
        self._run = RunDir(run_dir)
        self._about = About(
            self._run.name, attempt, hostname(), attach_command(run_dir), resume_command(run_dir)
        )
        self._inbox = Inbox(plan.events, plan.min_level)
        self._couriers = [_Courier(self, target, number) for number, target in enumerate(plan.targets, 1)]
        self._changed = asyncio.Event()
        self._deadline: float | None = None  # of the loop's clock: no delivery may end after it
        self._forming = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def unreached(self) -> tuple[Unreached, ...]:
        """The targets that the last try did not reach, for the alerts of the run."""
        return tuple(
            Unreached(c.id, c.number, c.words, c.why, len(c.jobs), c.since)
            for c in self._couriers
            if c.why and c.jobs
        )

    # --- the beginning ---

    async def begin(
        self, journal: JournalContent, last: int, subscribe: Callable[[Callable[[Event], None]], None]
    ) -> None:
        """Take up what an earlier backend has left untold, and listen to events from now on. ``last``: number of the
        newest event; ``subscribe``: to later ones."""
        if not self._couriers:
            return
        past = read_past(journal.records, damaged=bool(journal.damaged or journal.problem))
        if past.upto is None:
            await self.journal(Begin(last))
        else:
            self._resume(past)
            events = await asyncio.to_thread(lambda: list(read_events(self._run.path)))
            for event in events:
                old = event.seq <= past.upto or event.seq in past.told or event.at < self.now() - GIVE_UP_S
                if event.seq <= last:
                    self._take(event, settled=old)
        subscribe(self._hear)

    def _resume(self, past: Past) -> None:
        loop = asyncio.get_running_loop()
        for courier in self._couriers:
            for one in past.open.get(courier.id, {}).values():
                left = GIVE_UP_S - max(0.0, self.now() - one.formed.at)
                if left > 0:
                    courier.add(_Job(one.formed, loop.time() + left, one.tries, unsettled=one.tries > 0))
                else:
                    self.forget(courier, one.formed, "no backend was running in time to send it")

    def start(self) -> None:
        """Begin to form and to deliver messages."""
        if self._couriers:
            work = (self._form(), *(courier.run() for courier in self._couriers))
            self._tasks = [self._voice.spawn(one) for one in work]

    def moved_to(self, run_dir: Path) -> None:
        """Use this directory from now on: the run's own, after it was renamed."""
        self._run = RunDir(run_dir)

    def _hear(self, event: Event) -> None:
        with self.guarded():  # an error here must not keep the event from its other listeners
            self._take(event)

    def _take(self, event: Event, *, settled: bool = False) -> None:
        self._inbox.take(event, asyncio.get_running_loop().time(), settled=settled)
        self._changed.set()

    # --- messages ---

    async def _form(self) -> None:
        while True:
            with self.guarded():
                await self._form_when_due()
            await asyncio.sleep(AFTER_ERROR_S)

    async def _form_when_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            await self._form_due()
            due = self._inbox.next_due
            try:
                async with asyncio.timeout(None if due is None else max(0.02, due - loop.time())):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _form_due(self, *, everything: bool = False) -> None:
        async with self._forming:
            now = asyncio.get_running_loop().time()
            for batch in self._inbox.due(now, everything=everything):
                formed = self._formed(batch)
                await self.journal(formed)
                for courier in self._couriers:
                    courier.add(_Job(formed, now + GIVE_UP_S))

    def _formed(self, batch: Batch) -> Formed:
        last = batch.events[-1]
        state = str(last.data.get("state", "failed")) if batch.final else self._voice.state()
        if batch.many:
            message = of_many(self._about, batch.events, state)
        else:
            message = of_events(self._about, batch.kind, batch.events, state, batch.absorbed)
        targets = tuple(courier.id for courier in self._couriers)
        return Formed(message, batch.seqs, targets, batch.final, self.now())

    # --- the end ---

    @property
    def patience(self) -> float:
        """Seconds that ``finish`` takes at most, as long as the disk answers."""
        return 2 * self.timeout + BESIDE_END_S if self._tasks else 0.0

    async def finish(self, *, soon: bool = False) -> None:
        """Tell at once what waits, and deliver it in a bounded time; then stop. What is left is told by an event, and
        delivered by the next attempt if that begins within ``GIVE_UP_S`` seconds. ``soon``: there is time for one try
        only, since somebody wants the run to be over now."""
        if not self._tasks:
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self.timeout + (SOON_S if soon else self.timeout + BESIDE_END_S)
        await self._form_due(everything=True)
        for courier in self._couriers:
            courier.hurry()
        try:
            async with asyncio.timeout_at(self._deadline):
                while any(courier.jobs and not courier.given_up for courier in self._couriers):
                    self.idle.clear()
                    await self.idle.wait()
        except TimeoutError:
            pass  # told below
        for courier in self._couriers:
            for job in courier.jobs:
                self.dropped(courier, job.formed, courier.why or "the run ended before it could be sent")
        self.close()

    def has_time(self, now: float) -> bool:
        """Whether a delivery that begins now would end before the run's end."""
        return self._deadline is None or now + self.timeout <= self._deadline

    def close(self) -> None:
        """Stop; deliveries that have begun go on in processes of their own."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    # --- called by the couriers ---

    async def journal(self, record: Record) -> None:
        """Write a record before what it says is done. On a full disk the deed is done all the same."""
        try:
            await self._voice.journal(journal_record(record))
        except OSError as error:
            self._voice.unwritten(f"the journal of notifications: {error.strerror}")

    def claim(self, formed: Formed, courier: _Courier, number: int) -> Path:
        """The file of one delivery."""
        return self._run.notify / f"{formed.seqs[0]}-{courier.id}-{number}"

    async def make_folder(self) -> None:
        """Make the directory of these files. Without it, deliveries are made all the same."""
        try:
            await asyncio.to_thread(make_directory, self._run.notify, 0o700)
        except OSError as error:
            self._voice.unwritten(f"{self._run.notify.name}: {error.strerror}")

    async def remove_claim(self, formed: Formed, courier: _Courier, number: int) -> None:
        """Remove the file of a delivery whose outcome is journalled or reported."""
        path = self.claim(formed, courier, number)
        try:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        except OSError as error:
            self._voice.unwritten(f"{self._run.notify.name}: {error.strerror}")

    def delivered(self, courier: _Courier, formed: Formed, tries: int) -> None:
        """Say that a target has a message."""
        again = f", at try {tries}" if tries > 1 else ""
        self._voice.say(
            "notified",
            f"{formed.message.event}: sent to {courier.words}{again}",
            target=courier.number,
            id=formed.message.id,
        )

    def forget(self, courier: _Courier, formed: Formed, why: str) -> None:
        """Say that a target never gets a message, and note it for later backends."""
        self._voice.spawn(self.journal(End(formed.message.id, courier.id, False)))
        self.dropped(courier, formed, why)

    def dropped(self, courier: _Courier, formed: Formed, why: str) -> None:
        """Say that a target does not get a message."""
        text = f"{formed.message.event}: not sent to {courier.words}: {why}"
        self._voice.say("not_notified", text, "warning", target=courier.number, id=formed.message.id)
