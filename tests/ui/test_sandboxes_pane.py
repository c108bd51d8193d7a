"""The sandboxes pane of the dashboard: there only if the run has sandboxes, in sight where there is room, and the way
to their screen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.screens import FakeSource, settle
from textual.geometry import Region

from liverl.model import SandboxesStatus
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.layout import ALL_PANES, PANES, SANDBOXES, Need, arrange
from liverl_tui.screens.sandboxes import SandboxesScreen
from tests.ui.test_dashboard import crowded
from tests.ui.test_sandboxes import STATUS

NEEDS = st.fixed_dictionaries(
    {
        name: st.builds(lambda a, b: Need(min(a, b), max(a, b)), st.integers(1, 12), st.integers(1, 80))
        for name in ALL_PANES
    }
)


@given(
    st.integers(-2, 300),
    st.integers(-2, 120),
    NEEDS,
    st.sets(st.sampled_from(ALL_PANES), max_size=4),
    st.sampled_from([None, *ALL_PANES]),
    st.booleans(),
)
def test_it_takes_its_rows_from_one_pane(
    width: int, height: int, wanted: dict[str, Need], hidden: set[str], focused: str | None, charts: bool
) -> None:
    if focused in hidden:
        focused = None
    with_it = arrange(width, height, wanted, hidden, None, focused, charts)
    body = Region(0, 0, max(0, width), max(0, height))
    area = sum(region.area for region in with_it.values())
    assert all(body.contains_region(region) and region.area > 0 for region in with_it.values())
    assert all(not a.overlaps(b) for n, a in with_it.items() for m, b in with_it.items() if n < m), (
        "panes stay apart"
    )
    assert not set(with_it) & hidden
    others = {name: need for name, need in wanted.items() if name != SANDBOXES}
    without = arrange(width, height, others, hidden, None, None if focused == SANDBOXES else focused, charts)
    if set(PANES) - hidden:
        assert area == sum(region.area for region in without.values())
        assert set(with_it) - {SANDBOXES} == set(without), "no other pane has to go for it"
        assert sum(with_it[name] != without[name] for name in without) == (SANDBOXES in with_it)
    elif SANDBOXES not in hidden and body.area:
        assert with_it == {SANDBOXES: body}


def view(status: SandboxesStatus | None) -> Any:
    from msgspec.structs import replace

    shown = crowded(4)
    assert shown.snapshot is not None
    return replace(shown, snapshot=replace(shown.snapshot, sandboxes=status))


def dashboard(app: LiverlApp) -> Dashboard:
    screen = app.screen_stack[0]
    assert isinstance(screen, Dashboard)
    return screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (250, 70)])
async def test_a_run_without_sandboxes_has_no_pane_and_one_with_some_has(size: tuple[int, int]) -> None:
    app = LiverlApp(FakeSource(view=view(None)))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        before = {
            name: dashboard(app).pane(name).region for name in PANES if dashboard(app).pane(name).display
        }
        assert not dashboard(app).query("SandboxesPane") and set(before) == set(PANES)
        app.take(view(STATUS))
        await settle(pilot)
        await settle(pilot)
        pane = dashboard(app).pane(SANDBOXES)
        assert pane.display is (size[1] > 24), "no other pane goes for it on a small terminal"
        assert all(dashboard(app).pane(name).display for name in PANES)
        if pane.display:
            text = pane.text  # type: ignore[attr-defined]
            assert "3 running · 1 starting" in text and "left: no living trial" in text
            assert "docker exec" not in text, "the line to copy is on the screen"


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_tab_reaches_it_and_enter_opens_the_screen(size: tuple[int, int]) -> None:
    app = LiverlApp(FakeSource(view=view(STATUS)))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await settle(pilot)
        board = dashboard(app)
        board.action_jump("trials")
        await pilot.press("tab")
        await settle(pilot)
        assert board.focused_pane() == SANDBOXES and board.pane(SANDBOXES).display
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, SandboxesScreen)
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen is board and board.focused_pane() == SANDBOXES
        await pilot.press("h")
        await settle(pilot)
        assert SANDBOXES in board.hidden and not board.pane(SANDBOXES).display
        assert all(board.pane(name).display for name in PANES)
