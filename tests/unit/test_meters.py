"""Bars, histories, and what is left out where a line is too narrow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liverl_tui.widgets.base.fitting import Column, Part, choose, heads, pack
from liverl_tui.widgets.base.meters import PERIOD_S, Sweep, bar, level

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


@given(st.lists(SHARES, min_size=1, max_size=150), st.integers(1, 60))
def test_a_new_place_changes_two_cells_at_most(shares: list[float], width: int) -> None:
    """This is what keeps a history cheap to send."""
    sweep = Sweep()
    for index, share in enumerate(shares):
        before = sweep.cells(width)
        sweep.add(index * PERIOD_S, share)
        after = sweep.cells(width)
        assert len(after) == width
        assert sum(a != b for a, b in zip(before, after, strict=True)) <= 2


def test_a_gap_runs_ahead_of_the_newest_sample() -> None:
    sweep = Sweep()
    for index in range(13):
        sweep.add(index * PERIOD_S, 1.0)
    # 13 samples in 10 places: the newest is at place 2, the gap at 3
    assert sweep.cells(10) == "▇▇▇ ▇▇▇▇▇▇"


def test_a_place_is_the_mean_of_its_samples() -> None:
    sweep = Sweep()
    for share in (0.0, 1.0):
        sweep.add(1.0, share)
    assert sweep.cells(5)[0] == level(0.5)


def test_what_was_not_known_is_blank() -> None:
    sweep = Sweep()
    for index, share in enumerate((1.0, None, 1.0)):
        sweep.add(index * PERIOD_S, share)
    assert sweep.cells(5) == "▇ ▇  "


@given(st.permutations(list(range(20))))
def test_the_order_of_samples_does_not_matter(places: list[int]) -> None:
    ordered, shuffled = Sweep(), Sweep()
    for place in sorted(places):
        ordered.add(place * PERIOD_S, place / 20)
    for place in places:
        shuffled.add(place * PERIOD_S, place / 20)
    assert ordered.cells(30) == shuffled.cells(30)


def test_a_long_run_does_not_grow_its_history() -> None:
    sweep = Sweep()
    for index in range(5000):
        sweep.add(index * PERIOD_S, 0.5)
    assert len(sweep._sums) < 1100
    assert sweep.cells(200).count(" ") == 1


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
