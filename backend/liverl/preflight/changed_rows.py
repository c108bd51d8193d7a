"""Whether a run's rows suffice for values that are about to be changed. Asked before anybody agrees to the change: the
checks of a whole attempt can only be made once the present one has been stopped."""

from __future__ import annotations

from collections.abc import Iterable

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.registry import CHECKS
from liverl.preflight.running import run_checks

SECONDS = 20.0  # somebody waits for the question
_KEYS = frozenset(
    {"training.total_steps", "training.total_epochs", "training.train_batch_size", "trainer.overrides"}
)


def concerns_rows(keys: Iterable[str]) -> bool:
    """Whether a change of ``keys`` changes which rows are read, or how many are needed."""
    return any(key in _KEYS or key.startswith("data.") for key in keys)


def rows_checks(plan: Plan, config: RunConfig, keys: Iterable[str]) -> list[Check]:
    """What the check of the rows fails for or warns of with the changed ``plan`` and ``config``; nothing where the
    changed ``keys`` do not concern them, or the run has no rows that could be read."""
    if not concerns_rows(keys):
        return []
    entries = [entry._replace(seconds=SECONDS) for entry in CHECKS if entry.id == "data"]
    return [check for check in run_checks(plan, config, entries=entries) if check.status in ("fail", "warn")]
