"""GRPO on the categorical policy: group-relative advantages, clipped ratio, Adam. Pure computation.

Definitions follow verl: losses, entropy and KL are means over the tokens with response mask 1, the ratio is
per token, advantages are (reward - group mean) / (group standard deviation + 1e-6).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec

from liverl.agents.tools import TOOL_NAMES
from liverl.embedded.policy import Logits, Policy
from liverl.embedded.tokenizer import decision

_EPSILON = 1e-6
_BETA1, _BETA2, _ADAM_EPSILON = 0.9, 0.999, 1e-8
_GRAD_CLIP = 1.0  # norm; verl's default actor.grad_clip


class TurnSample(msgspec.Struct):
    """One assistant turn, generated in ``state``; ``mask`` is 1 for tokens that are trained on."""

    state: str
    tokens: list[int]
    old_logprobs: list[float]
    mask: list[int]


class TrialSample(msgspec.Struct):
    """The turns and the reward of one trial."""

    group: int  # same for all trials of a prompt
    reward: float
    turns: list[TurnSample]
    advantage: float = 0.0


class AdamState(msgspec.Struct):
    """First and second moments, keyed like the logits, and the number of optimiser steps taken."""

    steps: int = 0
    first: Logits = {}
    second: Logits = {}


def require_valid_tokens(trials: Sequence[TrialSample]) -> None:
    """Check that the batch has tokens to train on.

    Raises:
        ValueError: every token is masked; worded as in verl.
    """
    if not any(1 in turn.mask for trial in trials for turn in trial.turns):
        raise ValueError("response_mask must contain at least one valid token (1).")


def set_advantages(trials: Sequence[TrialSample]) -> None:
    """Set group-relative advantages; 0 for a group whose rewards are all the same."""
    groups: dict[int, list[TrialSample]] = {}
    for trial in trials:
        groups.setdefault(trial.group, []).append(trial)
    for group in groups.values():
        mean = math.fsum(t.reward for t in group) / len(group)
        variance = math.fsum((t.reward - mean) ** 2 for t in group) / max(len(group) - 1, 1)
        deviation = math.sqrt(variance)
        for trial in group:
            trial.advantage = (trial.reward - mean) / (deviation + _EPSILON) if deviation > 0 else 0.0


def agreement(policy: Policy, trials: Sequence[TrialSample], temperature: float) -> dict[str, float]:
    """Compare the rollout's probabilities with the trainer's own, over trained tokens; returns verl's
    metrics."""
    rollout, actor = [], []
    for turn in (turn for trial in trials for turn in trial.turns):
        own = policy.token_logprobs(turn.state, turn.tokens, temperature)
        for old, new, mask in zip(turn.old_logprobs, own, turn.mask, strict=True):
            if mask:
                rollout.append(math.exp(old))
                actor.append(math.exp(new))
    difference = [abs(a - b) for a, b in zip(rollout, actor, strict=True)]
    mean = math.fsum(difference) / len(difference)
    variance = math.fsum((d - mean) ** 2 for d in difference) / max(len(difference) - 1, 1)
    return {
        "training/rollout_probs_diff_valid": 1.0,
        "training/rollout_probs_diff_max": max(difference),
        "training/rollout_probs_diff_mean": mean,
        "training/rollout_probs_diff_std": math.sqrt(variance),
        "training/rollout_actor_probs_pearson_corr": _pearson(rollout, actor),
    }


def _pearson(xs: Sequence[float], ys: Sequence[float]) -> float:
    mx, my = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    sxx = math.fsum((x - mx) ** 2 for x in xs)
    syy = math.fsum((y - my) ** 2 for y in ys)
    sxy = math.fsum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True))
    # All probabilities on one side are the same: the correlation is undefined.
    return sxy / math.sqrt(sxx * syy) if sxx > 0 and syy > 0 else math.nan


def update(
    policy: Policy,
    adam: AdamState,
    trials: Sequence[TrialSample],
    *,
    trials_per_mini_batch: int,
    learning_rate: float,
    clip_low: float,
    clip_high: float,
    temperature: float,
    rng: random.Random,
) -> dict[str, float]:
    """Train one pass over ``trials`` in shuffled mini-batches; changes ``policy`` and ``adam`` in place.

    Returns verl's ``actor/*`` metrics, averaged over the mini-batches.
    """
    order = list(trials)
    rng.shuffle(order)
    totals: dict[str, float] = {}
    batches = 0
    for start in range(0, len(order), trials_per_mini_batch):
        turns = [
            (t, trial.advantage)
            for trial in order[start : start + trials_per_mini_batch]
            for t in trial.turns
        ]
        if not any(1 in turn.mask for turn, _ in turns):
            continue
        gradient, metrics = _gradient(policy, turns, clip_low, clip_high, temperature)
        metrics["actor/grad_norm"] = _apply(policy, adam, gradient, learning_rate)
        batches += 1
        for key, value in metrics.items():
            totals[key] = totals.get(key, 0.0) + value
    averaged = {key: value / batches for key, value in totals.items()}
    return {**averaged, "actor/loss": averaged["actor/pg_loss"], "actor/lr": learning_rate}


def _gradient(
    policy: Policy,
    turns: Sequence[tuple[TurnSample, float]],
    clip_low: float,
    clip_high: float,
    temperature: float,
) -> tuple[Logits, dict[str, float]]:
    gradient: Logits = {}
    count = sum(sum(turn.mask) for turn, _ in turns)
    loss = kl = clipped = entropy = 0.0
    for turn, advantage in turns:
        if 1 not in turn.mask:
            continue
        probabilities = policy.probabilities(turn.state, TOOL_NAMES, temperature)
        new = policy.token_logprobs(turn.state, turn.tokens, temperature)
        choice = decision(turn.tokens)
        for position, (old, now, mask) in enumerate(zip(turn.old_logprobs, new, turn.mask, strict=True)):
            if not mask:
                continue
            ratio = math.exp(now - old)
            bounded = min(max(ratio, 1 - clip_low), 1 + clip_high)
            surrogate = min(ratio * advantage, bounded * advantage)
            is_clipped = bounded * advantage < ratio * advantage
            loss -= surrogate / count
            kl += (old - now) / count
            clipped += is_clipped / count
            if choice is None or position != choice[0]:
                continue
            entropy -= math.fsum(p * math.log(p) for p in probabilities if p > 0) / count
            if advantage and not is_clipped:
                row = gradient.setdefault(turn.state, dict.fromkeys(TOOL_NAMES, 0.0))
                scale = advantage * ratio / (count * temperature)
                for name, probability in zip(TOOL_NAMES, probabilities, strict=True):
                    row[name] -= scale * ((name == choice[1]) - probability)
    return gradient, {
        "actor/pg_loss": loss,
        "actor/ppo_kl": kl,
        "actor/pg_clipfrac": clipped,
        "actor/entropy": entropy,
    }


def _apply(policy: Policy, adam: AdamState, gradient: Logits, learning_rate: float) -> float:
    """Do one Adam step, as verl does none if the gradient is not finite; returns its norm before clipping."""
    norm = math.sqrt(math.fsum(g * g for row in gradient.values() for g in row.values()))
    if not math.isfinite(norm):
        print(f"WARN: grad_norm is not finite: {norm}", flush=True)
        return norm
    scale = min(1.0, _GRAD_CLIP / norm) if norm > 0 else 0.0
    adam.steps += 1
    correct1, correct2 = 1 - _BETA1**adam.steps, 1 - _BETA2**adam.steps
    for state in {**adam.first, **gradient}:
        first = adam.first.setdefault(state, dict.fromkeys(TOOL_NAMES, 0.0))
        second = adam.second.setdefault(state, dict.fromkeys(TOOL_NAMES, 0.0))
        row = policy.logits.setdefault(state, {})
        grads = gradient.get(state, {})
        for name in TOOL_NAMES:
            g = grads.get(name, 0.0) * scale
            first[name] = _BETA1 * first[name] + (1 - _BETA1) * g
            second[name] = _BETA2 * second[name] + (1 - _BETA2) * g * g
            step = (first[name] / correct1) / (math.sqrt(second[name] / correct2) + _ADAM_EPSILON)
            row[name] = row.get(name, 0.0) - learning_rate * step
    return norm
