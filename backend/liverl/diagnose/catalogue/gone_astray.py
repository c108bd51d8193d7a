"""Rules for a policy that goes astray: its reward falls, its entropy or its replies grow meanwhile. Pure.

The reference documents give no limits for these, so each is compared with the run's own best. None is raised while the
reward holds: an entropy bonus, exploration, longer reasoning and a length curriculum raise the same metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.course import (
    SMOOTH,
    Rise,
    evidence,
    key_of,
    newest,
    reward_course,
    reward_falls,
    reward_words,
    rise,
    tells,
)
from liverl.diagnose.catalogue.go_back import GO_BACK
from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import Symptom
from liverl.observe.metrics.names import keys_of
from liverl.observe.metrics.recent import RecentSteps
from liverl.util.trend import LEAST

TWICE = 2.0  # times the lowest entropy; an estimate, marin #7784 had 25 times
LONGER = 3.0  # times the shortest mean response; an estimate
A_THIRD = 3.0  # the reward has fallen below its best divided by this ...
FALLEN_STEPS = 5  # ... in so many steps in a row
# ... and by so many standard errors of a mean of ``SMOOTH`` steps: rare rewards have high means by chance.
SURE_FALL = 6.0
_LENGTH = "response_length/mean"


@silent_while_broken
def entropy_rises(window: Window) -> Iterator[Symptom | Resolved]:
    """The entropy is at least twice its lowest and grows, while the reward falls."""
    recent = window.beside.recent
    found = _rises(recent, keys_of("entropy"), TWICE)
    if found is None:
        return
    yield Symptom(
        id="entropy_rises",
        severity=_severity(recent),
        title=f"the entropy has risen from {found.low:.3g} to {found.now:.3g}",
        cause=f"{found.key} has grown since step {found.left} ({found.t}) while the reward fell from "
        f"{reward_words(recent, found.left)}: the policy writes more and more at random",
        fix=f"stop the run; resume from a checkpoint of step {found.left} or earlier with half of "
        "algorithm.learning_rate, algorithm.entropy_coeff: 0.0 and algorithm.use_kl_loss: true; " + GO_BACK,
        evidence=evidence(recent.steps[-SHOWN:], found.key),
    )


@silent_while_broken
def length_explodes(window: Window) -> Iterator[Symptom | Resolved]:
    """Responses are at least three times as long as at their shortest and grow, while the reward falls."""
    recent = window.beside.recent
    found = _rises(recent, (_LENGTH,), LONGER)
    if found is None:
        return
    yield Symptom(
        id="length_explodes",
        severity=_severity(recent),
        title=f"responses have grown from {found.low:.0f} to {found.now:.0f} tokens",
        cause=f"{found.key} has grown since step {found.left} ({found.t}) while the reward fell from "
        f"{reward_words(recent, found.left)}: the policy repeats itself, or has learned not to finish",
        fix=f"open the longest trials; then resume from a checkpoint of step {found.left} or earlier with half of "
        "algorithm.learning_rate, and a reward of 0 for responses that reach training.max_response_length; "
        + GO_BACK,
        evidence=evidence(recent.steps[-SHOWN:], found.key),
    )


@silent_while_broken
def reward_fell(window: Window) -> Iterator[Symptom | Resolved]:
    """In each of the newest five steps the reward was below a third of its best mean of five steps. It is not raised
    if another alert says what the policy does instead."""
    recent = window.beside.recent
    best = fallen_from(recent)
    if best is None or tells(entropy_rises, window) or tells(length_explodes, window):
        return
    step, value = best
    key = key_of(recent, keys_of("reward"))
    assert key is not None
    steps = newest(recent, key, FALLEN_STEPS)
    now = fmean(one.values[key] for one in steps)
    yield Symptom(
        id="reward_fell",
        severity="warning",
        title=f"the reward has fallen from {value:.3g} to {now:.3g}",
        cause=f"{key} was {value:.3g} from step {step} on, its best over {SMOOTH} steps, and less than a third of that "
        f"in each of the last {FALLEN_STEPS} steps",
        fix="rule out the infrastructure first: compare trajectory_filter/reason/*, time-outs and the verifier's "
        f"output with those of step {step}; if they are the same, and the tasks are no harder, resume from a "
        f"checkpoint of step {step} with half of algorithm.learning_rate",
        evidence=evidence(recent.steps[-SHOWN:], key),
    )


def fallen_from(recent: RecentSteps) -> tuple[int, float] | None:
    """The step from which on the reward was best, and its mean over ``SMOOTH`` steps, if the reward has fallen below a
    third of it for ``FALLEN_STEPS`` steps by more than chance explains; None otherwise. Of negative rewards the best is
    the one nearest to zero, and three times as much has fallen below it."""
    points = reward_course(recent)
    key = key_of(recent, keys_of("reward"))
    if key is None or len(points) < LEAST + FALLEN_STEPS:
        return None
    steps = newest(recent, key, FALLEN_STEPS)
    means = [
        (int(points[at][0]), fmean(value for _, value in points[at : at + SMOOTH]))
        for at in range(len(points) - FALLEN_STEPS - SMOOTH + 1)
    ]
    step, best = max(means, key=lambda mean: (mean[1], mean[0]))
    limit = best / A_THIRD if best > 0.0 else best * A_THIRD
    values = [one.values[key] for one in steps]
    if not values or best == 0.0 or max(values) >= limit:
        return None
    # The steps differ from one to the next by chance only, whatever the reward does over many of them.
    changes = [later - earlier for (_, earlier), (_, later) in pairwise(points)]
    noise = stdev(changes) / sqrt(2.0) / sqrt(SMOOTH)
    return (step, best) if best - fmean(values) > SURE_FALL * noise else None


def _rises(recent: RecentSteps, keys: tuple[str, ...], factor: float) -> Rise | None:
    """A metric that has risen by a factor from its lowest, while the reward fell."""
    key = key_of(recent, keys)
    found = rise(key, recent.course(key)) if key is not None else None
    if found is None or found.factor < factor or not found.sure:
        return None
    return found if reward_falls(recent, found.since) else None


def _severity(recent: RecentSteps) -> Literal["warning", "critical"]:
    return "critical" if fallen_from(recent) is not None else "warning"
