"""Reads all trials of one step from its directory, and again when that has changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from liverl.model import TrialHead, TrialsStatus
from liverl_tui.widgets.base.trial_words import Tally

if TYPE_CHECKING:
    from liverl.observe.trials.starts import TrainerStarts

AGAIN_S = 5.0  # seconds between two readings of a running step, or 20 times as long as one reading takes


class Runs(Protocol):
    """Runs work in the background, as a widget does."""

    def __call__(self, work: Coroutine[Any, Any, None], *, group: str, exclusive: bool) -> object:
        """Run ``work``; ``exclusive``: cancel the other work of ``group`` first."""


class StepReader:
    """The step whose trials are all listed, and their heads.

    ``run``: runs a reading in the background. ``run_dir``: the run's directory. ``changed`` is called after a reading.
    """

    def __init__(self, run: Runs, run_dir: Callable[[], Path], changed: Callable[[], None]) -> None:
        self._run, self._run_dir, self._changed = run, run_dir, changed
        self.step: int | None = None  # None: no step, but the newest trials of all steps
        self.busy = False
        self.problem = ""  # why a reading failed, for the title
        self._read: dict[str, TrialHead] = {}  # by path
        self._starts: TrainerStarts | None = None  # of the trainer, as of the last reading
        self._read_at = self._read_took = 0.0  # end (monotonic) and seconds of the last reading

    def open(self, step: int) -> None:
        """Read the trials of ``step``."""
        self.step, self._read = step, {}
        self._read_at = self._read_took = 0.0
        self._begin()

    def close(self) -> None:
        """Go back to the newest trials."""
        self.step, self.busy = None, False

    def heads(self, status: TrialsStatus) -> list[TrialHead]:
        """All trials of the step, newest first: those that were read, updated by the heads of ``status``."""
        from liverl.observe.trials.cut_off import (  # not at the top: it would delay the first paint
            cut_off_head,
            of_present,
        )

        over = status.cut_off > 0  # trials whose files have no end will not be finished any more
        heads = {path: cut_off_head(head) if over else head for path, head in self._read.items()}
        for head in status.newest:
            if head.step == self.step:
                earlier = heads[head.path].earlier if head.path in heads else head.earlier
                heads[head.path] = msgspec.structs.replace(head, earlier=earlier)
        if self._starts is not None:  # of a step that is still to be begun again, all trials are earlier ones
            heads = {head.path: head for head in of_present(heads.values(), self._starts, status)}
        return sorted(heads.values(), key=lambda h: (h.started_at or h.updated_at, h.path), reverse=True)

    def refresh(self, status: TrialsStatus, tally: Tally) -> None:
        """Read the step again if ``status`` counts other trials of it than were read (``tally``), at most every
        ``AGAIN_S``."""
        if (
            self.step is None
            or self.busy
            or time.monotonic() < self._read_at + max(AGAIN_S, 20 * self._read_took)
        ):
            return
        step = next((s for s in status.steps if s.step == self.step), None)
        if step is not None and (step.total, step.running) != (tally.total, tally.running):
            self._begin()

    def _begin(self) -> None:
        self.busy = True
        assert self.step is not None
        self._run(self._read_step(self.step), group="trials-of-step", exclusive=True)

    async def _read_step(self, step: int) -> None:
        begun = time.monotonic()
        heads: list[TrialHead] = []
        starts: TrainerStarts | None = None
        try:
            heads, starts = await asyncio.to_thread(_heads_and_starts, self._run_dir(), step)
            problem = ""
        except OSError as error:
            problem = _read_problem(error)
        if step != self.step:
            return  # another step was chosen meanwhile
        self._read, self._starts = {head.path: head for head in heads}, starts
        self.busy, self.problem = False, problem
        self._read_at = time.monotonic()
        self._read_took = self._read_at - begun
        self._changed()

    async def neighbour(self, by: int, known: Sequence[int]) -> int | None:
        """The next older (-1) or newer (1) step; from the newest trials, the last step. None if there is none.
        ``known``: steps that may have no directory yet. A directory that cannot be read is a ``problem``."""
        from liverl.observe.trials.steps import steps_on_disk  # as in ``heads``

        try:
            on_disk = await asyncio.to_thread(steps_on_disk, self._run_dir())
        except OSError as error:
            self.problem = _read_problem(error)
            self._changed()
            return self.step
        steps, here = sorted({*on_disk, *known}), self.step
        if here is None:
            found = steps[-1:] if by < 0 else []
        else:
            found = [s for s in steps if s < here][-1:] if by < 0 else [s for s in steps if s > here][:1]
        return found[0] if found else None


def _heads_and_starts(run_dir: Path, step: int) -> tuple[list[TrialHead], TrainerStarts]:
    """All trials of a step, and the starts of the trainer that ran them. Blocking."""
    from liverl.observe.trials.starts import TrainerStarts  # as in ``heads``
    from liverl.observe.trials.steps import heads_of_step

    starts = TrainerStarts(run_dir)
    starts.poll()
    return heads_of_step(run_dir, step), starts


def _read_problem(error: OSError) -> str:
    return f"▲ cannot read {error.filename or 'the trials'}: {error.strerror or error}"
