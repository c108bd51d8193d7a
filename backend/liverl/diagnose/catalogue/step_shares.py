"""When a share of a step's trials can be judged while the step runs. Pure.

Trials that end first are not like the others: the shortest end first, and those that fail at once. So a rule that
says what *most* trials of a step do waits until most have ended. A rule that needs a number of trials only, or a share
of all trials of the step, to which those that still run count as well, need not wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from liverl.model import Snapshot, StepTrials

MOST = 0.75  # share of a step's trials that have ended


def is_over(now: Snapshot, step: StepTrials) -> bool:
    """Whether no trial of the step is yet to begin: the next step has begun, or the trainer is done with it."""
    newest = now.trials.steps[0].step if now.trials.steps else step.step
    return step.step < newest or (now.step is not None and step.step <= now.step)


def whole(now: Snapshot, step: StepTrials) -> int:
    """How many trials the step has, with those that have not begun, as far as that is known."""
    return step.total if is_over(now, step) else max(step.total, now.trials_per_step or 0)


def mostly_ended(now: Snapshot) -> Iterator[StepTrials]:
    """The steps of which most trials have ended, the newest first."""
    for step in now.trials.steps:
        if step.finished + step.cut_off >= MOST * whole(now, step):
            yield step
