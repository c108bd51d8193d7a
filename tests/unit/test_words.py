"""Numbers, times and states as words."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.model import Level, RunState, ServiceState
from liverl_tui.text import words
from liverl_tui.text.columns import columns_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-3, "0s"),
        (0.9, "0s"),
        (41, "41s"),
        (60, "1m00s"),
        (723, "12m03s"),
        (11100, "3h05m"),
        (187200, "2d04h"),
    ],
)
def test_a_duration(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h00m"), (187200, "2d04h")],
)
def test_an_age_does_not_tick_every_second(seconds: float | None, text: str) -> None:
    assert words.age(seconds) == text


@given(st.floats(60, 3600 * 24 * 99))
def test_an_age_stays_the_same_for_the_rest_of_its_minute(seconds: float) -> None:
    assert words.age(seconds) == words.age(seconds // 60 * 60)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"),
        (0, "0B"),
        (512, "512B"),
        (1024, "1K"),
        (1.4 * 2**30, "1.4G"),
        (71 * 2**30, "71G"),
        (2**40, "1.0T"),
    ],
)
def test_a_size(number: float | None, text: str) -> None:
    assert words.size(number) == text


@given(st.floats(0, 999 * 2.0**40))
def test_a_size_has_at_most_five_columns(number: float) -> None:
    assert len(words.size(number)) <= 5


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"),
        (0, "0"),
        (950, "950"),
        (1240, "1.24k"),
        (12345, "12.3k"),
        (999_600, "1.00M"),
        (4.56e6, "4.56M"),
    ],
)
def test_a_counter(number: float | None, text: str) -> None:
    assert words.count(number) == text


@given(st.floats(0, 9.99e11))
def test_a_counter_has_at_most_five_columns(number: float) -> None:
    assert len(words.count(number)) <= 5


def test_shares_and_numbers() -> None:
    assert (words.percent(0.974), words.percent(None)) == ("97%", "-")
    assert (words.number(0.5123, 2), words.number(None)) == ("0.51", "-")


@given(st.text(), st.integers(0, 80))
def test_a_cut_text_fits_and_says_that_it_was_cut(text: str, width: int) -> None:
    shown = words.cut(text, width)
    assert columns_of(shown) <= max(1, width)
    assert shown == text or shown.endswith("…")


def test_names_in_wide_letters_are_cut_by_columns_and_keep_their_number() -> None:
    assert words.short_name("复制品模型的副本-12", 12) == "复制品模…-12"
    assert words.short_name("复制品-12", 12) == "复制品-12"
    assert words.cut("复制品模型", 6) == "复制…"


@given(st.text())
def test_text_from_elsewhere_becomes_one_harmless_line(text: str) -> None:
    shown = words.one_line("\x1b[31m" + text + "\x1b]0;title\x07\r\n")
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown)


def test_every_state_has_a_glyph_and_a_style() -> None:
    assert set(words.GLYPH) == set(words.STYLE) == set(get_args(ServiceState))
    assert set(words.RUN_GLYPH) == set(words.RUN_STYLE) == set(get_args(RunState))
    assert set(words.LEVEL_GLYPH) == set(words.LEVEL_STYLE) == set(get_args(Level))


def test_states_of_different_consequence_differ_in_glyph() -> None:
    """Colour is never all that tells them apart."""
    told = {(words.GLYPH[s], words.STYLE[s]) for s in words.GLYPH}
    assert len({glyph for glyph, _ in told}) >= len({style for _, style in told})
    assert words.state_word("backing_off") == "backing off"


@given(st.from_regex(r"[a-z]{1,12}([-_][a-z0-9]{1,4})?", fullmatch=True), st.integers(1, 20))
def test_a_short_name_fits_and_keeps_its_number(name: str, width: int) -> None:
    shown = words.short_name(name, width)
    assert columns_of(shown) <= width
    assert shown == name or "…" in shown


def test_a_wide_end_of_a_name_is_cut_by_columns() -> None:
    assert [words.short_name("run-训练进程", width) for width in (8, 10, 11, 12)] == [
        "run-训…",
        "run-训练…",
        "r…-训练进程",
        "run-训练进程",
    ]


def test_siblings_stay_apart_in_a_narrow_column() -> None:
    assert [words.short_name(f"replica-{i}", 7) for i in (0, 11)] == ["repl…-0", "rep…-11"]
    assert words.short_name("trainer_of_everything", 6) == "train…"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (4.4, "4s"),
        (44, "40s"),
        (57, "1m00s"),
        (106, "1m50s"),
        (594, "9m50s"),
        (596, "10m"),
        (629, "10m"),
        (631, "11m"),
        (3569, "59m"),
        (3571, "1h00m"),
        (11130, "3h06m"),
        (86369, "23h59m"),
        (86390, "1d00h"),
        (88200, "1d00h"),
        (88201, "1d01h"),
    ],
)
def test_an_estimate_is_rounded_and_not_cut_down(seconds: float, text: str) -> None:
    """1m46s were shown as `1m`."""
    assert words.time_left(seconds) == text
