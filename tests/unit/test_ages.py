"""One wording for how long something took, wherever it is shown."""

from __future__ import annotations

import pytest

from liverl.diagnose.where.words import lines
from liverl.model import StepTime
from liverl.util.ages import duration, step_length
from liverl_tui.text import words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-3.0, "0s"), (41.9, "41s"), (106.2, "1m46s"), (11100.0, "3h05m"), (187200.0, "2d04h")],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == words.duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(4.006, "4.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (99.4, "99 s"), (723.0, "12m03s")],
)
def test_lengths_of_a_step(seconds: float, said: str) -> None:
    assert step_length(seconds) == said


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({"generate": 0.56, "update": 0.24, "weights": 0.07, "other": 0.09, "reward": 0.04},
         "rollouts 56 %, update 24 %, weights 7 %, reward function 4 %, the rest 9 %"),
        ({"generate": 0.56, "update": 0.24, "other": 0.004}, "rollouts 56 %, update 24 %, the rest 20 %"),
        ({"generate": 0.6, "update": 0.4}, "rollouts 60 %, update 40 %"),
        ({"generate": 0.7, "update": 0.4}, "rollouts 70 %, update 40 %"),
    ],
)  # fmt: skip
def test_the_shares_of_a_step_add_up(shares: dict[str, float], said: str) -> None:
    assert lines(StepTime(10, 4.006, shares))[0] == (
        f"a step takes 4.0 s (the median of the newest 10 steps): {said}"
    )
