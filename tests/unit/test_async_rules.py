"""The rules for asynchronous training and for what its samples are worth, as one table: each fires where its condition
holds in three steps in a row and not in two, not at the limit itself, and names a key with its next value."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest
from kit.screens import snapshot

from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import StepMetrics, Symptom
from liverl.observe.metrics.recent import StepCollector

Row = dict[str, float]
KL, INVALID, PARTIAL = (
    "rollout_corr/kl",
    "trajectory_filter/invalid_ratio",
    "fully_async/partial/partial_ratio",
)
DROPPED, SIZE = "fully_async/count/dropped_stale_samples", "rollout_corr/rollout_is_eff_sample_size"
STATIC, REASON = "fully_async/static/", "trajectory_filter/reason/"
# Where an asynchronous run stands that is well, for as many steps as the longest of these rules asks for.
WELL: Row = {
    "fully_async/trainer/idle_ratio": 0.2,
    "fully_async/rollouter/idle_ratio": 0.1,
    PARTIAL: 0.3,
    DROPPED: 0.0,
    KL: 3e-4,
    INVALID: 0.02,
    SIZE: 0.97,
    f"{STATIC}max_concurrent_samples": 16.0,
    f"{STATIC}required_samples": 8.0,
    f"{STATIC}max_required_samples": 48.0,  # 8 * (1 + 0.5) * 4 steps between two updates
    f"{STATIC}staleness_threshold": 0.5,
}
BEFORE = 12


class Case(NamedTuple):
    """``limit``: a value at which the rule does not fire yet; ``over``: three that do; ``fix``: what it says."""

    rule: str
    key: str
    limit: float
    over: tuple[float, float, float]
    fix: str
    also: Mapping[str, float] = MappingProxyType({})


_TRAINER, _ROLLOUTER = (f"fully_async/{who}/idle_ratio" for who in ("trainer", "rollouter"))
_MIN = "rollout_corr/rollout_is_"
TOKEN = {f"{_MIN}min": 0.1, f"{_MIN}seq_min": 0.9}
SEQUENCE = {f"{_MIN}min": 0.1, f"{_MIN}seq_min": 0.1}
CASES = (
    Case("trainer_idle", _TRAINER, 0.5, (0.51, 0.9, 0.6), "so that 32 prompts run at a time"),
    Case("rollouter_idle", _ROLLOUTER, 0.5, (0.51, 0.9, 0.6), "verl.fully_async.staleness_threshold from 0.5 to 1"),
    Case("samples_dropped", DROPPED, 2.0, (3.0, 4.0, 9.0), "so that 8 prompts run at a time and not 16"),
    Case("rollouts_partial", PARTIAL, 0.5, (0.51, 0.9, 0.6), "trigger_parameter_sync_step from 4 to 8"),
    Case("rollout_mismatch", KL, 0.01, (0.011, 0.03, 0.02), "staleness_threshold from 0.5 to 0.25"),
    Case("rollout_mismatch", KL, -0.01, (-0.011, -0.03, -0.02), "staleness_threshold from 0.5 to 0.25"),
    Case("rollout_mismatch", KL, 0.01, (0.02, 0.02, 0.02), "staleness_threshold from 0.1 to 0",
         {f"{STATIC}staleness_threshold": 0.1}),
    Case("trajectories_dropped", INVALID, 0.1, (0.11, 0.4, 0.2), "num_workers by half", {f"{REASON}timeout": 9.0}),
    Case("trajectories_dropped", INVALID, 0.1, (0.11, 0.4, 0.2), "harbor_agent.max_iterations to twice as many",
         {f"{REASON}max_turns_reached": 9.0, f"{REASON}timeout": 1.0}),
    Case("trajectories_dropped", INVALID, 0.1, (0.11, 0.4, 0.2), "training.max_response_length to twice as much",
         {f"{REASON}overlong": 9.0, f"{REASON}timeout": 0.0}),
    Case("trajectories_dropped", INVALID, 0.1, (0.11, 0.4, 0.2), "check the reasons first"),
    Case("sample_size_low", SIZE, 0.5, (0.49, 0.1, 0.3), "training.rollout_is to null (weights are per token now); "
         "lower verl.fully_async.staleness_threshold from 0.5 to 0.25", TOKEN),
    Case("sample_size_low", SIZE, 0.5, (0.49, 0.1, 0.3), "training.rollout_is to token or null (weights are per "
         "sequence now)", SEQUENCE),
)  # fmt: skip


def judged(case: Case, *values: float) -> dict[str, Symptom]:
    """What all rules on metrics say once a run that was well has gone on with these values of the case's metric."""
    well = {**WELL, **case.also}
    rows = [well] * BEFORE + [well | {case.key: value} for value in values]
    collector = StepCollector()
    collector.add([StepMetrics(number, row) for number, row in enumerate(rows, 1)])
    recent = collector.recent()
    now = snapshot(metrics=recent.steps[-1], step=len(rows), total_steps=100)
    window = Window(now, None, RunContext(recent=recent))
    rules = [rule for rule in FILE_RULES if case.rule in rule.ids]
    return {one.id: one for rule in rules for one in rule.look(window) if isinstance(one, Symptom)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule} {case.fix[:40]}")
def test_three_steps_in_a_row_over_a_limit(case: Case) -> None:
    usual = WELL[case.key]
    found = judged(case, *case.over)
    assert found.keys() == {case.rule}
    assert case.fix in found[case.rule].fix
    assert found[case.rule].evidence
    assert judged(case, *case.over[:2]) == {}, "two steps"
    assert judged(case, *case.over[:2], usual) == {}, "it is over"
    if case.key != DROPPED:  # a count, which never falls
        assert judged(case, case.over[0], usual, *case.over[1:]) == {}, "not in a row"
        assert judged(case, *case.over[:2], case.limit) == {}, "the limit itself"
    else:
        assert judged(case, case.over[0], *[case.over[1]] * 2, case.over[2]) == {}, "not in a row"


def test_a_run_that_is_well_has_none_of_them() -> None:
    for case in CASES:
        assert judged(case, WELL[case.key]) == {}


@pytest.mark.parametrize(
    ("limits", "fix"),
    [
        ({f"{STATIC}staleness_threshold": 0.0, f"{STATIC}max_required_samples": 8.0}, "from 1 to 2"),
        ({f"{STATIC}max_required_samples": 95.0, f"{STATIC}staleness_threshold": 0.5}, "from 8 to 16"),
        ({f"{STATIC}required_samples": 0.0}, "double verl.fully_async.trigger_parameter_sync_step"),
    ],
)
def test_the_steps_between_two_updates_are_worked_out(limits: Row, fix: str) -> None:
    case = Case("rollouts_partial", PARTIAL, 0.5, (0.9, 0.9, 0.9), fix, limits)
    assert fix in judged(case, *case.over)["rollouts_partial"].fix


def test_a_run_that_is_strictly_on_policy_is_not_told_to_lower_its_staleness() -> None:
    case = Case("rollout_mismatch", KL, 0.01, (0.02, 0.02, 0.02), "", {f"{STATIC}staleness_threshold": 0.0})
    assert "staleness_threshold" not in judged(case, *case.over)["rollout_mismatch"].fix
