"""Symptoms in tests."""

from __future__ import annotations

from typing import Any

from liverl.diagnose.catalogue.course import IN_A_ROW
from liverl.diagnose.tracker import RunContext
from liverl.model import Snapshot, StepMetrics, Symptom
from liverl.observe.metrics.recent import RecentSteps


def lasting(now: Snapshot, **beside: Any) -> RunContext:
    """What rules are given beside a snapshot; its metrics were the same for the steps that rules ask for at least."""
    if now.metrics is not None and "recent" not in beside:
        last, values = now.metrics.step, now.metrics.values
        steps = tuple(StepMetrics(step, values) for step in range(last + 1 - IN_A_ROW, last + 1))
        beside["recent"] = RecentSteps(steps)
    return RunContext(**beside)


def proof(symptom: Symptom) -> tuple[str, ...]:
    """The evidence of a symptom as people read it."""
    return tuple(one.words for one in symptom.evidence)
