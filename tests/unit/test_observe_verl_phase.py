"""What verl's trainer does, told from its metrics and its trials."""

from __future__ import annotations

from liverl.model import StepMetrics, StepTrials, TrialsStatus
from liverl.observe.metrics.verl_phase import verl_trainer_facts


def trials(*steps: tuple[int, int, int]) -> TrialsStatus:
    """(step, total, finished), newest first."""
    return TrialsStatus(steps=tuple(StepTrials(step, total, done, 0, None) for step, total, done in steps))


def after(step: int) -> StepMetrics:
    return StepMetrics(step, {"critic/score/mean": 0.5})


def test_phases_of_a_step() -> None:
    assert verl_trainer_facts(None, TrialsStatus(), 8)["phase"] == "init"
    first = verl_trainer_facts(None, trials((1, 3, 0)), 8)
    assert (first["phase"], first["step"], first["trials_done"], first["trials_total"]) == (
        "rollout",
        0,
        0,
        8,
    )
    assert verl_trainer_facts(None, trials((1, 8, 8)), 8)["phase"] == "update"
    between = verl_trainer_facts(after(1), trials((1, 8, 8)), 8)
    assert (between["phase"], between["step"], between["policy_version"]) == ("sync", 1, 1)


def test_trials_may_be_seen_before_the_metrics_of_the_step_before() -> None:
    ahead = verl_trainer_facts(after(1), trials((3, 2, 0), (2, 8, 8)), 8)
    assert (ahead["step"], ahead["phase"], ahead["trials_total"]) == (2, "rollout", 8)


def test_trials_of_an_earlier_attempt_that_got_further_do_not_count() -> None:
    resumed = verl_trainer_facts(after(2), trials((6, 8, 8), (3, 4, 1)), 8)
    assert (resumed["step"], resumed["phase"], resumed["trials_done"]) == (2, "rollout", 1)
