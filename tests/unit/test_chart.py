"""Charts: what is drawn for any series, and that little changes with a new point."""

from __future__ import annotations

import math
import re
from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl.observe.metrics.series import Series
from liverl_tui.text.themes import DARK
from liverl_tui.text.words import age
from liverl_tui.widgets.base.cells import Row, changes, draw
from liverl_tui.widgets.metrics.axes import (
    COLUMNS,
    number,
    numbers,
    round_span,
    step_window,
    ticks,
    time_ticks,
    value_bounds,
)
from liverl_tui.widgets.metrics.chart import (
    LABEL,
    ChartStyle,
    Line,
    Plot,
    Smoothed,
    column_of,
    columns,
    overlay,
    picture,
)
from liverl_tui.widgets.metrics.charts import Charts

NAN = math.nan


def series(*values: float, start: int = 1) -> Series:
    found = Series()
    for step, value in enumerate(values, start):
        found.add(step, value)
    return found


def text(rows: list) -> list[str]:
    return ["".join(part for part, _ in row) for row in rows]


def dots(rows: list) -> set[tuple[int, int]]:
    """The dots of a picture, (0, 0) at the lower left."""
    found = set()
    lines = text(rows)[:-1]
    for y, line in enumerate(lines):
        for x, character in enumerate(line[LABEL + 1 :]):
            bits = ord(character) - 0x2800 if character >= "\u2800" else 0
            for bit, dx, dy in (
                (1, 0, 0),
                (2, 0, 1),
                (4, 0, 2),
                (8, 1, 0),
                (16, 1, 1),
                (32, 1, 2),
                (64, 0, 3),
                (128, 1, 3),
            ):
                if bits & bit:
                    found.add((2 * x + dx, 4 * (len(lines) - y) - 1 - dy))
    return found


def test_a_rising_line_rises_without_a_hole() -> None:
    rows = picture(series(*range(1, 11)), 49, 9, ChartStyle())
    drawn = dots(rows)
    assert text(rows)[0].startswith("     10 ┤") and text(rows)[7].startswith("      0 ┤")
    heights = {x: [y for a, y in drawn if a == x] for x in range(max(x for x, _ in drawn) + 1)}
    assert all(heights.values()), "each column up to the newest point has a dot"
    assert max(heights[0]) < min(heights[max(heights)])
    tops = [max(ys) for ys in heights.values()]
    assert tops == sorted(tops)


