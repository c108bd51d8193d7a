"""The seconds of a step by part, out of its metrics. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from liverl.observe.metrics.names import keys_of

GENERATE, REWARD, LOG_PROBS, UPDATE = "generate", "reward", "log_probs", "update"
WEIGHTS, CHECKPOINT, VALIDATION, OTHER = "weights", "checkpoint", "validation", "other"
PREFIX = "timing_s/"
# verl's timers (main_ppo, one step off, fully asynchronous) that lie side by side in a step, and what each belongs to.
# Others are parts of these, or not of the step.
_PARTS = {
    "gen": GENERATE,
    "reward": REWARD,
    "old_log_prob": LOG_PROBS,
    "ref": LOG_PROBS,
    "values": LOG_PROBS,
    "update_actor": UPDATE,
    "update_critic": UPDATE,
    "update_weights": WEIGHTS,
    "param_sync": WEIGHTS,
    "save_checkpoint": CHECKPOINT,
    "testing": VALIDATION,
}
# verl counts them in ``timing_s/step`` in some places.
NOW_AND_THEN = (f"{PREFIX}testing", f"{PREFIX}save_checkpoint")
_ROUNDING = 1.02  # times the step: what its parts may add up to, each rounded


def seconds_of(values: Mapping[str, float]) -> float | None:
    """The seconds of a step; None if it does not say."""
    return next((values[key] for key in keys_of("seconds per step") if values.get(key, 0.0) > 0.0), None)


def parts_of(values: Mapping[str, float]) -> dict[str, float]:
    """The seconds of a step by part, with the rest as ``other``; empty if they are not known. Parts that take longer
    than the step together lie in parallel: what it waits for is then not known either."""
    total = seconds_of(values)
    parts: dict[str, float] = {}
    for key, seconds in values.items():
        if key.startswith(PREFIX):
            # Fully asynchronous training names it timing_s/timing_s/param_sync.
            part = _PARTS.get(key.removeprefix(PREFIX).removeprefix(PREFIX))
            if part is not None:
                parts[part] = parts.get(part, 0.0) + max(0.0, seconds)
    if total is None or not parts:
        return {}
    if sum(parts.values()) > total * _ROUNDING:  # validation and checkpoints are then beside the step
        parts.pop(VALIDATION, None)
        if sum(parts.values()) > total * _ROUNDING:
            parts.pop(CHECKPOINT, None)
    rest = total - sum(parts.values())
    return {**parts, OTHER: max(0.0, rest)} if rest >= total * (1.0 - _ROUNDING) else {}


def beside(values: Mapping[str, float]) -> float:
    """The seconds of validation and checkpoint behind the step that its length does not count: its metrics were written
    so much later than it ended."""
    kept = parts_of(values)
    if not kept:
        return 0.0
    named = {VALIDATION: NOW_AND_THEN[0], CHECKPOINT: NOW_AND_THEN[1]}
    return sum(max(0.0, values.get(key, 0.0)) for part, key in named.items() if part not in kept)
