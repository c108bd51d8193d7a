"""The end of a step's last trials: which of them are late is counted over all workers, by a file of each.

Independent of verl; for Python 3.10 with few packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from liverl.util.decode import decode_json
from liverl.util.faults import Faults
from liverl.util.json_file import write_json
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_regular

logger = logging.getLogger(__name__)

_POLLS = 20  # in the time of the grace
_POLL_S = (0.05, 2.0)  # seconds between two of them: at least, at most


class TailRules(msgspec.Struct, frozen=True):
    """``target``: share of a step's trials; once so many are done, the rest ends after ``grace`` seconds. 1: never.
    ``least``: trials of a step; smaller steps are left alone."""

    target: float = 1.0
    grace: float = 0.0
    least: int = 0

    @property
    def off(self) -> bool:
        """Whether no trial is ever late."""
        return self.target >= 1.0

    def reached(self, begun: int, done: int) -> bool:
        """Whether the rest of a step with so many trials is late."""
        return not self.off and begun >= max(1, self.least) and self.target * begun <= done < begun


class Counts(msgspec.Struct):
    """Trials that a worker was given for one step, and those of them that have ended."""

    begun: int = 0
    done: int = 0


class StepTail:
    """The trials of one step in this worker. ``late`` is set when those that are left must end.

    ``folder``: of the step's files; ``worker``: the name of this worker's.
    """

    def __init__(self, rules: TailRules, folder: Path, worker: str) -> None:
        self._rules, self._folder, self._worker = rules, folder, worker
        self._own = Counts()
        self._watching: asyncio.Task[None] | None = None
        self.late = asyncio.Event()

    @asynccontextmanager
    async def trial(self) -> AsyncIterator[None]:
        """Count a trial from its beginning to its end.

        Raises:
            OSError: the file cannot be written.
        """
        if self._rules.off:
            yield
            return
        self._own.begun += 1
        self._write()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        try:
            yield
        finally:
            self._own.done += 1
            self._write()
            if self._own.done == self._own.begun:
                self._watching.cancel()

    def _write(self) -> None:
        make_directory(self._folder)
        write_json(self._folder / f"{self._worker}.json", self._own)

    async def _watch(self) -> None:
        since: float | None = None
        faults = Faults(logger)
        while not self.late.is_set():
            with faults.logged(f"the trials counted in {self._folder} cannot be read"):
                total = await asyncio.get_running_loop().run_in_executor(None, self._total)
                now = time.monotonic()
                since = (
                    (now if since is None else since)
                    if self._rules.reached(total.begun, total.done)
                    else None
                )
                if since is not None and now - since >= self._rules.grace:
                    logger.warning("%d of %d trials are done: the rest is cancelled", total.done, total.begun)
                    self.late.set()
            await asyncio.sleep(min(max(self._rules.grace / _POLLS, _POLL_S[0]), _POLL_S[1]))

    def _total(self) -> Counts:
        total = Counts()
        for file in self._folder.glob("*.json"):
            with contextlib.suppress(
                OSError, msgspec.DecodeError
            ):  # being replaced, on storage without atomic renames
                one = decode_json(read_regular(file), type=Counts)
                total = Counts(total.begun + one.begun, total.done + one.done)
        return total
