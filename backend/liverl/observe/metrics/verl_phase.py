"""Derives the current phase of verl's trainer, which reports a step only after it is complete."""

from __future__ import annotations

from typing import Any

from liverl.model import StepMetrics, TrialsStatus


def verl_trainer_facts(
    metrics: StepMetrics | None, trials: TrialsStatus, trials_per_step: int | None
) -> dict[str, Any]:
    """Return for verl's trainer what the embedded one writes to ``trainer.json``: ``step`` is the last
    completed step, ``phase`` (rollout or update) that of the following one.

    The update of a step starts when all its trials have ended; verl prints nothing in between. Before the
    first trial of a step, other than the first, weights are being synchronized.
    """
    begun = max((s.step for s in trials.steps), default=1) - 1
    step = metrics.step if metrics is not None else begun
    if begun == step + 1:
        step = begun  # trials of the next step exist before the metrics of this one were read
    now = next((s for s in trials.steps if s.step == step + 1), None)
    facts: dict[str, Any] = {"step": step, "policy_version": step}
    if now is None:
        facts["phase"] = "sync" if step else "init"
        return facts
    total = max(now.total, trials_per_step or 0)
    facts |= {"phase": "update" if now.finished >= total else "rollout"}
    facts |= {"trials_done": now.finished, "trials_total": total}
    return facts
