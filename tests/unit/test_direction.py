"""Where a noisy series is heading: chance must not be called a rise."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.util.direction import FEWEST, MOST, direction, rises
from liverl.util.trend import Point

LEARNING = Path(__file__).parents[1] / "data" / "learning"
LENGTHS = (12, 16, 20, 24, 40, 120)


def steps(values: list[float]) -> list[Point]:
    return [(float(at), value) for at, value in enumerate(values, 1)]


def constant(chance: random.Random, count: int) -> list[float]:
    return [chance.gauss(0.3, 0.08) for _ in range(count)]


def solved_now_and_then(chance: random.Random, count: int) -> list[float]:
    return [sum(chance.random() < 0.2 for _ in range(16)) / 16 for _ in range(count)]


def rare(chance: random.Random, count: int) -> list[float]:
    return [(0.9 if chance.random() < 0.05 else 0.2) + chance.gauss(0.0, 0.02) for _ in range(count)]


def walk(chance: random.Random, count: int) -> list[float]:
    at, values = 0.4, []
    for _ in range(count):
        at += chance.gauss(0.0, 0.05)
        values.append(at)
    return values


def bounded(chance: random.Random, count: int) -> list[float]:
    at, values = 0.4, []
    for _ in range(count):
        at = min(1.0, max(0.0, at + chance.gauss(0.0, 0.05)))
        values.append(at)
    return values


def share(
    made: Callable[[random.Random, int], list[float]], heading: str, count: int, of: int = 200
) -> float:
    """How many of ``of`` series have the heading; the same ones in every run of the test."""
    chance = random.Random(f"{made.__name__} {count}")
    return sum(direction(steps(made(chance, count))).heading == heading for _ in range(of)) / of


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("made", [constant, solved_now_and_then, rare])
def test_noise_around_a_constant_is_no_rise(made: Callable[..., list[float]], count: int) -> None:
    assert share(made, "rising", count) <= 0.005
    assert share(made, "falling", count) <= 0.01


@pytest.mark.parametrize("made", [walk, bounded])
def test_a_random_walk_is_seldom_called_a_rise(made: Callable[..., list[float]]) -> None:
    """Most walks end above or below where they began: half of them would be a rise by their ends."""
    shares = [share(made, "rising", count) for count in LENGTHS]
    assert max(shares) <= 0.08
    assert sum(shares) / len(shares) <= 0.04


@given(st.lists(st.floats(-10, 10), min_size=FEWEST, max_size=40), st.randoms(use_true_random=False))
def test_values_in_an_order_of_chance_do_not_rise_both_ways(
    values: list[float], chance: random.Random
) -> None:
    """Whatever the values are, a series and its reverse are not both good news, nor a series and its negative."""
    chance.shuffle(values)
    points = steps(values)
    if rises(points):
        assert not rises(steps(values[::-1]))
        assert not rises([(x, -y) for x, y in points])


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=FEWEST - 1))
def test_few_steps_say_nothing_but_that_they_are_the_same(values: list[float]) -> None:
    assert direction(steps(values)).heading in ("early", "flat")
    assert direction(steps([*values[:3], 0.5])).heading == "early"


@pytest.mark.parametrize("count", LENGTHS)
def test_a_straight_line_is_a_rise_and_upside_down_a_fall(count: int) -> None:
    values = [0.2 + 0.6 * at / count for at in range(count)]
    assert direction(steps(values)).heading == "rising"
    assert direction(steps(values[::-1])).heading == "falling"


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_recorded_runs_that_learn_are_seen_to(seed: int) -> None:
    lines = (LEARNING / f"embedded-seed{seed}.jsonl").read_text().splitlines()
    values = [json.loads(line)["data"]["critic/score/mean"] for line in lines]
    told = {direction(steps(values[:count])).heading for count in range(FEWEST, len(values) + 1)}
    assert "rising" in told
    assert "falling" not in told


def test_a_rise_that_ends_is_flat_since_then() -> None:
    chance = random.Random(7)
    values = [min(0.9, 0.2 + 0.035 * at) + chance.gauss(0.0, 0.02) for at in range(60)]
    heading, since = direction(steps(values))
    assert heading == "flat"
    assert since is not None
    assert 15 <= since <= 30


def test_a_fall_counts_from_the_highest() -> None:
    chance = random.Random(3)
    values = [0.2 + 0.03 * at if at < 20 else 0.8 - 0.02 * (at - 20) for at in range(50)]
    heading, since = direction(steps([value + chance.gauss(0.0, 0.015) for value in values]))
    assert heading == "falling"
    assert since is not None
    assert 15 <= since <= 25


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_the_same_value_is_flat_at_once(value: float) -> None:
    assert direction(steps([0.2, *[value] * 5])) == ("flat", 2)
    assert direction(steps([0.2, *[value] * 4])).heading == "early"


def test_a_long_series_is_looked_at_in_parts() -> None:
    values = [0.2 + 0.6 * at / 5000 + 0.1 * math.sin(12.9898 * at) for at in range(5000)]
    assert direction(steps(values)).heading == "rising"
    assert len(values) > MOST
