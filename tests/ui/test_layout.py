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
    """As the panes say it: eight GPUs are three short lines, or ten rows."""
    lines = -(-gpus // 3)
    return {
        "gpus": Need(1 + max(1, lines), 2 + gpus),
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
    assert all(region.height >= 3 for region in regions.values())


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
    assert regions["logs"].height >= 5


def test_eight_gpus_have_a_line_each_where_there_is_room() -> None:
    assert arrange(120, 36, needs(8, 2))["gpus"].height == 10
    assert arrange(200, 46, needs(8, 64))["gpus"].height == 10
    assert arrange(80, 21, needs(8, 2))["gpus"].height == 4


def test_many_replicas_leave_the_logs_readable() -> None:
    regions = arrange(80, 21, needs(8, 64))
    assert regions["logs"].height + regions["trials"].height >= 21 * 0.4


def test_a_wide_terminal_has_the_trajectories_beside_the_rest() -> None:
    regions = arrange(WIDE, 46, needs(8, 8))
    assert regions["trials"].height == 46
    assert regions["trials"].x > regions["logs"].right - 1
    assert arrange(WIDE, 46, needs(8, 8), {"trials"})["logs"].width == WIDE


def test_a_tiny_terminal_keeps_replicas_and_logs() -> None:
    assert set(arrange(40, 7, needs(8, 2))) == {"replicas", "logs"}
    assert set(arrange(40, 3, needs(8, 2))) == {"logs"}
