"""The dashboard as a whole."""

from __future__ import annotations

from kit.screens import FakeSource, settle, view
from liverl_tui.app import LiverlApp


async def test_it_shows_the_run() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "liverl/first" in app.screen.query_one("#header").text
        await pilot.press("2")
        assert app.screen.focused_pane() == "replicas"
