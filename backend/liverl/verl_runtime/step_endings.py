"""How the trials of a step ended, counted over all agent-loop workers by a file of each: for an ending that many trials
share, and for verl's metrics.

Independent of verl; for Python 3.10 with few packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from liverl.agents.endings import Ending, enough
from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_regular

logger = logging.getLogger(__name__)

FOLDER = "LIVERL_ENDINGS"  # variable of verl's processes: the folder of this start of the trainer
STEP = "step_"  # begins the name of a step's folder in it
_POLL_S = (0.05, 1.0)  # seconds between two looks at the other workers: at first, at most; doubled each time
_LATE_S = 10.0  # seconds after a worker's first trial of a step in which the others may still begin theirs


class Counts(msgspec.Struct, omit_defaults=True):
    """Of a step. ``trials``: begun; ``begun``, ``ended``: attempts at them; ``same``: trials by how an attempt at them
    ended, see ``endings.counts_together``. Of trials whose result is known: ``causes``, ``outcomes`` with those of
    attempts that are run again, sampled tokens that are ``not_trained`` by the reason, ``asides``, replies
    beside the conversation, and the ``rewards``, added up, of the ``rewarded`` ones: those that are trained."""

    trials: int = 0
    begun: int = 0
    ended: int = 0
    same: dict[str, int] = {}
    causes: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    not_trained: dict[str, int] = {}
    asides: int = 0
    rewarded: int = 0
    rewards: float = 0.0

    def add(self, other: Counts) -> None:
        """Add those of another worker or step."""
        self.trials += other.trials
        self.begun += other.begun
        self.ended += other.ended
        self.asides += other.asides
        self.rewarded += other.rewarded
        self.rewards += other.rewards
        for mine, others in (
            (self.same, other.same),
            (self.causes, other.causes),
            (self.outcomes, other.outcomes),
            (self.not_trained, other.not_trained),
        ):
            for name, number in others.items():
                mine[name] = mine.get(name, 0) + number


def together(several: Iterable[Counts]) -> Counts:
    """Counts added up."""
    total = Counts()
    for each in several:
        total.add(each)
    return total


def read_step(folder: Path) -> Counts:
    """The counts of all workers of one step. ``folder``: of the step."""
    total = Counts()
    for file in folder.glob("*.json"):
        # Being replaced, on storage without atomic renames.
        with contextlib.suppress(OSError, msgspec.DecodeError):
            total.add(decode_json(read_regular(file), type=Counts))
    return total


class StepEndings:
    """The trials of one step in this worker.

    ``folder``: of the step, None: nothing is counted beyond this worker; ``worker``: a name that no other has;
    ``planned``: trials of the step in all workers, 0 if that is not known.
    """

    def __init__(self, folder: Path | None, worker: str, planned: int) -> None:
        self._folder, self._worker, self._planned = folder, worker, planned
        self._own = Counts()
        self._began = time.monotonic()

    def begin(self, *, again: bool) -> None:
        """An attempt begins; ``again``: it is not the trial's first."""
        self._own.begun += 1
        self._own.trials += not again
        self._write()

    def end(self, same: str = "") -> None:
        """An attempt has ended, or was cancelled. ``same``: see ``Counts``; "" if an earlier attempt at the same trial
        ended like this one."""
        self._own.ended += 1
        if same:
            self._own.same[same] = self._own.same.get(same, 0) + 1
        self._write()

    def tell(self, ending: Ending, not_trained: Mapping[str, int], asides: int, reward: float | None) -> None:
        """What has become of an attempt. ``reward``: with which it is trained, if it is."""
        counts: list[tuple[dict[str, int], str, int]] = [(self._own.outcomes, ending.outcome, 1)]
        if ending.outcome != "repeated":
            counts.append((self._own.causes, ending.cause, 1))
        counts += [(self._own.not_trained, reason, tokens) for reason, tokens in not_trained.items()]
        for counted, name, number in counts:
            counted[name] = counted.get(name, 0) + number
        self._own.asides += asides
        if reward is not None and ending.outcome in ("trained", "zeroed"):
            self._own.rewarded += 1
            self._own.rewards += reward
        self._write()

    async def shared(self, same: str, most: float) -> tuple[int, int] | None:
        """How many trials of the step ended with ``same``, of how many, if they are so many that no agent is the
        cause; None if they are not. Waits until that is known, so that it does not depend on which of them ended
        first: at most until the step's last attempt has ended, and for ``most`` seconds."""
        give_up, wait = time.monotonic() + most, _POLL_S[0]
        while True:
            counts = await asyncio.get_running_loop().run_in_executor(None, self._total)
            number, total = counts.same.get(same, 0), max(counts.trials, self._planned)
            if enough(number, total):
                return number, total
            late = time.monotonic() - self._began < _LATE_S
            coming = max(0, self._planned - counts.trials) if late else 0
            undecided = counts.begun - counts.ended + coming
            if not enough(number + undecided, total) or time.monotonic() >= give_up:
                return None
            await asyncio.sleep(wait)
            wait = min(wait * 2, _POLL_S[1])

    def _total(self) -> Counts:
        if self._folder is None:
            return self._own
        total = read_step(self._folder)
        return total if total.begun else self._own

    def _write(self) -> None:
        if self._folder is None:
            return
        try:
            make_directory(self._folder)
            write_json(self._folder / f"{self._worker}.json", self._own)
        except OSError as error:  # a trial does not fail because it cannot be counted
            logger.error("the endings of step %s cannot be counted: %s", self._folder.name, error)


_STEPS: dict[tuple[Path | None, str], StepEndings] = {}


def of_step(attempt: Path, step: str, worker: str, planned: int) -> StepEndings:
    """The trials of a step in this worker. ``attempt``: directory of the run's attempt; ``step``: "" for a validation,
    whose trials are not counted."""
    if not step:
        return StepEndings(None, worker, 0)
    named = os.environ.get(FOLDER)
    start = Path(named) if named else attempt / "endings" / os.environ.get("LIVERL_GENERATION", "1")
    folder = start / step
    key = (folder, worker)
    if key not in _STEPS:
        _STEPS[key] = StepEndings(folder, worker, planned)
    return _STEPS[key]
