"""verl 0.9.1 plug-in: how the trials of a step ended, in the metrics that verl logs for it.

Only ``Tracking.log`` is changed, in all of verl's processes; the trainer's is the one that calls it. The numbers are
those which the agent-loop workers have written (``step_endings``): each trial counts in the first step that is
logged after it ended, so with a trainer that rolls out ahead it may count in a later step than its own. Rows that
pad a batch have no trial and never count.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liverl.agents.endings import CAUSES, OUTCOMES
from liverl.verl_runtime.step_endings import FOLDER, STEP, Counts, read_step

logger = logging.getLogger(__name__)

REWARD = "liverl/reward/mean"  # of the trials that a step is trained on, each once; verl's own is of rows
_OF_A_STEP = "training/global_step"  # verl's metric that only a training step has, not a validation before it
_QUEUED = "fully_async/"  # begins metrics of the trainer that takes its trials from a queue
_AHEAD = 20  # steps: a trial that ends later than so many steps after its own is not counted


class StepMetrics:
    """The numbers that were not logged before. ``folder``: of one start of the trainer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: dict[str, Counts] = {}

    def take(self, step: int) -> dict[str, float]:
        """Those of the step that is about to be logged."""
        fresh, own = Counts(), Counts()
        for folder in self._steps(step):
            now, before = read_step(folder), self._told.get(folder.name, Counts())
            self._told[folder.name] = now
            fresh.add(_less(now, before))
            if int(folder.name.removeprefix(STEP)) == step and before == Counts():
                own = now
        # Of a trainer that rolls out ahead, the trials that have ended are not those that the step was trained on.
        exact = 0 < own.rewarded == fresh.rewarded
        return metrics_of(fresh) | ({REWARD: own.rewards / own.rewarded} if exact else {})

    def _steps(self, step: int) -> Iterator[Path]:
        for folder in self._folder.glob(f"{STEP}*"):
            number = folder.name.removeprefix(STEP)
            if number.isdigit() and int(number) > step - _AHEAD:
                yield folder


def metrics_of(counts: Counts) -> dict[str, float]:
    """verl's metrics of some trials; what none has is 0."""
    found: dict[str, float] = {f"liverl/endings/{cause}": counts.causes.get(cause, 0) for cause in CAUSES}
    for outcome in OUTCOMES:
        found[f"liverl/endings/{outcome}"] = counts.outcomes.get(outcome, 0)
    for reason, tokens in sorted(counts.not_trained.items()):
        found[f"liverl/not_trained/{reason}"] = tokens
    found["liverl/asides"] = counts.asides
    return found


def _less(now: Counts, before: Counts) -> Counts:
    return Counts(
        causes=_differences(now.causes, before.causes),
        outcomes=_differences(now.outcomes, before.outcomes),
        not_trained=_differences(now.not_trained, before.not_trained),
        asides=now.asides - before.asides,
        rewarded=now.rewarded - before.rewarded,
        rewards=now.rewards - before.rewards,
    )


def _differences(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: number - before.get(name, 0) for name, number in now.items()}


def wrap(tracking: Any, metrics: StepMetrics) -> None:
    """Make ``tracking.log`` add the numbers of a step to what it logs. ``tracking``: verl's class ``Tracking``."""
    original = tracking.log

    @functools.wraps(original)
    def log(self: Any, data: Any, step: int, *more: Any, **fields: Any) -> Any:
        if isinstance(data, dict) and _OF_A_STEP in data:
            try:
                found = metrics.take(int(step))
                if any(str(key).startswith(_QUEUED) for key in data):
                    # A step is trained on what the queue gives, not on what has just ended.
                    found.pop(REWARD, None)
                data = {**data, **found}
            except Exception as error:  # noqa: BLE001 - a training step does not fail because of a count
                logger.error(
                    "the endings of step %s are not logged: %s: %s", step, type(error).__name__, error
                )
        return original(self, data, step, *more, **fields)

    tracking.log = log


def _install() -> None:
    folder = os.environ.get(FOLDER)
    if folder:
        from verl.utils.tracking import Tracking

        wrap(Tracking, StepMetrics(Path(folder)))


_install()
