"""Where two curves part: by the steps that both have, and by more than their steps vary."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.observe.metrics.parting import LEAST, Parting, parting
from liverl.observe.metrics.series import Series
from liverl.util.direction import FEWEST
from liverl_tui.text.comparison import parting_words, reward_words, title_partings


def series(values: list[float], first: int = 1) -> Series:
    made = Series()
    for step, value in enumerate(values, first):
        made.add(step, value)
    return made


VALUES = st.lists(st.floats(-1e3, 1e3) | st.just(math.nan), max_size=30)


@given(VALUES)
def test_a_run_is_the_same_as_itself(values: list[float]) -> None:
    finite = [value for value in values if math.isfinite(value)]
    assert parting(series(values), series(values)) == Parting(len(finite))


@given(VALUES, VALUES)
def test_it_is_told_of_common_steps_only_and_the_other_way_round(
    one: list[float], other: list[float]
) -> None:
    there, back = parting(series(one), series(other)), parting(series(other), series(one))
    assert (there.common, there.differs, there.parts, there.noise) == (
        back.common,
        back.differs,
        back.parts,
        back.noise,
    )
    assert there.by == (None if back.by is None else pytest.approx(-back.by))
    if there.parts is not None:
        assert there.differs is not None and there.noise is not None and there.by is not None
        assert there.differs <= there.parts <= min(len(one), len(other)) - LEAST + 1
        assert abs(there.by) > there.noise


_CHANCE = random.Random(7)
NOISE = [_CHANCE.uniform(-0.03, 0.03) for _ in range(80)]
RISING = [0.01 * step + NOISE[step] for step in range(40)]


@pytest.mark.parametrize("at", [0, 10, 30, 37])
def test_a_run_that_stops_learning_parts_near_that_step(at: int) -> None:
    flat = [RISING[step] if step < at else 0.01 * at + NOISE[step + 40] for step in range(40)]
    found = parting(series(RISING), series(flat))
    assert found.differs == at + 1
    if at > 30:
        assert found.parts is None  # the last steps differ by no more than one step from the next
    else:
        assert found.parts is not None and found.by is not None
        assert at < found.parts <= at + 12 and found.by < -0.02


def test_two_seeds_of_one_training_do_not_part() -> None:
    others = [0.01 * step + NOISE[step + 40] for step in range(40)]
    found = parting(series(RISING), series(others))
    assert (found.common, found.differs, found.parts) == (40, 1, None)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (series([]), series([1.0]), Parting(0)),
        (series([1.0]), series([1.0], first=5), Parting(0)),
        (series([1.0, 2.0]), series([1.0, 3.0]), Parting(2, 2)),  # too few to tell
        (series([1.0, math.nan, 1.0]), series([1.0, 1.0, 1.0]), Parting(2)),
    ],
)
def test_what_cannot_be_told_is_not_told(one: Series, other: Series, expected: Parting) -> None:
    assert parting(one, other) == expected


@given(VALUES, VALUES)
def test_what_is_said_of_a_curve_is_true_of_its_steps(one: list[float], other: list[float]) -> None:
    """``above from step 4 on`` only where each step from there on is; else in how many of them, and more are than not
    by their mean."""
    found = parting(series(one), series(other))
    if found.parts is None or found.by is None:
        assert (found.sided, found.of) == (None, None)
        return
    gaps = [
        there - here
        for step, (here, there) in enumerate(zip(one, other, strict=False), 1)
        if step >= found.parts and math.isfinite(here) and math.isfinite(there)
    ]
    sided = sum(gap * found.by > 0 for gap in gaps)
    assert (found.sided, found.of) == (sided, len(gaps))
    assert found.by == pytest.approx(sum(gaps) / len(gaps))
    side = "above" if found.by > 0 else "below"
    words, (title, _) = parting_words(found), title_partings([found])
    if found.common < FEWEST:
        assert (words, title) == (f"too early to say ({found.common} common steps)", "")
        return
    if sided == len(gaps):
        assert words.startswith(f"{side} from step {found.parts} on, by ")
        assert title.endswith(f"{side} A from step {found.parts} on")
    else:
        assert words.startswith(f"{side} on average from step {found.parts} on, by ")
        assert words.endswith(f"; in {sided} of {len(gaps)} steps")
        assert title.endswith(f"{side} A in {sided} of {len(gaps)} steps")
        assert "on average" in reward_words("B", found)


@pytest.mark.parametrize(
    ("below", "words"),
    [
        ((), "above from step 1 on, by 1.000 on average"),
        (
            (3,),
            "above from step 4 on, by 1.000 on average",
        ),  # early: a later step is true of each that follows
        ((10, 16), "above on average from step 1 on, by 0.860; in 18 of 20 steps"),
    ],
)
def test_a_step_on_the_other_side_is_not_passed_over(below: tuple[int, ...], words: str) -> None:
    zero = [0.0] * 20
    other = [-0.4 if step in below else 1.0 for step in range(1, 21)]
    assert parting_words(parting(series(zero), series(other))) == words
