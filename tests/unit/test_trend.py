"""The slope of a series and how sure it is."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from liverl.util.trend import LEAST, Point, Trend, logarithms, smoothed, trend


def points(*values: float) -> list[Point]:
    return [(float(x), value) for x, value in enumerate(values)]


def test_slope_and_t_are_those_of_the_textbook() -> None:
    """Sxx 10, Sxy 8, Syy 10: slope 0.8; 3.6 are left over 3 degrees of freedom: t = 0.8 / sqrt(1.2 / 10)."""
    found = trend(points(1, 3, 2, 5, 4))
    assert (
        found.slope == pytest.approx(0.8) and found.t == pytest.approx(2.3094, abs=1e-4) and found.points == 5
    )


def test_a_straight_line_is_as_sure_as_can_be() -> None:
    assert trend(points(1, 2, 3, 4)) == Trend(1.0, math.inf, 4)
    assert trend(points(4, 3, 2, 1)) == Trend(-1.0, -math.inf, 4)
    assert trend(points(*[1e9 + 0.1 * n for n in range(20)])).t == math.inf, "rounding errors are no noise"


@pytest.mark.parametrize("few", [(), (1.0,), (1.0, 2.0), (3.0,) * 20])
def test_too_few_points_and_a_constant_have_no_trend(few: tuple[float, ...]) -> None:
    assert trend(points(*few)) == Trend(0.0, 0.0, len(few))
    assert not trend(points(*few)).grows


def test_points_at_one_place_have_no_trend() -> None:
    assert trend([(3.0, 1.0), (3.0, 2.0), (3.0, 4.0)]).t == 0.0


def test_a_trend_is_claimed_from_ten_points_on() -> None:
    assert not trend(points(*range(LEAST - 1))).grows and trend(points(*range(LEAST))).grows
    assert not trend(points(*range(LEAST, 0, -1))).grows


@pytest.mark.parametrize(("factor", "offset"), [(1e-6, 0.0), (1e6, 0.0), (1.0, -50.0), (3.0, 1e3)])
def test_t_does_not_depend_on_the_unit(factor: float, offset: float) -> None:
    values = [random.Random(5).gauss(0.1 * n, 1.0) for n in range(30)]
    found, other = trend(points(*values)), trend(points(*(factor * v + offset for v in values)))
    assert other.t == pytest.approx(found.t) and other.slope == pytest.approx(factor * found.slope)
    stretched = trend([(7 * x + 100, y) for x, y in points(*values)])
    assert stretched.t == pytest.approx(found.t) and stretched.slope == pytest.approx(found.slope / 7)


def test_noise_alone_has_a_large_t_as_seldom_as_it_should() -> None:
    """|t| >= 2 of 30 points: 5.5 % of 2000 series of noise; here between 4 % and 7 %."""
    chance = random.Random(1)
    sure = [abs(trend(points(*(chance.gauss(0, 1) for _ in range(30)))).t) >= 2.0 for _ in range(2000)]
    assert 0.04 <= sum(sure) / len(sure) <= 0.07


def test_growth_by_a_factor_is_a_line_of_logarithms() -> None:
    found = trend(logarithms(points(*(0.25 * 1.25**n for n in range(12)))))
    assert found.slope == pytest.approx(math.log(1.25)) and found.t == math.inf
    assert logarithms(points(0.0, -1.0, 1.0)) == [(2.0, 0.0)]


def test_the_median_of_each_five_values_ignores_an_outlier() -> None:
    found = smoothed(points(1, 1, 100, 1, 1, 2, 2), 5)
    assert found == [(0.0, 1.0), (1.0, 1.0), (2.0, 2.0)] and smoothed(points(1, 2), 5) == []
    assert all(before[0] < after[0] for before, after in pairwise(found))
