"""Since when a run solves (nearly) all of its tasks: one trial that fails must not change the verdict."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.observe.metrics.rewards import course_of, course_words
from liverl.observe.metrics.solved import plateau

# The mean rewards of a run of 344 steps with 32 trials each; from step 19 on all are 1 but those of FAILED.
LEARNED = (
    5,
    6,
    8,
    16,
    13,
    18,
    18,
    15,
    31,
    20,
    31,
    28,
    29,
    29,
    32,
    31,
    32,
    32,
)  # trials that solved their task
FAILED = (25, 28, 48, 74, 87, 98, 111, 128, 272)  # steps in which one trial failed
NIGHTLY = [
    *(solved / 32 for solved in LEARNED),
    *(31 / 32 if step in FAILED else 1.0 for step in range(len(LEARNED) + 1, 345)),
]


def said(values: list[float]) -> list[str]:
    """What is said after each step."""
    points = [(float(at), value) for at, value in enumerate(values, 1)]
    return [course_words(course_of(points[:count])) for count in range(1, len(points) + 1)]


def test_a_trial_that_fails_now_and_then_does_not_change_what_is_said() -> None:
    told = said(NIGHTLY)
    changes = [(step, later) for step, (earlier, later) in enumerate(pairwise(told), 2) if earlier != later]
    assert changes == [(12, "learning"), (18, "nearly all solved since step 15")]


@pytest.mark.parametrize("trials", [16, 32, 128])
@pytest.mark.parametrize("seed", range(5))
def test_noise_at_the_top_makes_the_verdict_change_seldom(trials: int, seed: int) -> None:
    chance = random.Random(seed)
    rise = [at / 20 for at in range(20)]
    top = [sum(chance.random() < 0.99 for _ in range(trials)) / trials for _ in range(300)]
    told = said([*rise, *top])[30:]
    assert sum(earlier != later for earlier, later in pairwise(told)) <= 2
    assert not any("flat" in one for one in told)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0.2, 0.9, 1.0, 1.0, 1.0], "all solved since step 3"),
        ([0.2, 0.9, 1.0, 1.0, 1.0, 0.97], "nearly all solved since step 3"),
        ([0.9, 0.98, 0.99, 0.99, *[1.0] * 19], "nearly all solved since step 2"),
        ([0.9, 0.98, 0.99, 0.99, *[1.0] * 20], "all solved since step 5"),
        ([0.98] * 5, "nearly all solved since step 1"),
        ([0.5, 0.9, 0.98, 0.98, 0.98, 0.98, 0.98], "nearly all solved since step 3"),
        ([0.5, 1.0, 1.0, 1.0, 0.5], "too early to say"),
        ([1.5, *[1.0] * 11], "flat since step 2"),  # 1 is not all that can be had
        ([1.0] * 8 + [0.0], "too early to say"),
        ([*[1.0] * 30, *[0.93] * 20], "flat since step 31"),
    ],
)
def test_where_a_plateau_begins_and_ends(values: list[float], told: str) -> None:
    assert said(values)[-1] == told


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_a_plateau_is_what_it_says(values: list[float]) -> None:
    found = plateau([(float(at), value) for at, value in enumerate(values, 1)])
    if found is not None:
        part = values[found.since - 1 :]
        assert len(part) >= 3
        assert found.all == all(value == 1.0 for value in part)
        assert sum(part[-5:]) / len(part[-5:]) >= 0.8
        assert part[0] >= 0.97


@given(st.lists(st.floats(0, 0.96), min_size=1, max_size=60))
def test_below_the_top_nothing_is_solved(values: list[float]) -> None:
    assert plateau([(float(at), value) for at, value in enumerate(values, 1)]) is None
