"""Rules for what the policy learns from: rewards, and what the trainer measures of itself. Pure.

The limits are those of the reference documents: verl's FAQ, and the pages on scaling and on training.
"""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import FEWEST, SHOWN, Resolved, Window
from liverl.model import Snapshot, StepTrials, Symptom

PROBS_DIFF = 0.01  # verl's FAQ: below 0.005 is normal, above this the engine's precision is off
PEARSON = 0.99  # of the probabilities that engine and trainer give a token; 0.999 is usual
ROLLOUT_KL = 0.01  # 3e-4 is usual
# Mean difference below which a correlation means nothing; healthy runs on H200 had up to 0.0014.
PEARSON_FROM = 0.002
BROKEN_PEARSON = 0.9  # 0.75 was seen where routing was corrupted: what is learned then is noise
DROPPED = 0.1  # share of trajectories that a filter takes out


def rewards_equal(seen: Window) -> Iterator[Symptom | Resolved]:
    """The newest complete step, unless its trials called no tool: that is the cause then."""
    now = seen.now
    step = _complete_step(now)
    if step is None or 2 * step.zero_tool_calls >= step.judged:
        return
    reward = _only_reward(now, step)
    if reward is None:
        return
    low = reward <= 0.0
    heads = [h for h in now.trials.newest if h.step == step.step]
    yield Symptom(
        id="rewards_equal",
        severity="warning" if low else "info",
        title="a step without a learning signal",
        cause=f"every trial of step {step.step} has the reward {reward:g}: all advantages are zero, and the policy "
        "learns nothing from it",
        fix="look at a trial's tool results and at its verifier: tools that do nothing and tasks that are too hard "
        "look alike"
        if low
        else "the tasks of this step are solved: harder ones would teach more",
        evidence=tuple(f"{head.path}: reward {reward:g}" for head in heads[:SHOWN]),
        since=max(head.updated_at for head in heads),
    )


def rollout_mismatch(seen: Window) -> Iterator[Symptom | Resolved]:
    """The engine and the trainer give the same tokens different probabilities."""
    metrics = seen.now.metrics
    if metrics is None:
        return
    diff = metrics.values.get("training/rollout_probs_diff_mean")
    pearson = metrics.values.get("training/rollout_actor_probs_pearson_corr")
    kl = metrics.values.get("rollout_corr/kl")
    off: list[str] = []
    if diff is not None and diff > PROBS_DIFF:
        off.append(f"training/rollout_probs_diff_mean {diff:.4g}, over {PROBS_DIFF}")
    if diff is not None and diff < PEARSON_FROM:
        pearson = None  # where all probabilities are nearly 1, their noise has no correlation
    if pearson is not None and pearson < PEARSON:
        off.append(f"training/rollout_actor_probs_pearson_corr {pearson:.4g}, under {PEARSON}")
    if kl is not None and abs(kl) > ROLLOUT_KL:
        off.append(f"rollout_corr/kl {kl:.4g}, over {ROLLOUT_KL}")
    if not off:
        return
    broken = pearson is not None and pearson < BROKEN_PEARSON
    yield Symptom(
        id="rollout_mismatch",
        severity="critical" if broken else "warning",
        title="engine and trainer disagree on probabilities",
        cause=f"in step {metrics.step} {off[0]}: the policy is updated with tokens that it would not have written so; "
        "grad_norm then rises steadily",
        fix="with GPUs other than Hopper and long texts: set verl.disable_cascade_attn to true; else compare the "
        "data types of engine and trainer, the chat template with what the agents send, and with experts the routing "
        "replay; "
        "where rollouts run ahead of the trainer (standalone, async) a part of it is their age",
        evidence=tuple(off),
    )


def learning_rate_zero(seen: Window) -> Iterator[Symptom | Resolved]:
    """Not in the first step, as a warm-up may begin at zero, nor in the last one, where a decay may end there."""
    metrics, total = seen.now.metrics, seen.now.total_steps
    if metrics is None or total is None or not 2 <= metrics.step < total:
        return
    if metrics.values.get("actor/lr") == 0.0:
        yield Symptom(
            id="learning_rate_zero",
            severity="critical",
            title="the policy does not learn",
            cause=f"actor/lr is 0 in step {metrics.step}: no update changes the weights",
            fix="algorithm.learning_rate must be above 0, and a schedule that decays must know training.total_steps",
            evidence=(f"step {metrics.step}: actor/lr 0",),
        )


def trajectories_dropped(seen: Window) -> Iterator[Symptom | Resolved]:
    metrics = seen.now.metrics
    share = metrics.values.get("trajectory_filter/invalid_ratio") if metrics is not None else None
    if metrics is None or share is None or share <= DROPPED:
        return
    prefix = "trajectory_filter/reason/"
    reasons = sorted(
        ((v, k.removeprefix(prefix)) for k, v in metrics.values.items() if k.startswith(prefix)), reverse=True
    )
    yield Symptom(
        id="trajectories_dropped",
        severity="warning",
        title="trajectories are dropped before the update",
        cause=f"{share:.0%} of step {metrics.step}: the policy learns from what is left, whose rewards and lengths are "
        "not those of the whole",
        fix="look at the reasons first; env_setup_failed and timeout are the sandboxes', not the model's",
        evidence=tuple(f"{name}: {number:g}" for number, name in reasons[:SHOWN])
        or (f"trajectory_filter/invalid_ratio {share:.3g}",),
    )


# --- joins ----------------------------------------------------------------------------------------------


def _complete_step(now: Snapshot) -> StepTrials | None:
    """The newest step whose trials are all in."""
    newest = now.trials.steps[0].step if now.trials.steps else 0
    for step in now.trials.steps:
        over = step.step < newest or (now.step is not None and step.step <= now.step)
        if over and step.finished == step.total >= FEWEST:
            return step
    return None


def _only_reward(now: Snapshot, step: StepTrials) -> float | None:
    """The reward that every trial of the step got; None if they differ, or are not known."""
    rewards = [h.reward for h in now.trials.newest if h.step == step.step and h.reward is not None]
    mean = step.mean_reward
    if len(rewards) < FEWEST or mean is None or min(rewards) != max(rewards):
        return None
    # The newest trials are not all of a large step, but the mean is over all of it.
    return rewards[0] if abs(mean - rewards[0]) < 1e-9 else None
