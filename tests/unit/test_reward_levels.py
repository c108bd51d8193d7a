"""Which reward is a ceiling."""

from __future__ import annotations

import pytest

from liverl.diagnose.catalogue.reward_levels import level_of


@pytest.mark.parametrize(
    ("reward", "seen", "level"),
    [
        (-0.5, (), "none"),
        (0.0, (0.0, -1.0), "none"),
        (0.2, (), "same"),
        (0.2, (0.2, 0.2), "same"),
        (0.1, (0.05, 0.08, 0.1), "same"),  # of a bonus for the format, for example
        (0.2, (0.1, 0.3), "same"),
        (1.0, (), "solved"),
        (1.0, (10.0,), "same"),
    ],
)
def test_a_reward_is_at_its_ceiling(reward: float, seen: tuple[float, ...], level: str) -> None:
    assert level_of(reward, seen) == level
