"""``status`` as a table: what the rewards of the steps prove."""

from __future__ import annotations

import pytest
from kit.screens import snapshot
from msgspec.structs import replace

from liverl.model import RewardCourse, Rewards, Validation
from liverl_tui.cli.status_table import render

RISEN = Rewards(20, 0.2, 0.9, (0.9,), (0.2, 0.9), None, RewardCourse("learning"))


@pytest.mark.parametrize(
    ("rewards", "smoke", "told"),
    [
        (
            RISEN,
            False,
            "reward    20 steps, mean reward 0.200 -> 0.900 (first and last three steps): learning",
        ),
        (
            replace(RISEN, course=RewardCourse("unclear")),
            False,
            "reward    20 steps, mean reward 0.200 -> 0.900 (first and last three steps): no clear trend",
        ),
        (replace(RISEN, steps=3, first=0.9, course=None), False, "reward    3 steps, mean reward 0.900"),
        (RISEN, True, None),
        (Rewards(), False, None),
    ],
)
def test_the_reward_is_told_with_what_it_proves(rewards: Rewards, smoke: bool, told: str | None) -> None:
    """A smoke run proves nothing, and a run without rewards has no line."""
    state = replace(snapshot(), rewards=rewards, step=rewards.steps, smoke=smoke)
    lines = [
        line for line in render(state, width=200, colour=False).splitlines() if line.startswith("reward ")
    ]
    assert lines == ([told] if told else [])


KEY = "val-core/sums/reward/mean@1"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Validation(KEY, 0.25, 0.25, 0, 0.25, 0, 1), f"validated after step 0: {KEY} 0.250"),
        (Validation(KEY, 0.25, 0.5, 4, 0.5, 4, 3), f"validated after step 4: {KEY} 0.500 (0.250 at first)"),
        (
            Validation(KEY, 0.25, 0.375, 6, 0.5, 4, 4),
            f"validated after step 6: {KEY} 0.375 (0.250 at first, best 0.500 after step 4)",
        ),
        (None, None),
    ],
)
def test_the_newest_validation_stands_beside_the_first_and_the_best(
    found: Validation | None, told: str | None
) -> None:
    state = replace(snapshot(), rewards=replace(RISEN, validation=found))
    lines = [
        line for line in render(state, width=200, colour=False).splitlines() if line.startswith("validated")
    ]
    assert lines == ([told] if told else [])
