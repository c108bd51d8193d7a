"""Rules for the norm of the policy's gradient, which verl reports as it is before it is clipped. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.course import (
    beginning,
    evidence,
    latest,
    newest,
    reward_since,
    rise,
    tells,
    warmed_up,
)
from liverl.diagnose.catalogue.go_back import GO_BACK
from liverl.diagnose.catalogue.precision import weigh
from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import StepMetrics, Symptom
from liverl.observe.metrics.recent import RecentSteps

GROWN = 3.0  # times its lowest; an estimate: from step to step a healthy one is 0.2 to 0.5 (liverl.md §8)
HIGHER = 1.5  # times what it was in the first steps; an estimate, more than their noise
AN_ORDER = 10.0  # "an order below own baseline" (liverl.md §7 T4), here above it
KNOWN = 30  # steps before them, from which it is known what is usual
SPIKES, OF = 3, 10  # steps with a spike of so many newest ones: a single one is clipped and does no harm
PRECISE, IMPRECISE = (
    0.005,
    0.01,
)  # verl's FAQ: a mean difference of probabilities that is normal, and one that is not
_NORM, _DIFF = "actor/grad_norm", "training/rollout_probs_diff_mean"


@silent_while_broken
def gradient_grows(window: Window) -> Iterator[Symptom | Resolved]:
    """The gradient norm has grown to at least three times its lowest (verl's FAQ: "continuously increasing"), and is
    higher than in the first steps: one that comes back to where it began has not grown. It is not raised while the
    learning rate warms up, nor while the reward rises and engine and trainer agree: then more groups of trials have
    both successes and failures, and there is more to learn from.

    - the alert asks for ``verl.calculate_log_probs`` -> the difference between engine and trainer is not measured:
      set it for the next attempt, and look again
    - ``training/rollout_probs_diff_mean`` is above the limit that the alert names -> the precision of the engine is
      the cause: see ``rollout_mismatch``
    - it is below, and the reward holds -> halve ``algorithm.learning_rate`` for the next attempt
    - it is below, and the reward falls -> resume from a checkpoint before the growth, with ``algorithm.use_kl_loss:
      true`` or half of the learning rate
    """
    recent = window.beside.recent
    points = [point for point in warmed_up(recent, recent.course(_NORM)) if point[1] > 0.0]
    found = rise(_NORM, points)
    if found is None or not newest(recent, _NORM) or found.factor < GROWN or not found.sure:
        return
    if found.now < HIGHER * beginning(points)[1]:
        return
    if _more_to_learn(recent, found.since):
        return
    cause, fix = _why(window)
    yield Symptom(
        id="gradient_grows",
        severity="warning",
        title=f"the gradient norm has grown from {found.low:.3g} to {found.now:.3g}",
        cause=f"{_NORM} has grown since step {found.left} ({found.t} over {found.trend.points} steps); {cause}",
        fix=fix,
        evidence=(*evidence(recent.steps[-SHOWN:], _NORM), *evidence(recent.steps[-1:], _DIFF)),
    )


@silent_while_broken
def gradient_spikes(window: Window) -> Iterator[Symptom | Resolved]:
    """In at least three of the newest ten steps the gradient norm was ten times as high as it was in nine of ten steps
    before. It is not raised if the norm grows steadily (``gradient_grows``), nor while the reward rises."""
    recent = window.beside.recent
    spikes = _spikes(recent)
    if len(spikes) < SPIKES or _more_to_learn(recent, 0) or tells(gradient_grows, window):
        return
    highest = max(step.values[_NORM] for step in spikes)
    yield Symptom(
        id="gradient_spikes",
        severity="warning",
        title=f"the gradient norm spikes, up to {highest:.3g}",
        cause=f"in {len(spikes)} of the last {OF} steps {_NORM} was more than {AN_ORDER:.0f} times the 90th "
        "percentile of the steps before: a few samples with a very small probability or a very large advantage "
        "dominate the update",
        fix="look at the rewards and lengths of these steps' trials; then halve algorithm.learning_rate, and set "
        "actor_rollout_ref.actor.grad_clip to 1.0 or lower (in trainer.overrides)",
        evidence=evidence(spikes, _NORM),
    )


def _spikes(recent: RecentSteps) -> Sequence[StepMetrics]:
    """The newest steps with a spike. Where rewards are rare, many steps have nearly no gradient, and the others are no
    spikes: so nine of ten steps are looked at, and not their median."""
    before = sorted(value for _, value in recent.course(_NORM)[:-OF])
    if len(before) < KNOWN:
        return ()
    usual = before[len(before) * 9 // 10]
    newest_steps = [step for step in recent.steps if _NORM in step.values][-OF:]
    return [step for step in newest_steps if 0.0 < usual * AN_ORDER < step.values[_NORM]]


def _more_to_learn(recent: RecentSteps, since: int) -> bool:
    """Whether the reward has risen since a step, while engine and trainer agree as far as is known."""
    return reward_since(recent, since).grows and (latest(recent, _DIFF) or 0.0) <= IMPRECISE


def _why(window: Window) -> tuple[str, str]:
    """Cause and fix of a gradient that grows, by what is known of the precision of the engine (verl's FAQ)."""
    diff = latest(window.beside.recent, _DIFF)
    smaller = "halve algorithm.learning_rate, or set algorithm.use_kl_loss: true"
    if diff is None:
        return (
            "it is not known whether engine and trainer agree on probabilities",
            f"set verl.calculate_log_probs: true, then look at {_DIFF}: above {IMPRECISE} the engine's precision is "
            f"the cause; below {PRECISE}, {smaller}",
        )
    if diff < PRECISE:
        return (
            f"engine and trainer agree on probabilities ({_DIFF} {diff:.2g}, below {PRECISE} is normal), so the "
            "updates themselves are too large",
            f"{smaller}; resume from a checkpoint before the growth if the reward falls; {GO_BACK}",
        )
    weighed = weigh(window)
    sure = "which is too much" if diff > IMPRECISE else f"above {PRECISE}, the normal maximum"
    other = f"; cascade attention is ruled out: {', '.join(weighed.against)}" if weighed.against else ""
    return (
        f"engine and trainer disagree on probabilities ({_DIFF} {diff:.2g}, {sure}){other}",
        f"{weighed.fix}compare the data types of engine and trainer; until they agree, {smaller}",
    )
