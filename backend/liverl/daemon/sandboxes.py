"""The sandboxes that the run's trials have in Docker or Kubernetes, which no process tree holds: what is left of them
is removed at the end of the run, before a new attempt, and while the run goes on after Harbor's process or its worker
has died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from liverl.daemon.run_supervisor import RunSupervisor
from liverl.model import SandboxesEnd
from liverl.sandboxes.sweep import (
    command,
    kept_words,
    left_words,
    lost_trials,
    open_trials,
    place_words,
    removed_words,
    sweep,
)
from liverl.util.plural import quantity

WATCH_S = 5.0  # seconds between two looks for trials that nobody will end
# Seconds beyond its own limit for a sweep that does not come back: the program hangs in the kernel.
_HUNG_S = 5.0


class Sandboxes:
    """``seconds``: for one sweep; None: nothing is removed. ``directory``: returns the run's directory, which may be
    renamed."""

    def __init__(
        self, supervisor: RunSupervisor, seconds: float | None, directory: Callable[[], Path] | None = None
    ) -> None:
        self._supervisor, self._seconds = supervisor, seconds
        self.directory = directory or (lambda: supervisor.run_dir)
        self._swept: set[str] = set()

    async def before_attempt(self) -> None:
        """Remove what earlier attempts left."""
        end = await self._sweep(None)
        if end is not None:
            self._tell(end, "what an earlier attempt had left")

    async def watch(self) -> float:
        """Remove the sandboxes of trials whose Harbor process or worker has died; returns the seconds to the next
        look."""
        if self._seconds is None or self._supervisor.stopping:
            return WATCH_S
        try:
            lost = await asyncio.to_thread(lost_trials, self.directory())
        except OSError:
            return WATCH_S  # the sweep at the end says why
        if new := lost - self._swept:
            end = await self._sweep(new)
            if end is not None and not end.unknown:
                self._swept |= new
                self._tell(end, f"what {quantity(len(new), 'trial')} had left whose Harbor process died")
        return WATCH_S

    async def end(self) -> SandboxesEnd | None:
        """The last stage of a stop, after all services have ended; None if there is nothing to tell."""
        if self._seconds is None:
            return None
        number = await asyncio.to_thread(self._open)
        if number:
            text = f"looking for sandboxes of {quantity(number, 'trial')} that Harbor has not ended"
            self._supervisor.say("sandboxes", f"{text} (at most {self._seconds:g} s)")
        end = await self._sweep(None)
        if end is not None:
            self._tell(end, "what trials had left")
        return end

    def _open(self) -> int:
        try:
            return open_trials(self.directory())
        except OSError:
            return 0  # the sweep itself says why

    async def _sweep(self, only: Collection[str] | None) -> SandboxesEnd | None:
        if self._seconds is None:
            return None
        work = partial(sweep, self.directory(), self._seconds, only=only)
        try:
            async with asyncio.timeout(self._seconds + _HUNG_S):
                return await asyncio.to_thread(work)
        except TimeoutError:
            return SandboxesEnd(unknown=(f"the sweep did not return within {self._seconds:g} s",))

    def _tell(self, end: SandboxesEnd, whose: str) -> None:
        say = self._supervisor.say
        if removed := removed_words(end):
            say("sandboxes", f"removed from {place_words(end)} {whose}: {removed}")
        if left := left_words(end):
            say("sandboxes", f"{left}; to remove it: {command(self.directory())}", "warning")
        for why in end.unknown:
            say("sandboxes", f"it is not known what trials have left: {why}", "warning")
        if kept := kept_words(end):
            say("sandboxes", f"{kept}; to remove: {command(self.directory(), kept=True)}")
