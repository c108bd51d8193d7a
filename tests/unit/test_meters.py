"""Bars, histories, and what is left out where a line is too narrow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl_tui.widgets.base.fitting import Column, Part, choose, heads, pack
from liverl_tui.widgets.base.meters import (
    SPAN_S,
    WIDTHS,
    History,
    bar,
    history_head,
    history_width,
    level,
)
from liverl_tui.widgets.dashboard.trial_rows import TRIAL

NOW = 1_790_000_000.0
SHARES = st.floats(0, 1)


@given(st.one_of(st.none(), st.floats(-1, 2)), st.integers(0, 60))
def test_a_bar_has_its_width(share: float | None, width: int) -> None:
    filled, rest = bar(share, width)
    assert len(filled) + len(rest) == width


@given(SHARES, SHARES, st.integers(1, 60))
def test_a_longer_bar_is_more(one: float, other: float, width: int) -> None:
    low, high = sorted((one, other))
    assert len(bar(low, width)[0]) <= len(bar(high, width)[0])


def test_levels_go_from_bottom_to_top() -> None:
    assert [level(v) for v in (None, 0.0, 0.5, 1.0)] == [" ", "▁", "▄", "▇"]


def busy_for(seconds: float) -> History:
    """Idle but for the last seconds before ``NOW``."""
    history = History()
    for age in range(0, 1800, 5):
        history.add(NOW - age, 1.0 if age < seconds else 0.0)
    return history


@pytest.mark.parametrize("width", WIDTHS)
def test_a_history_shows_fifteen_minutes_at_every_width(width: int) -> None:
    cells = busy_for(300).cells(width, NOW)
    assert len(cells) == width
    busy = sum(cell != "▁" for cell in cells)
    assert abs(busy / width - 300 / 900) <= 1.5 / width
    assert cells == "".join(sorted(cells)), "what is newest is on the right"
    assert cells[-1] == "▇"


@given(st.lists(st.tuples(st.integers(0, 1200), SHARES), max_size=30), st.sampled_from(WIDTHS))
def test_a_history_drawn_in_several_widths_in_turn_is_that_of_each(
    samples: list[tuple[int, float]], other: int
) -> None:
    history, known = History(), History()
    for at, share in samples:
        history.add(NOW + at, share)
        known.add(NOW + at, share)
        for width in (WIDTHS[0], other):
            fresh = History()
            fresh._sums = dict(known._sums)
            assert history.cells(width, NOW + at) == fresh.cells(width, NOW + at)


def test_a_history_moves_by_one_column_and_only_when_its_time_is_over() -> None:
    history = History()
    for second in range(0, 1000, 5):
        history.add(NOW + second, (second // 60 % 7 + 0.5) / 7)
    begin = NOW - NOW % 15 + 960
    now, same, later = (history.cells(60, begin + s) for s in (0, 14.9, 15))
    assert now == same
    assert later[:-1] == now[1:]


@given(
    st.lists(st.tuples(st.floats(-2 * SPAN_S, 6 * SPAN_S), SHARES, st.sampled_from(WIDTHS)), max_size=60),
    st.floats(0, SPAN_S),
)
def test_a_history_that_was_drawn_before_is_the_same_as_a_new_one(
    samples: list[tuple[float, float, int]], beyond: float
) -> None:
    """Columns without a new sample are kept from one drawing to the next."""
    drawn = History()
    for count, (at, share, width) in enumerate(samples, 1):
        drawn.add(NOW + at, share)
        new = History()
        for when, value, _ in samples[:count]:
            new.add(NOW + when, value)
        assert drawn.cells(width, NOW + at + beyond) == new.cells(width, NOW + at + beyond)


def test_a_history_forgets_what_is_long_gone_in_its_columns_too() -> None:
    drawn = busy_for(SPAN_S)
    assert drawn.cells(60, NOW).strip()
    for second in range(0, int(4 * SPAN_S), 5):
        drawn.add(NOW + 4 * SPAN_S + second, 0.5)
    assert drawn.cells(60, NOW) == " " * 60


def test_what_was_not_measured_is_blank() -> None:
    history = History()
    history.add(NOW, 0.5)
    history.add(NOW - 600, None)
    assert history.cells(60, NOW) == " " * 59 + "▄"
    assert history.cells(0, NOW) == ""
    assert history.cells(60, NOW + 2 * SPAN_S) == " " * 60


def test_old_samples_are_dropped_and_the_newest_kept() -> None:
    history = History()
    for second in range(0, 40_000, 5):
        history.add(NOW + second, 1.0)
    assert len(history._sums) < 1000
    assert history.cells(60, NOW + 39_995) == "▇" * 60


@pytest.mark.parametrize(
    ("room", "width"), [(500, 60), (60, 60), (59, 45), (29, 20), (10, 10), (9, 0), (0, 0), (-3, 0)]
)
def test_a_history_takes_one_of_a_few_widths(room: int, width: int) -> None:
    assert history_width(room) == width


def test_the_head_says_which_time_is_shown() -> None:
    assert history_head(30) == "history 15m                now"
    assert history_head(30, "14:03") == "history 15m          end 14:03"
    assert history_head(15, "14:03") == "history 15m end"
    assert history_head(15) == "history 15m now"
    assert history_head(10, "14:03") == "15m    end"


@given(st.permutations(list(range(20))))
def test_the_order_of_samples_does_not_matter(places: list[int]) -> None:
    ordered, shuffled = History(), History()
    for place in sorted(places):
        ordered.add(NOW + place * 15, place / 20)
    for place in places:
        shuffled.add(NOW + place * 15, place / 20)
    assert ordered.cells(30, NOW + 300) == shuffled.cells(30, NOW + 300)


def test_a_column_is_the_mean_of_its_samples() -> None:
    history = History()
    for share in (0.0, 1.0):
        history.add(NOW, share)
    assert history.cells(60, NOW)[-1] == level(0.5)


def test_each_sample_shows_although_the_same_columns_were_drawn_before() -> None:
    history = History()
    drawn = []
    for share in (None, 0.0, 1.0, 1.0):
        history.add(1000.0, share)
        drawn.append(history.cells(10, 1000.0)[-1])
    assert drawn == [" ", level(0.0), level(0.5), level(2 / 3)] and len(set(drawn)) == 4
    assert history.cells(10, 1000.0) != history.cells(10, 1000.0 + SPAN_S / 2) != history.cells(20, 1000.0)


def part(rank: int, *texts: str) -> Part:
    return Part(rank, tuple(((text, "text"),) if text else () for text in texts))


WORDS = st.lists(st.tuples(st.integers(0, 5), st.text("ab", min_size=1, max_size=12)), max_size=8)


@given(WORDS, st.integers(0, 80))
def test_a_packed_line_fits_when_everything_may_be_left_out(words: list[tuple[int, str]], width: int) -> None:
    parts = [part(rank, text, text[: len(text) // 2], "") for rank, text in words]
    assert len(pack(parts, width).text) <= width


@given(WORDS)
def test_nothing_is_left_out_where_there_is_room(words: list[tuple[int, str]]) -> None:
    row = pack([part(rank, text, "") for rank, text in words], 1000)
    assert row.text == "  ".join(text for _, text in words)


def test_the_least_important_goes_first() -> None:
    parts = [part(1, "important", "imp"), part(3, "unimportant", "uni", ""), part(2, "middle", "mid")]
    assert pack(parts, 29).text == "important  uni  middle"
    assert pack(parts, 17).text == "important  middle"
    assert pack(parts, 8).text == "imp  mid"


def test_columns_come_by_importance_and_stand_in_their_order() -> None:
    columns = (Column("a", "A", 4, 0), Column("b", "B", 6, 2), Column("c", "C", 4, 1, grows=5))
    assert [(c.name, w) for c, w in choose(columns, 9)] == [("a", 4), ("c", 4)]
    assert [(c.name, w) for c, w in choose(columns, 16)] == [("a", 4), ("b", 6), ("c", 4)]
    assert [(c.name, w) for c, w in choose(columns, 40)] == [("a", 4), ("b", 6), ("c", 9)]


@given(st.integers(0, 120))
def test_chosen_columns_fit(width: int) -> None:
    columns = tuple(Column(str(i), "head", 5 + i, 7 - i, grows=i) for i in range(8))
    assert len(heads(choose(columns, width)).text) <= width + 1  # the gap behind the last one


@given(
    st.integers(20, 160),
    st.sampled_from([c.name for c in TRIAL if c.value is not None]),
    st.sampled_from("▲▼"),
)
def test_the_sign_of_the_order_cuts_no_head(width: int, name: str, sign: str) -> None:
    chosen = choose(TRIAL, width)
    shown, plain = heads(chosen, sorted_by=name, sign=sign).text, heads(chosen).text
    assert len(shown) == len(plain)
    assert shown.count(sign) == (name in {column.name for column, _ in chosen})
    assert all(column.head in shown for column, columns in chosen if len(column.head) <= columns)


def test_the_sign_of_the_order_stands_beside_its_head() -> None:
    chosen = choose(
        (Column("a", "step", 4, 0), Column("b", "reward", 6, 0, ">"), Column("c", "id", 4, 0)), 16
    )
    bold = {
        name: "".join(
            text for text, style in heads(chosen, sorted_by=name, sign="▼").spans if style == "strong"
        )
        for name in "abc"
    }
    assert bold == {"a": "step▼", "b": "▼reward", "c": "id▼ "}
    assert heads(chosen, sorted_by="b", sign="▼").text == "step▼reward id   "
    last = choose((Column("b", "reward", 6, 0), Column("c", "step", 4, 0)), 11)
    assert heads(last, sorted_by="c", sign="▲").text == "reward▲step "
