"""The largest runs: 64 replicas, 8 GPUs, 10,000 trials of which 200 are listed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.crowd import HEADS, Crowd
from kit.screens import NOW, FakeSource, settle

from liverl.model import ReplicaSet
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.term.cell_diff import ExactCompositor
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.base.rows import RowsPane

SIZES = ((80, 24), (120, 40), (200, 50))


class Large:
    """An app on a large run; ``tick`` sends the next half second of it."""

    def __init__(self) -> None:
        self.crowd = Crowd(replicas=64, gpus=8, trials=10_000, arrivals=1)
        self.at = NOW
        self.source = FakeSource()
        self.app = LiverlApp(self.source)
        self.view = View()

    def tick(self, link: str = "live", why: str = "") -> None:
        self.at += 0.5
        snapshot = self.crowd.snapshot(self.at) if link == "live" else self.view.snapshot
        self.view = View(link=link, why=why, snapshot=snapshot)  # type: ignore[arg-type]
        self.source.queue.put_nowait(self.view)

    @property
    def dashboard(self) -> Dashboard:
        assert isinstance(self.app.screen, Dashboard)
        return self.app.screen

    def pane(self, name: str) -> RowsPane:
        pane = self.dashboard.pane(name)
        return pane if isinstance(pane, RowsPane) else pane.query_one(RowsPane)

    @property
    def header(self) -> str:
        return self.dashboard.query_one("#header", CellPanel).text


async def press(pilot: Any, *keys: str) -> None:
    """Each key once the one before has done what it does."""
    for key in keys:
        await pilots.press(pilot, key)
        await settle(pilot)


async def alone(pilot: Any, number: str) -> None:
    """One pane over the whole screen, which has room for many rows in any size."""
    await press(pilot, number, "z")


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_every_row_can_be_reached(size: tuple[int, int]) -> None:
    large = Large()
    async with large.app.run_test(size=size) as pilot:
        large.tick()
        await settle(pilot)
        await alone(pilot, "2")
        assert "replica-0" in large.pane("replicas").text
        await press(pilot, "G")
        assert large.pane("replicas").cursor == large.pane("replicas").keys()[-1]
        assert "replica-63" in large.pane("replicas").text
        await press(pilot, "pageup", "k", "g")
        assert large.pane("replicas").cursor == "replica-0"
        await press(pilot, "z")
        await alone(pilot, "4")
        await press(pilot, "u")  # each trial on a row of its own
        newest = large.pane("trials").cursor
        await press(pilot, "G")
        await settle(pilot)
        pane = large.pane("trials")
        assert pane.cursor != newest
        assert pane.keys()[-1] == pane.cursor
        assert len(pane.keys()) >= HEADS
        await press(pilot, "z", "1")
        await settle(pilot)
        assert large.dashboard.focused_pane() == "gpus"


@pytest.mark.parametrize("size", SIZES[::2], ids=str)
async def test_the_cursor_stays_on_its_trial_while_others_arrive(size: tuple[int, int]) -> None:
    large = Large()
    async with large.app.run_test(size=size) as pilot:
        large.tick()
        await settle(pilot)
        await alone(pilot, "4")
        await press(pilot, "j", "j", "j", "j", "j")
        chosen = large.pane("trials").cursor
        assert chosen is not None
        for _ in range(6):
            large.tick()
        await settle(pilot)
        assert large.crowd.trials == 10_007
        assert large.pane("trials").cursor == chosen
        cursors = [row for row in large.pane("trials").rows if row.cursor]
        assert len(cursors) == 1
        await press(pilot, "j")
        assert large.pane("trials").cursor != chosen


async def test_nothing_is_wider_or_longer_than_its_pane() -> None:
    large = Large()
    async with large.app.run_test(size=(200, 50)) as pilot:
        for size in (*SIZES, (40, 10), (61, 13), (200, 50)):
            await pilot.resize_terminal(*size)
            large.tick()
            await settle(pilot)
            places = []
            for name in ("gpus", "replicas", "logs", "trials"):
                pane = large.dashboard.pane(name)
                if pane.display:
                    region = pane.region
                    assert region.right <= size[0] and region.bottom <= size[1], (size, name, region)
                    places.append(region)
            assert places
            for i, region in enumerate(places):
                for other in places[i + 1 :]:
                    assert not region.overlaps(other), (size, places)
            await press(pilot, "2")
            assert large.dashboard.focused_pane() == "replicas"


@pytest.mark.parametrize("size", SIZES[::2], ids=str)
async def test_a_backend_lost_in_between(size: tuple[int, int]) -> None:
    large = Large()
    async with large.app.run_test(size=size) as pilot:
        large.tick()
        await settle(pilot)
        await alone(pilot, "2")
        await press(pilot, "G")
        last = large.pane("replicas").cursor
        assert last == large.pane("replicas").keys()[-1]
        assert "backend" not in large.header
        large.tick("lost", "the backend of bench/toy is dead")
        await settle(pilot)
        assert "backend" in large.header
        assert large.pane("replicas").cursor == last
        assert "replica-63" in large.pane("replicas").text
        await press(pilot, "g")
        assert large.pane("replicas").cursor == "replica-0"
        large.tick()
        await settle(pilot)
        assert "backend" not in large.header


async def test_a_run_that_shrinks_keeps_a_cursor() -> None:
    large = Large()
    async with large.app.run_test(size=(120, 40)) as pilot:
        large.tick()
        await settle(pilot)
        await alone(pilot, "2")
        large.pane("replicas").select("replica-60")
        large.crowd.replicas = 3
        large.tick()
        await settle(pilot)
        names = large.pane("replicas").keys()
        assert large.pane("replicas").cursor in names
        assert [row for row in large.pane("replicas").rows if row.cursor]
        assert "replica-3" not in large.pane("replicas").text
        snapshot = large.view.snapshot
        assert snapshot is not None
        empty = msgspec.structs.replace(snapshot, replicas=ReplicaSet(), services=())
        large.source.queue.put_nowait(View(link="live", snapshot=empty))
        await settle(pilot)
        assert large.pane("replicas").cursor is None
        await press(pilot, "j", "G", "enter")
        assert large.app.is_running


async def test_moving_the_focus_does_not_draw_the_whole_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Large()
    async with large.app.run_test(size=(200, 50)) as pilot:
        large.tick()
        await settle(pilot)
        await press(pilot, "1")
        await settle(pilot)
        whole: list[object] = []
        drawn = ExactCompositor.render_full_update
        monkeypatch.setattr(
            ExactCompositor,
            "render_full_update",
            lambda self, *args, **more: whole.append(self) or drawn(self, *args, **more),
        )
        await press(pilot, "2", "3", "1", "2")
        await settle(pilot)
        assert large.dashboard.focused_pane() == "replicas"
        assert not whole