def test_gaps_break_the_line_and_are_no_values() -> None:
    drawn = dots(picture(series(1, 1, 1, NAN, math.inf, 1, 1), 49, 9, ChartStyle(ended=True)))
    used = {x for x, _ in drawn}
    width = 2 * (49 - LABEL - 1)
    hole = range(3 * width // 7 + 2, 5 * width // 7)  # an isolated end is drawn two dots wide
    assert used and not used & set(hole)
    assert len({y for _, y in drawn}) <= 2, "an infinity does not move the scale"


def test_one_point_and_a_constant_series_can_be_seen() -> None:
    assert len(dots(picture(series(3.0), 49, 9, ChartStyle()))) == 4
    rows = picture(series(*[7.0] * 10), 49, 9, ChartStyle(ended=True))
    assert len({y for _, y in dots(rows)}) == 1
    assert text(rows)[0].startswith("    7.8 ┤") and text(rows)[7].startswith("    6.2 ┤")


def test_nothing_to_draw_is_said() -> None:
    assert "no points yet" in "\n".join(text(picture(Series(), 49, 9, ChartStyle())))
    assert "no finite value" in "\n".join(text(picture(series(NAN, NAN), 49, 9, ChartStyle())))
    assert "no value above zero" in "\n".join(text(picture(series(-1.0, 0.0), 49, 9, ChartStyle(log=True))))
    assert "too small" in "\n".join(text(picture(series(1.0), 12, 1, ChartStyle())))


def test_a_logarithmic_scale_makes_powers_equidistant() -> None:
    rows = picture(series(1, 10, 100, 1000), 49, 14, ChartStyle(log=True, ended=True))
    assert text(rows)[0].startswith("   1000 ┤") and text(rows)[12].startswith("      1 ┤")
    width = 2 * (49 - LABEL - 1)
    drawn = dots(rows)
    places = [max(y for x, y in drawn if x == i * (width - 1) // 3) for i in range(4)]
    steps = [b - a for a, b in pairwise(places)]
    assert max(steps) - min(steps) <= 1
    without_zero = dots(picture(series(0, 10, 100), 49, 14, ChartStyle(log=True, ended=True)))
    assert min(x for x, _ in without_zero) == (width - 1) // 2


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("count", [2, 5, 9, 16])
def test_a_point_stands_above_its_label(count: int, ended: bool) -> None:
    """The line of five steps does not end at four fifths of the axis whose last label is 5."""
    chart = ChartStyle(ended=ended, cursor=count, total=count)
    rows = picture(series(*[0.0] * (count - 1), 1.0), 80, 12, chart)
    end = max(x for x, _ in dots(rows)) // 2
    *_, axis = text(rows)
    assert axis.index("▲") - LABEL - 1 == end == 80 - LABEL - 2


def test_of_few_steps_each_label_is_below_its_point() -> None:
    *_, axis = text(
        picture(series(1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0), 90, 12, ChartStyle(ended=True))
    )
    for step in re.findall(r"\d+", axis):
        place = axis.index(step) + (len(step) - 1 if step == "9" else 0) - LABEL - 1
        assert place == column_of(int(step), 1, 9, 2 * (90 - LABEL - 1)) // 2


def test_the_lowest_and_highest_of_each_column_are_kept() -> None:
    values = [0.0] * 100_000
    values[31_415] = 5.0
    values[92_653] = -5.0
    found = columns(series(*values), 1, 100_000, 160)
    assert len(found) == 160
    assert [(c.x, c.high) for c in found if c.high > 0] == [(31_415 * 160 // 100_000, 5.0)]
    assert [(c.x, c.low) for c in found if c.low < 0] == [(92_653 * 160 // 100_000, -5.0)]


def test_a_new_point_changes_few_cells() -> None:
    """A sweep: over a thousand steps most pictures differ from the one before in their last column only."""
    growing = series(*[math.sin(i / 50) for i in range(1000)])
    changed = 0
    before = None
    for step in range(1001, 1101):
        rows = [draw(Row(*spans), 100, DARK) for spans in picture(growing, 100, 12, ChartStyle())]
        if before is not None:
            changed += sum(w for a, b in zip(before, rows, strict=True) for _, w in changes(a, b))
        before = rows
        growing.add(step, math.sin(step / 50))
    assert changed / 99 <= 12


@given(st.integers(0, 300), st.integers(2, 400), st.integers(14, 120), st.data())
def test_the_step_of_the_cursor_never_runs_into_another(
    first: int, count: int, width: int, data: st.DataObject
) -> None:
    cursor = data.draw(st.integers(first, first + count - 1))
    points = series(*range(count), start=first)
    axis = text(picture(points, width, 9, ChartStyle(cursor=cursor, ended=True)))[-1].split("└")[1]
    words = axis.split()
    mark = next(word for word in words if "▲" in word)
    whole = mark in (f"▲{cursor}", f"{cursor}▲")
    assert whole or len(axis) <= len(f"▲{cursor}")
    assert all(first <= int(word) <= first + count for word in words if word != mark)


def test_the_cursor_is_marked_with_its_step() -> None:
    rows = picture(series(*range(100)), 69, 9, ChartStyle(cursor=50, ended=True))
    assert "▲50" in text(rows)[-1]
    assert {style for row in rows[:-1] for _, style in row} >= {"accent", "rule"}
    assert "▲" not in text(picture(series(*range(100)), 69, 9, ChartStyle(cursor=500, ended=True)))[-1]
    assert "100▲" in text(picture(series(*range(100)), 69, 9, ChartStyle(cursor=100, ended=True)))[-1]


def test_the_raw_values_stay_behind_a_moving_average() -> None:
    noisy = series(*[i % 2 for i in range(200)])
    smooth = Smoothed(0.9).update(noisy, noisy.rewrites)
    rows = picture(noisy, 69, 9, ChartStyle(style="chart3"), smooth)
    styles = {style for row in rows for part, style in row if any(c >= "\u2800" for c in part)}
    assert styles == {"dim", "chart3"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (1, "1"),
        (-0.5, "-0.5"),
        (0.51234, "0.5123"),
        (12.345, "12.35"),
        (123.45, "123.5"),
        (1234.5, "1234"),
        (12_345, "12.3k"),
        (123_456, "123k"),
        (1_234_567, "1.2e6"),
        (1e-6, "1e-6"),
        (NAN, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_are_short(value: float, said: str) -> None:
    assert number(value) == said


@given(st.floats())
def test_every_number_fits_its_column(value: float) -> None:
    said = number(value)
    assert len(said) < LABEL
    if 1e-300 < abs(value) < 1e300:
        assert float(said.replace("k", "e3")) == pytest.approx(
            value, rel=0.06 if 1e-9 < abs(value) < 1e9 else 0.5
        )


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_bounds_hold_what_they_are_for(a: float, b: float) -> None:
    low, high = value_bounds(min(a, b), max(a, b))
    assert low < high
    slack = max(abs(a), abs(b)) * 1e-9
    assert low <= min(a, b) + slack and high >= max(a, b) - slack


@given(st.integers(1, 10**9))
def test_a_round_span_is_not_much_too_long(count: int) -> None:
    assert count <= round_span(count) <= max(10, count * 4 // 3 + 1)


def test_the_window_is_that_of_the_newest_steps() -> None:
    assert step_window(1, 431) == (1, 500)
    assert step_window(1, 431, total=450) == (1, 450)
    assert step_window(1, 431, total=20) == (1, 500)
    assert step_window(1, 431, ended=True) == (1, 431)
    for newest in range(100, 200):
        start, span = step_window(1, newest, last=50)
        assert span == 50 and start <= newest < start + span and newest - start >= 43


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(0, 8))
def test_ticks_lie_inside_and_ascend(low: float, size: float, count: int) -> None:
    found = ticks(low, low + size, count)
    assert len(found) <= count and found == sorted(found)
    assert all(low < tick < low + size for tick in found)


def test_ticks_between_neighbouring_floats_end() -> None:
    low = 1e12
    assert ticks(low, math.nextafter(low, math.inf), 8) == []


@pytest.mark.parametrize(
    "values, labels",
    [
        ((4000, 10_000, 7000), ["4k", "10k", "7k"]),
        ((0, 12_500), ["0", "12.5k"]),
        ((500_000, 1_000_000), ["0.5e6", "1e6"]),
        ((0.0005, 0.001), ["0.0005", "0.001"]),
        ((0.0002, 0.0004, 0.0008), ["2e-4", "4e-4", "8e-4"]),
        ((-0.00015, 0, 0.0001), ["-1.5e-4", "0", "1e-4"]),
        ((9000, 9990), ["9000", "9990"]),
        ((12_345.5, 12_346), ["12345.5", "12346"]),  # in thousands these would be too long
        ((0.15, 0.35, 0.55), ["0.15", "0.35", "0.55"]),
        ((1e-30, 1e-29), ["0.1e-29", "1e-29"]),
        ((math.inf, 1), ["inf", "1"]),
        ((), []),
    ],
)
def test_an_axis_has_one_unit(values: tuple[float, ...], labels: list[str]) -> None:
    assert numbers(values) == labels


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.integers(0, 8))
def test_labels_of_an_axis_are_short_and_say_its_values(low: float, size: float, count: int) -> None:
    low, high = value_bounds(low, low + size)
    values = [low, high, *ticks(low, high, count)]
    labels = numbers(values)
    assert all(0 < len(label) <= COLUMNS for label in labels)
    units = {
        re.sub(r"[-\d.]+", "", label.partition("e")[0]) + label.partition("e")[2] for label in labels
    } - {""}
    if labels != [number(value) for value in values]:
        assert len(units) <= 1
        for label, value in zip(labels, values, strict=True):
            assert abs(float(label.replace("k", "e3")) - value) <= (high - low) / 400


@pytest.mark.parametrize(
    "low, high, count, found",
    [
        (0, 60, 3, [15, 30, 45]),
        (0, 720, 8, [120, 240, 360, 480, 600]),
        (23, 2000, 2, [900, 1800]),
        (0, 40_000, 4, [10_800, 21_600, 32_400]),
        (0, 400_000, 4, [86_400, 172_800, 259_200, 345_600]),
        (0, 100, 0, []),
        (0, math.inf, 3, []),
    ],
)
def test_ticks_of_time_are_round_on_a_clock(low: float, high: float, count: int, found: list[float]) -> None:
    assert time_ticks(low, high, count) == found


@given(st.floats(0, 1e6), st.floats(0.01, 1e7), st.integers(1, 8))
def test_ticks_of_time_lie_inside(low: float, size: float, count: int) -> None:
    found = time_ticks(low, low + size, count)
    assert len(found) <= count and found == sorted(found)
    assert all(low < tick < low + size for tick in found)


def test_curves_over_time_have_their_labels_at_round_times() -> None:
    long = series(*range(2001), start=0)
    axis = text(overlay([Line(long, "chart1", "A")], 70, 6, words=age, places=time_ticks))[-1]
    assert axis.split() == ["└0s", "15m", "33m"]


def test_the_values_at_a_chart_share_a_unit() -> None:
    shown = text(picture(series(4000, 10_000), 40, 9, ChartStyle()))
    assert [row.split()[0] for row in shown if "┤" in row] == ["10k", "8k", "6k", "4k"]


class Given:
    """Points as they come."""

    def __init__(self, pairs: list[tuple[int, float]]) -> None:
        self.steps = array("q", [step for step, _ in pairs])
        self.values = array("d", [value for _, value in pairs])


any_points = st.lists(
    st.tuples(st.integers(-(10**12), 10**12), st.floats()), max_size=60, unique_by=lambda p: p[0]
).map(lambda pairs: Given(sorted(pairs)))


@settings(max_examples=150)
@given(any_points, st.integers(0, 140), st.integers(0, 30), st.booleans(), st.none() | st.integers(1, 1000))
def test_any_series_fits_any_room(
    points: Given, width: int, height: int, log: bool, last: int | None
) -> None:
    cursor = points.steps[len(points.steps) // 2] if points.steps else 3
    rows = picture(points, width, max(1, height), ChartStyle(log=log, last=last, cursor=cursor))
    assert len(rows) == max(1, height)
    assert all(len(line) == width for line in text(rows))


@given(st.lists(st.floats(-1e9, 1e9) | st.just(NAN), min_size=1), st.lists(st.floats(-1e9, 1e9)))
def test_a_moving_average_goes_on_where_it_was(first: list[float], more: list[float]) -> None:
    growing, at_once = series(*first), series(*first, *more)
    smooth = Smoothed(0.6).update(growing, growing.rewrites)
    for step, value in enumerate(more, len(first) + 1):
        growing.add(step, value)
    smooth.update(growing, growing.rewrites)
    whole = Smoothed(0.6).update(at_once, at_once.rewrites)
    assert [str(v) for v in smooth.values] == [str(v) for v in whole.values]
    finite = [v for v in (*first, *more) if math.isfinite(v)]
    told = [v for v in smooth.values if math.isfinite(v)]
    assert len(told) == len(finite)
    if finite:
        assert told[0] == pytest.approx(finite[0])  # no bias towards zero
        slack = 1e-6 * max(map(abs, finite)) + 1e-9
        assert all(min(finite) - slack <= v <= max(finite) + slack for v in told)


def test_a_rewritten_value_changes_the_average_behind_it() -> None:
    points = series(1.0, 2.0, 3.0)
    smooth = Smoothed(0.6).update(points, points.rewrites)
    before = list(smooth.values)
    points.add(1, 10.0)
    assert list(smooth.update(points, points.rewrites).values) != before
    assert smooth.values[0] == pytest.approx(10.0)


def test_lines_stay_inside_their_plot() -> None:
    plot = Plot(3, 2)
    plot.line(0, -50, 5, 90)
    plot.dot(99, 99)
    assert any(any(row) for row in plot.cells)


def test_zooming_goes_through_round_numbers_and_back() -> None:
    charts = Charts()
    charts.series.first, charts.series.last = 1, 431
    seen = []
    for by in (1, 1, 1, 1, 1, 1, 1, 1):
        charts.zoom(by)
        seen.append(charts.last)
    assert seen == [200, 100, 50, 20, 10, 10, 10, 10]
    for _ in range(4):
        charts.zoom(-1)
    assert charts.last == 200
    charts.zoom(-1)
    assert charts.last is None


@pytest.mark.parametrize("height", [2, 3, 8])
@pytest.mark.parametrize("values", [(1.0, 1.0, 1.0), (0.0, 0.5, 1.0), (1.0, 0.999, 0.0)])
def test_each_of_several_lines_has_its_letter_as_near_to_its_end_as_there_is_room(
    values: tuple[float, ...], height: int
) -> None:
    lines = [
        Line(series(0.5, value), f"chart{i}", letter)
        for i, (value, letter) in enumerate(zip(values, "ABC", strict=True), 1)
    ]
    rows = text(overlay(lines, 60, height + 1))
    letters = [row[-1] for row in rows[:-1]]
    assert sorted(letter for letter in letters if letter != " ") == list("ABC"[: min(3, height)])
    assert all(len(row) == 60 for row in rows)
    if height == 8 and values == (0.0, 0.5, 1.0):
        assert letters.index("C") < letters.index("B") < letters.index("A")


def test_steps_that_share_a_column_are_drawn_as_their_mean() -> None:
    noisy = series(*(value for _ in range(500) for value in (0.0, 1.0)))
    top, *_, bottom, _axis = text(overlay([Line(noisy, "chart1", "A")], 60, 9))
    assert 0.3 < float(bottom[:LABEL]) < 0.5 < float(top[:LABEL]) < 0.7


def test_without_points_several_lines_say_so() -> None:
    assert "no points" in "\n".join(text(overlay([Line(Series(), "chart1", "A")], 60, 9)))
    assert "no finite value" in "\n".join(text(overlay([Line(series(NAN), "chart1", "A")], 60, 9)))
    assert "too small" in "\n".join(text(overlay([Line(series(1.0), "chart1", "A")], 10, 9)))
