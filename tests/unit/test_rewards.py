"""The rewards of a run: what a snapshot says of them, and what the first row of every screen shows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.screens import snapshot

from liverl.model import Rewards, StepMetrics, StepTrials, TrialsStatus
from liverl.observe.metrics.rewards import NEWEST, REWARD, RewardHistory, words
from liverl_tui.widgets.base.fitting import pack
from liverl_tui.widgets.header.learning import change, learning_parts, spark


def steps(*rewards: float | None, first: int = 1) -> list[StepMetrics]:
    return [
        StepMetrics(first + number, {} if reward is None else {REWARD: reward})
        for number, reward in enumerate(rewards)
    ]


def summary(*news: list[StepMetrics]) -> Rewards:
    history = RewardHistory()
    for batch in news:
        history.add(batch)
    return history.summary()


def shown(width: int = 200, **fields: object) -> str:
    return pack(learning_parts(snapshot(**fields)), width).text


# --- what a snapshot says ---------------------------------------------------------------------------------


def test_nothing_is_said_before_the_first_reward() -> None:
    assert summary() == summary(steps(None, None)) == Rewards()
    assert words(Rewards()) is None


def test_the_first_and_the_last_three_steps_are_compared() -> None:
    rewards = summary(steps(0.1, 0.2, 0.3, None), steps(0.6, 0.8, 1.0, first=5))
    assert rewards.steps == 6 and rewards.newest == (0.1, 0.2, 0.3, 0.6, 0.8, 1.0)
    assert (rewards.first, rewards.last) == pytest.approx((0.2, 0.8))
    assert words(rewards) == "6 steps, mean reward 0.200 -> 0.800 (first and last three steps)"


def test_a_resumed_trainer_replaces_the_later_steps() -> None:
    assert summary(steps(0.1, 0.2, 0.3, 0.4), steps(0.9, first=3)).newest == (0.1, 0.2, 0.9)


def test_a_file_that_is_read_again_counts_once() -> None:
    history = RewardHistory()
    history.add(steps(0.1, 0.2))
    history.clear()
    history.add(steps(0.3))
    assert history.summary().newest == (0.3,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=3 * NEWEST))
def test_a_long_run_keeps_its_newest_rewards(values: list[float]) -> None:
    rewards = summary(steps(*values))
    assert rewards.steps == len(values)
    assert rewards.newest == tuple(values[-NEWEST:])
    assert rewards.first == pytest.approx(sum(values[:3]) / len(values[:3]))
    assert rewards.last == pytest.approx(sum(values[-3:]) / len(values[-3:]))


# --- what every screen shows ------------------------------------------------------------------------------


def test_a_curve_goes_from_its_lowest_to_its_highest_step() -> None:
    assert spark((0.1, 0.4, 0.25, 0.7), 10) == "▁▄▃▇"
    assert spark((0.0, 0.5, 1.0), 2) == "▁▇", "only the newest steps"
    assert spark((0.3, 0.3), 5) == "▁▁" and spark((), 5) == ""
    assert spark((math.nan, 0.1, 0.2), 5) == "▁▇"
    assert spark((0.5, 0.51, 0.5, 0.49), 5) == "▂▂▂▁", "noise is no mountain range"
    assert spark((0.0, 0.0), 5) == "▁▁"


@pytest.mark.parametrize(
    ("first", "last", "count", "said"),
    [
        (0.2, 0.5, 9, ("↑0.30", "ok")),
        (0.5, 0.2, 9, ("↓0.30", "warn")),
        (0.5, 0.504, 9, ("→0.00", "dim")),
        (0.5, 0.5, 1, ("", "dim")),
        (None, None, 0, ("", "dim")),
        (0.5, math.nan, 9, ("→0.00", "dim")),
    ],
)
def test_the_change_has_a_sign_and_a_style(
    first: float | None, last: float | None, count: int, said: tuple[str, str]
) -> None:
    assert change(Rewards(count, first, last)) == said


def test_one_look_says_whether_it_learns() -> None:
    fields = {
        "rewards": Rewards(4, 0.1, 0.4, (0.1, 0.2, 0.3, 0.6)),
        "step_seconds": 4.56,
        "metrics": StepMetrics(4, {"actor/ppo_kl": 0.5, "actor/kl_loss": 0.0123}),
        "trials": TrialsStatus(16, steps=(StepTrials(5, 16, 0, 0, None), StepTrials(4, 16, 16, 0, 0.6))),
    }
    assert shown(**fields) == "reward 0.60 ↑0.30  ▁▂▃▇  tools 16/16  KL 0.0123  4.6 s/step"
    assert shown(30, **fields) == "reward 0.60 ↑0.30  tools 16/16"
    assert shown(20, **fields) == "reward 0.60 ↑0.30"
    assert shown(12, **fields) == "reward 0.60"


def test_trials_without_tool_calls_stay_longer_than_the_curve() -> None:
    fields = {"trials": TrialsStatus(16, steps=(StepTrials(4, 16, 16, 12, 0.6),))}
    assert "▲ tools 4/16" in shown(**fields)
    assert "▲ tools 4/16" in shown(33, **fields)


def test_a_run_that_reports_nothing_has_no_empty_parts() -> None:
    assert shown(rewards=Rewards(), trials=TrialsStatus(), metrics=None, step_seconds=None) == ""
