"""Where panes stand: for any size, without a terminal."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Region

from liverl_tui.screens.layout import PANES, WIDE, Need, arrange

NEEDS = st.fixed_dictionaries(
    {
        name: st.builds(lambda a, b: Need(min(a, b), max(a, b)), st.integers(1, 12), st.integers(1, 80))
        for name in PANES
    }
)
HIDDEN = st.sets(st.sampled_from(PANES), max_size=3)


def needs(gpus: int, replicas: int) -> dict[str, Need]:
    """As the panes say it: eight GPUs are four short lines below heads, or ten rows."""
    lines = -(-gpus // 2)
    return {
        "gpus": Need(2 + max(1, lines), 2 + max(1, gpus)),
        "replicas": Need(min(5, 4 + replicas), 4 + replicas),
        "logs": Need(),
        "trials": Need(),
    }


@given(st.integers(-2, 300), st.integers(-2, 120), NEEDS, HIDDEN)
def test_panes_stay_inside_and_apart(
    width: int, height: int, wanted: dict[str, Need], hidden: set[str]
) -> None:
    regions = arrange(width, height, wanted, hidden)
    assert not set(regions) & hidden
    assert (width > 0 and height > 0) == bool(regions)
    body = Region(0, 0, max(0, width), max(0, height))
    for region in regions.values():
        assert region.width > 0
        assert region.height > 0
        assert body.contains_region(region)
    for one, other in combinations(regions.values(), 2):
        assert not one.intersection(other).area


@given(st.integers(1, 300), st.integers(1, 120), NEEDS, HIDDEN)
def test_no_row_is_wasted(width: int, height: int, wanted: dict[str, Need], hidden: set[str]) -> None:
    regions = arrange(width, height, wanted, hidden)
    for x in {region.x for region in regions.values()}:
        assert sum(r.height for r in regions.values() if r.x == x) == height
    covered = sum(r.area for r in regions.values())
    assert covered >= (width - 1) * height  # one blank column stands between two columns of panes


@given(st.integers(1, 300), st.integers(12, 120), NEEDS, HIDDEN)
def test_every_pane_is_there_when_there_is_room(
    width: int, height: int, wanted: dict[str, Need], hidden: set[str]
) -> None:
    regions = arrange(width, height, wanted, hidden)
    assert set(regions) == set(PANES) - hidden
    for name, region in regions.items():
        assert region.height >= (2 if wanted[name].wanted <= 2 else 3)


@given(st.integers(1, 300), st.integers(1, 120), NEEDS, HIDDEN, st.sampled_from(PANES))
def test_a_maximised_pane_is_alone(
    width: int, height: int, wanted: dict[str, Need], hidden: set[str], name: str
) -> None:
    assert arrange(width, height, wanted, hidden, name) == {name: Region(0, 0, width, height)}


@pytest.mark.parametrize(("width", "height"), [(80, 21), (120, 36), (200, 46)])
@pytest.mark.parametrize("gpus", [0, 1, 4, 8])
@pytest.mark.parametrize("replicas", [0, 1, 2, 8, 64])
def test_usual_terminals_show_what_matters(width: int, height: int, gpus: int, replicas: int) -> None:
    wanted = needs(gpus, replicas)
    regions = arrange(width, height, wanted)
    assert set(regions) == set(PANES)
    for name, need in wanted.items():
        assert regions[name].height >= need.least, f"{name} hides something"
    for name in ("gpus", "replicas"):
        assert regions[name].height <= max(3, wanted[name].wanted), f"{name} has empty rows"
    assert regions["logs"].height >= (5 if gpus < 8 or height > 21 else 4)


def test_the_services_are_in_view_before_logs_grow_and_where_rows_would_be_empty() -> None:
    """In 80x24 with eight GPUs and a header of three lines or two."""
    for height, replicas in ((20, 2), (21, 3)):
        wanted = {**needs(8, 0), "replicas": Need(6, 4 + replicas)}
        assert arrange(80, height, wanted)["replicas"].height == 4 + replicas
    wanted = {**needs(0, 0), "replicas": Need(6, 20), "trials": Need(4, 4)}
    assert arrange(80, 30, wanted)["trials"].height == 4
    assert (
        arrange(80, 30, wanted)["replicas"].height
        > arrange(80, 30, wanted | {"trials": Need()})["replicas"].height
    )
    assert arrange(80, 30, wanted, {"replicas"})


def test_eight_gpus_have_a_line_each_where_there_is_room() -> None:
    assert arrange(120, 36, needs(8, 2))["gpus"].height == 10
    assert arrange(200, 46, needs(8, 64))["gpus"].height == 10
    assert arrange(80, 21, needs(8, 2))["gpus"].height == 6
    assert arrange(120, 36, needs(8, 8))["replicas"].height >= 10, "eight replicas are all in view"


def test_many_replicas_leave_the_logs_readable() -> None:
    regions = arrange(80, 21, needs(8, 64))
    assert regions["logs"].height + regions["trials"].height >= 21 * 0.4


def test_a_wide_terminal_has_the_trajectories_beside_the_rest() -> None:
    regions = arrange(WIDE, 46, needs(8, 8))
    assert regions["trials"].height == 46
    assert regions["trials"].x > regions["logs"].right - 1
    assert arrange(WIDE, 46, needs(8, 8), {"trials"})["logs"].width == WIDE


EMPTY = Need(2, 2)


@pytest.mark.parametrize(("width", "height"), [(80, 21), (120, 36), (200, 46), (250, 66)])
def test_a_pane_without_content_leaves_its_rows_to_the_logs(width: int, height: int) -> None:
    full, empty = (arrange(width, height, {**needs(0, 2), "trials": n}) for n in (Need(), EMPTY))
    assert empty["trials"].height == 2
    assert empty["trials"].width == empty["logs"].width == width
    assert empty["logs"].area > full["logs"].area
    assert arrange(width, height, {**needs(0, 2), "replicas": EMPTY})["replicas"].height == 2


@pytest.mark.parametrize(("width", "height"), [(80, 21), (120, 36), (159, 60), (200, 46), (250, 66)])
def test_panes_are_read_in_the_order_of_their_numbers(width: int, height: int) -> None:
    """Down each column, and the left column first."""
    regions = arrange(width, height, needs(8, 8), charts=True)
    read = sorted(PANES, key=lambda name: (regions[name].x, regions[name].y))
    assert read == ["gpus", "replicas", "logs", "trials"]


def test_charts_stand_above_the_panes_where_there_is_room() -> None:
    for width, height in ((160, 41), (200, 46), (250, 66)):
        regions = arrange(width, height, needs(8, 8), charts=True)
        assert regions["strip"].offset == (0, 0) and regions["strip"].width == width
        assert min(regions[name].y for name in PANES) == regions["strip"].height >= 6
        assert "strip" not in arrange(width, height, needs(8, 8)), "nothing to draw"
        assert "strip" not in arrange(width, height, needs(8, 8), maximised="logs", charts=True)
    for width, height in ((159, 46), (200, 40), (120, 36), (80, 21)):
        assert "strip" not in arrange(width, height, needs(8, 8), charts=True)


@given(st.integers(1, 300), st.integers(1, 120), NEEDS, HIDDEN, st.sampled_from(PANES), st.booleans())
def test_the_focused_pane_is_never_left_out(
    width: int, height: int, wanted: dict[str, Need], hidden: set[str], name: str, charts: bool
) -> None:
    regions = arrange(width, height, wanted, hidden - {name}, None, name, charts)
    assert name in regions


def test_a_tiny_terminal_keeps_replicas_and_logs() -> None:
    assert set(arrange(40, 7, needs(8, 2))) == {"replicas", "logs"}
    assert set(arrange(40, 3, needs(8, 2))) == {"logs"}
