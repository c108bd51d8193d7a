"""Screens with charts use the width and the height that there is."""

from __future__ import annotations

import itertools
from array import array

import pytest

from liverl.observe.metrics.series import Series
from liverl.offline.compare import Compared, Comparison, Curve, Parting
from liverl_tui.text.comparison import title_partings
from liverl_tui.widgets.header.header import why_words
from liverl_tui.widgets.metrics.grid import places, side_by_side
from liverl_tui.widgets.runs.curves import CurvesPane
from liverl_tui.widgets.timeline.steps import StepsPane, scale_of

SIZES = [(80, 24), (120, 40), (200, 50), (250, 70)]


@pytest.mark.parametrize(
    ("count", "most", "across"),
    [(1, 4, 1), (3, 4, 3), (4, 3, 2), (5, 4, 3), (5, 3, 3), (6, 4, 3), (8, 4, 4), (9, 4, 3)],
)
def test_rows_of_charts_are_evenly_filled(count: int, most: int, across: int) -> None:
    assert side_by_side(count, most) == across


@pytest.mark.parametrize(("width", "count"), [(80, 1), (120, 2), (200, 3), (250, 4), (251, 3), (7, 4)])
def test_charts_side_by_side_fill_the_width(width: int, count: int) -> None:
    found = places(width, count)
    assert found[0][0] == 0 and sum(found[-1]) == width
    assert all(left + wide + 1 == following for (left, wide), (following, _) in itertools.pairwise(found))
    assert max(wide for _, wide in found) - min(wide for _, wide in found) <= 1


@pytest.mark.parametrize(
    ("seconds", "scale"),
    [
        ([], 0.0),
        ([3.0], 3.0),
        ([23.0, 8.0, 8.0, 9.0], 23.0),  # too few to say what is usual
        ([23.0, 8.0, 8.0, 9.0, 8.0], 9.0),
        ([12.0, 8.0, 8.0, 9.0, 8.0], 12.0),
        ([23.0, 20.0, 8.0, 9.0, 8.0], 23.0),
        ([5.0, 0.0, 0.0, 0.0, 0.0], 5.0),
    ],
)
def test_one_step_that_is_much_longer_does_not_set_the_scale(seconds: list[float], scale: float) -> None:
    assert scale_of(seconds) == scale


def steps_pane(count: int) -> StepsPane:
    pane = StepsPane()
    pane.take(
        {
            step: ({"generate": 4.0 + step % 3, "update": 2.0, "other": 15.0 if step == 1 else 1.0}, 8.0)
            for step in range(1, count + 1)
        }
    )
    return pane


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("count", [3, 16, 300])
def test_the_timeline_of_all_steps_fills_its_screen(width: int, height: int, count: int) -> None:
    rows = [row.text for row in steps_pane(count).compose_rows(width, height)]
    blank = [row for row in rows if not row.strip()]
    drawn = width >= 120 or count > height
    assert len(rows) == height and (not drawn or len(blank) <= 1), "\n".join(rows)
    assert all(len(row) <= width for row in rows)
    charts = [row for row in rows if "seconds over steps" in row]
    assert bool(charts) == (count == 3 or (count == 16 and height > 24)), "\n".join(rows)


@pytest.mark.parametrize("width", [120, 250])
def test_a_longer_bar_says_so_and_numbers_stand_where_there_is_room(width: int) -> None:
    pane = steps_pane(16)
    first, second = pane.row("1", width).text, pane.row("2", width).text
    assert "»" in first and "»" not in second
    assert ("25 %" in second) == (width == 250) and len(first) == len(second) == width


def test_a_bar_that_is_longer_than_the_axis_has_its_parts_in_proportion() -> None:
    """26 s, of which 84 % were the update, were cut at 3.9 s and drawn as all "generate"."""
    pane = StepsPane()
    usual = ({"generate": 3.4, "update": 0.5}, 3.9)
    steps = dict.fromkeys(range(2, 9), usual)
    pane.take(steps)
    sentence = "» longer than the axis: its parts are in proportion"
    assert sentence not in "".join(row.text for row in pane.compose_rows(115, 40))
    pane.take({1: ({"generate": 4.2, "update": 21.8}, 26.0), **steps})
    long, other = pane.row("1", 115).text, pane.row("2", 115).text
    assert (long.count("▬"), long.count("═"), long[-1]) == (16, 83, "»") and "26s" in long
    assert (other.count("▬"), other.count("═")) == (87, 13)
    assert sentence in "".join(row.text for row in pane.compose_rows(115, 40))


def compared(name: str) -> Compared:
    return Compared(
        name, f"/runs/{name}", "done", 1, "m", None, None, 3, 3, None, None, None, None, "", False, ()
    )


@pytest.mark.parametrize(
    ("width", "count", "lines"), [(200, 4, [2, 2]), (250, 5, [3, 2]), (200, 3, [3]), (120, 3, [2, 1])]
)
def test_compared_runs_leave_no_cell_of_their_charts_empty(width: int, count: int, lines: list[int]) -> None:
    points = Series()
    points.steps, points.values = array("q", [1, 2, 3]), array("d", [0.1, 0.2, 0.3])
    curves = tuple(Curve(f"metric{n}", (f"m{n}", f"m{n}"), (None,)) for n in range(count))
    series = {f"m{n}": points for n in range(count)}
    pane = CurvesPane()
    pane.take(Comparison((compared("a"), compared("b")), (), curves), (series, series), (None, None))
    rows = [row.text for row in pane.compose_rows(width, 40)]
    assert [row.count("metric") for row in rows if "metric" in row] == lines
    axes = [row for row in rows if "└" in row]
    assert all(row.rstrip().endswith("3") and len(row.rstrip()) > width - 6 for row in axes), "\n".join(axes)


@pytest.mark.parametrize(
    ("partings", "words"),
    [
        ((), ("", "")),
        ((Parting(11, 3, 3, -0.3359),), ("", "")),  # too early to say
        ((None, Parting(12, 3, 3, -0.3359)), ("  C 0.336 below A from step 3 on", "  C below A")),
        (
            (Parting(9, None, None, None), Parting(12, 2, 4, 0.5)),
            ("  C 0.500 above A from step 4 on", "  C above A"),
        ),
    ],
)
def test_who_leaves_whom_is_said_in_words(
    partings: tuple[Parting | None, ...], words: tuple[str, str]
) -> None:
    assert title_partings(partings) == words


KEYS = "{ goes back, | plays it again, q quits"


@pytest.mark.parametrize(
    ("why", "width", "words"),
    [
        ("the recording has ended; x", 80, "the recording has ended; x"),
        (f"the recording has ended: 5 of 5 steps; trials call no tool; {KEYS}", 110, None),
        (f"the recording has ended: 5 of 5 steps; trials call no tool; {KEYS}", 85,
         f"the recording has ended: trials call no tool; {KEYS}"),
        (f"the recording has ended: 5 of 5 steps; trials call no tool; {KEYS}", 80, f"trials call no tool; {KEYS}"),
        (f"the recording has ended: 5 of 5 steps; trials call no tool; {KEYS}", 58, f"trials call no to…; {KEYS}"),
        (f"the recording has ended; {KEYS}", 60, KEYS),
        (f"the recording has ended: 5 of 5 steps; trials call no tool; {KEYS}", 40, KEYS),
        (f"the recording has ended: 5 of 5 steps; trials call no tool; {KEYS}", 20, None),
        ("the backend of p/r is not running", 20, None),
    ],
)  # fmt: skip
def test_what_can_be_done_is_not_cut_off(why: str, width: int, words: str | None) -> None:
    assert why_words(why, width) == (words if words is not None else why)
