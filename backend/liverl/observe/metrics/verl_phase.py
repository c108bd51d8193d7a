"""What verl's trainer does now, told from what can be seen of it: it reports steps only when they are over."""

from __future__ import annotations

from typing import Any

from liverl.model import StepMetrics, TrialsStatus


def verl_trainer_facts(
    metrics: StepMetrics | None, trials: TrialsStatus, trials_per_step: int | None
) -> dict[str, Any]:
    """What the embedded trainer writes into ``trainer.json``, for verl's: ``step`` is the last one completed,
    ``phase`` rollout or update of the one after it.

    A step's update begins when all of its trials have ended; verl prints nothing in between. Without any trial of
    the step yet, after an earlier one, the weights are on their way.
    """
    begun = max((s.step for s in trials.steps), default=1) - 1
    step = metrics.step if metrics is not None else begun
    if begun == step + 1:
        step = begun  # the next step's trials are there before the metrics of this one have been read
    now = next((s for s in trials.steps if s.step == step + 1), None)
    facts: dict[str, Any] = {"step": step, "policy_version": step}
    if now is None:
        facts["phase"] = "sync" if step else "init"
        return facts
    total = max(now.total, trials_per_step or 0)
    facts |= {"phase": "update" if now.finished >= total else "rollout"}
    facts |= {"trials_done": now.finished, "trials_total": total}
    return facts
