"""From the command to the first paint: what is known already is painted once, and nothing is drawn before it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from kit.screens import FakeSource, settle, snapshot, view, wait_until
from textual.app import App

from liverl.rundir.layout import RunDir
from liverl_tui.app import app as app_module
from liverl_tui.app.app import LiverlApp
from liverl_tui.app.start import run_interface
from liverl_tui.term.cell_diff import ExactCompositor
from liverl_tui.widgets.dashboard.replicas import ReplicasPane
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.log.frame import Frame
from liverl_tui.widgets.log.session import LogSession
from liverl_tui.widgets.log.worker import LogWorker


async def test_what_is_known_is_painted_once_with_everything_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[str] = []
    render = ExactCompositor.render_full_update

    def count(self: ExactCompositor, *args: Any, **kwargs: Any) -> Any:
        drawn.append(app.screen.query_one(ReplicasPane).text)
        return render(self, *args, **kwargs)

    monkeypatch.setattr(ExactCompositor, "render_full_update", count)
    monkeypatch.setattr(app_module, "HOLD_S", 3600.0)  # it is not painted because that took too long
    painted: list[bool] = []
    app = LiverlApp(FakeSource(), first=snapshot(), painted=lambda: painted.append(app.held))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert len(drawn) == 1
        assert "r0" in drawn[0]  # not an empty pane
        assert painted == [False]
        assert snapshot().run in app.screen.query_one(Header).text
        assert app.view.link == "live"


async def test_views_come_in_after_the_first_paint() -> None:
    newer = view()
    app = LiverlApp(FakeSource(view=newer), first=snapshot(step=1))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert app.view is newer


async def test_nothing_known_nothing_held() -> None:
    painted: list[bool] = []
    app = LiverlApp(FakeSource(), painted=lambda: painted.append(True))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert not app.held
        assert painted == [True]
        assert "connecting" in app.screen.query_one(Header).text


def test_garbage_is_collected_again_once_there_is_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collects: list[bool] = []

    def run(self: LiverlApp, **_how: Any) -> None:
        collects.append(gc.isenabled())
        self._painted()
        collects.append(gc.isenabled())

    monkeypatch.setattr(App, "run", run)
    monkeypatch.setattr(gc, "freeze", lambda: None)  # not in a process that lives on
    assert run_interface(RunDir(tmp_path)) == (0, None)
    assert collects == [False, True]
    assert gc.isenabled()


def test_a_log_is_shown_before_it_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"INFO one line\n" * 1000)
    order: list[str] = []
    work = LogSession.work

    def counting(self: LogSession, seconds: float) -> bool:
        order.append("count")
        return work(self, seconds)

    monkeypatch.setattr(LogSession, "work", counting)

    def deliver(outcome: Frame | Exception) -> None:
        assert isinstance(outcome, Frame)
        if outcome.lines:
            order.append("picture")

    worker = LogWorker(LogSession(lambda *_: 1), deliver)
    worker.do(lambda session: session.open(path))
    worker.do(lambda session: session.resize(80, 10))
    worker.start()
    try:
        wait_until(lambda: "count" in order)
    finally:
        worker.close()
    assert order[:2] == ["picture", "count"]
