"""The rule for a policy that one update has broken, and what keeps others from telling its consequences. Pure.

From one step to the next nearly all replies run into their limit, or the entropy is another by an order of magnitude,
and it stays so. A policy that gets worse step by step is for other rules (``gone_astray``, ``metrics``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import NamedTuple

from liverl.diagnose.catalogue.course import IN_A_ROW, evidence
from liverl.diagnose.catalogue.go_back import GO_BACK
from liverl.diagnose.muting import mutes
from liverl.diagnose.tracker import SHOWN, Evaluate, Resolved, Window
from liverl.model import StepMetrics, Symptom
from liverl.observe.metrics.names import keys_of
from liverl.observe.metrics.recent import RecentSteps

# The limits are estimates. The one run that was recorded (tests/data/learning/update-too-large.jsonl) had 1.6% and then
# 100% of the replies at their limit, replies of 11 and then 512 tokens, and an entropy of 0.118 and then 0.007; from
# step to step a healthy run's change by less than half.
NEARLY_ALL, FEW = 0.9, 0.25  # share of the replies at their limit, behind the update and before it
AN_ORDER = 10.0  # times the entropy, or one so many times smaller
CHANGED = 3.0  # the same, where the replies alone say it: tools that fail make replies long, too
LONGER = 4.0  # times the mean reply
NO_ENTROPY = 0.02  # below that before and behind it, the factor between the two says nothing
OTHER_TASKS = 2.0  # factor between the mean prompts: the tasks were changed, and not the policy alone
# Of steps long ago only means are kept, of twice as many each time. Of more than these, a change within them may have
# been slow; a run has some 500 steps behind its update then.
THINNED = 8
FURTHER = 2  # steps behind the first, in which it must hold as well
BEFORE = 3  # steps before it, with each of which it is compared
USUAL_RATE = 1e-5  # of a whole model; verl's default is a tenth of it
_ID = "policy_broken"
_CUT, _MEAN, _MAX = "response_length/clip_ratio", "response_length/mean", "response_length/max"
_PROMPT, _RATE = "prompt_length/mean", "actor/lr"


class Break(NamedTuple):
    """``before`` and ``after``: the steps before and behind the update that broke the policy; ``entropy``: the metric,
    "" without one."""

    before: StepMetrics
    after: tuple[StepMetrics, ...]
    entropy: str


def policy_broken(window: Window) -> Iterator[Symptom | Resolved]:
    """From one step to the next two of these came, and stayed for at least two more steps: nearly all replies end at
    their limit, where few did; the mean reply is four times as long; the entropy is a tenth, or ten times what it was.
    Replies alone do not say it while the entropy stays as it was: tools that fail make them long, too. It is not raised
    where the limit of the replies or the tasks were changed.

    - ``actor/lr`` is above 1e-5, and no LoRA adapter is trained -> the learning rate is the cause: set
      ``algorithm.learning_rate`` to 1e-6
    - a LoRA adapter is trained -> a rate of up to 3e-4 is usual; lower it to a third
    - ``actor/lr`` is as usual, and ``actor/grad_norm`` of the step was far above that of others -> a batch with extreme
      rewards or advantages: look at its trials, and set ``actor_rollout_ref.actor.grad_clip`` to 1.0 or lower
    - neither -> see what else changed at that step (``liverl-tui events``): replicas that were started again with other
      weights answer like a broken policy, too
    """
    found = broken_at(window.beside.recent)
    if found is None:
        return
    broken, first, rate = found.before.step, found.after[0].step, found.before.values.get(_RATE)
    yield Symptom(
        id="policy_broken",
        severity="critical",
        title=f"the policy was broken by the update of step {broken}"
        if first - broken == 1
        else f"the policy was broken between steps {broken} and {first}",
        cause=f"since step {first} {_signs(found)}: this update changed the weights so much that the "
        "policy writes nothing of use; what is trained since is lost, and alerts on gradient, entropy, "
        "probabilities or lengths would only tell what follows from it",
        fix=f"stop the run; {_rate_words(rate)}; {_way_back(broken)}",
        evidence=(
            *evidence((found.before,), _RATE),
            *(one for key in (_CUT, _MEAN) for one in evidence(found.after[:1], key)),
            *evidence((found.before, *found.after[: 1 + FURTHER]), found.entropy),
        )[:SHOWN],
        step=broken,
    )


def broken_at(recent: RecentSteps, further: int = FURTHER) -> Break | None:
    """The update that broke the policy, which is still so in the newest steps; None if none did. ``further``: steps
    behind the first one that must be known."""
    steps = [one for one in (*recent.earlier, *recent.steps) if _MEAN in one.values or _CUT in one.values]
    if not steps or not _may_be_broken(steps):
        return None
    entropy = next((key for key in keys_of("entropy") if any(key in one.values for one in steps)), "")
    for at in range(1, len(steps) - further):
        last, first = steps[at - 1].step, steps[at].step
        if first - last > THINNED:
            continue
        before = steps[max(0, at - BEFORE) : at]
        # The mean of several steps may be of some before the update and of some behind it.
        for after in (steps[at:], steps[at + 1 :]) if first - last > 1 else (steps[at:],):
            judged = (*after[: 1 + FURTHER], *after[-IN_A_ROW:])
            broken = len(after) > further and all(_is_broken(before, one, entropy) for one in judged)
            if broken and not _reconfigured(steps[:at], after):
                return Break(before[-1], tuple(after), entropy)
    return None


def silent_while_broken(rule: Evaluate) -> Evaluate:
    """Of a rule on what a broken policy brings about: it is silent while ``policy_broken`` tells the cause, and in the
    steps in which that waits to be sure."""

    @wraps(rule)
    def look(window: Window) -> Iterator[Symptom | Resolved]:
        if mutes(window.beside.mute, _ID) or broken_at(window.beside.recent, 0) is None:
            yield from rule(window)

    return look


def _may_be_broken(steps: Sequence[StepMetrics]) -> bool:
    """Whether the replies of the newest step are such as a break asks for at least; most runs need no closer look."""
    now = steps[-1].values
    shortest = min((one.values[_MEAN] for one in steps if _MEAN in one.values), default=0.0)
    return now.get(_CUT, 0.0) >= NEARLY_ALL or now.get(_MEAN, 0.0) >= LONGER * shortest


def _is_broken(before: Sequence[StepMetrics], step: StepMetrics, entropy: str) -> bool:
    cut = _beside(before, step, _CUT, lambda was, now: was <= FEW and now >= NEARLY_ALL)
    cut = cut and _beside(before, step, _MAX, lambda was, now: was <= now)
    longer = _beside(before, step, _MEAN, lambda was, now: 0.0 < was * LONGER <= now)
    if not cut and not longer:
        return False
    if _beside(before, step, entropy, lambda was, now: _differ(was, now, AN_ORDER)):
        return True
    known = entropy in step.values
    changed = _beside(before, step, entropy, lambda was, now: _differ(was, now, CHANGED))
    return cut and longer and (changed or not known)


def _differ(was: float, now: float, factor: float) -> bool:
    low, high = sorted((was, now))
    return high >= NO_ENTROPY and low * factor <= high


def _beside(
    before: Sequence[StepMetrics], step: StepMetrics, key: str, holds: Callable[[float, float], bool]
) -> bool:
    """Whether a metric of a step differs as asked from that of each step before; False if one lacks it."""
    now = step.values.get(key)
    if now is None:
        return False
    return all((was := one.values.get(key)) is not None and holds(was, now) for one in before)


def _reconfigured(before: Sequence[StepMetrics], after: Sequence[StepMetrics]) -> bool:
    """Whether replies are longer than the limit that held before, or the prompts are others: then the run was started
    again with another configuration in between."""
    longest = [one.values[_MAX] for one in before if _MAX in one.values]
    limit = max(longest, default=0.0)
    if longest.count(limit) > 1 and any(one.values.get(_MAX, 0.0) > limit for one in after):
        return True
    was, now = before[-1].values.get(_PROMPT), after[0].values.get(_PROMPT)
    if was is None or now is None:
        return False
    low, high = sorted((was, now))
    return low * OTHER_TASKS <= high


def _signs(found: Break) -> str:
    """What is other than before the update, each with its value before."""
    before, first = found.before.values, found.after[0].values
    words = []
    if _CUT in before and first.get(_CUT, 0.0) >= NEARLY_ALL:
        words.append(f"{first[_CUT]:.0%} of the replies end at their limit ({before[_CUT]:.0%} before)")
    if _MEAN in before and _MEAN in first:
        words.append(f"the mean reply has {first[_MEAN]:.0f} tokens ({before[_MEAN]:.0f} before)")
    if found.entropy in before and found.entropy in first:
        words.append(f"the entropy is {first[found.entropy]:.2g} ({before[found.entropy]:.2g} before)")
    return ", ".join(words)


def _rate_words(rate: float | None) -> str:
    if rate is None:
        return "lower algorithm.learning_rate (verl's default is 1e-6)"
    if rate > USUAL_RATE:
        return (
            f"lower algorithm.learning_rate, which was {rate:g} in that step (actor/lr): verl's default is 1e-6, and "
            "with LoRA up to 3e-4 is usual"
        )
    return (
        f"algorithm.learning_rate was {rate:g} in that step (actor/lr; verl's default is 1e-6): halve it, and set "
        "actor_rollout_ref.actor.grad_clip to 1.0 or lower (in trainer.overrides), since a batch with extreme rewards "
        "may have made the update so large"
    )


def _way_back(broken: int) -> str:
    if broken <= 1:
        return "then start anew: no checkpoint was written before it"
    return (
        f"then resume from a checkpoint of step {broken - 1} or earlier, since that of step {broken} has the broken "
        f"weights; {GO_BACK}"
    )
