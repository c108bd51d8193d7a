"""The dashboard as a whole."""

from __future__ import annotations

import json
import time
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from kit.crowd import Crowd
from kit.pilots import press, until
from kit.screens import NOW, FakeSource, service, settle, view
from textual.widget import Widget

from liverl.model import ReplicaSet, StepMetrics, TrialsStatus
from liverl.observe.history import Sample
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.layout import PANES
from liverl_tui.screens.metrics import MetricsScreen
from liverl_tui.widgets.dashboard.gpus import GpusPane
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.log.pane import LogsPane
from liverl_tui.widgets.metrics.strip import ChartStrip


def crowded(replicas: int, gpus: int = 8) -> View:
    return View(link="live", snapshot=Crowd(replicas=replicas, gpus=gpus).snapshot(NOW))


def dashboard(app: LiverlApp) -> Dashboard:
    assert isinstance(app.screen, Dashboard)
    return app.screen


def panes(app: LiverlApp) -> dict[str, Widget]:
    """Those on the screen."""
    return {name: pane for name in PANES if (pane := dashboard(app).pane(name)).display}


def check(app: LiverlApp, width: int, height: int) -> None:
    """Header, panes and key bar share the screen, and nothing lies on anything."""
    shown = [app.screen.query_one("#header"), app.screen.query_one("#keybar"), *panes(app).values()]
    for widget in shown:
        assert widget.region.right <= width, widget
        assert widget.region.bottom <= height, widget
        assert widget.region.area > 0, widget
    for one, other in combinations(shown, 2):
        assert not one.region.intersection(other.region).area, (one, other)


async def test_it_shows_the_run() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "liverl/first" in app.screen.query_one("#header").text
        await press(pilot, "2")
        assert app.screen.focused_pane() == "replicas"


async def test_every_size_works_and_may_change_while_it_runs() -> None:
    app = LiverlApp(FakeSource(view=crowded(64)))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        for width, height in (
            (200, 50),
            (120, 40),
            (80, 24),
            (40, 10),
            (20, 4),
            (300, 15),
            (80, 24),
            (200, 50),
        ):
            await pilot.resize_terminal(width, height)
            await settle(pilot)
            await settle(pilot)
            if height >= 10:
                check(app, width, height)
            if height >= 24:
                assert set(panes(app)) == set(PANES)
        assert panes(app)["trials"].region.x > panes(app)["logs"].region.x


@pytest.mark.parametrize(("replicas", "gpus"), [(0, 0), (1, 8), (64, 8)])
async def test_it_comes_up_on_a_small_terminal_with_any_run(replicas: int, gpus: int) -> None:
    app = LiverlApp(FakeSource(view=crowded(replicas, gpus)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        check(app, 80, 24)
        assert set(panes(app)) == set(PANES)


async def test_panes_take_the_room_that_they_need_now() -> None:
    app = LiverlApp(FakeSource(view=crowded(2)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        before = panes(app)["replicas"].size.height
        app.take(crowded(8))
        await settle(pilot)
        assert panes(app)["replicas"].size.height > before
        check(app, 120, 40)


async def test_keys_of_the_dashboard() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        screen = dashboard(app)
        for key, name in zip("1234", PANES, strict=True):
            await press(pilot, key)
            assert screen.focused_pane() == name
        await press(pilot, "1", "tab")
        assert screen.focused_pane() == "replicas"
        await press(pilot, "shift+tab", "shift+tab")
        assert screen.focused_pane() == "trials"
        await press(pilot, "2", "z")
        assert set(panes(app)) == {"replicas"}
        assert screen.pane("replicas").size.height == 40 - 3 - 1
        await press(pilot, "1")
        assert set(panes(app)) == {"gpus"}
        await press(pilot, "z")
        assert set(panes(app)) == set(PANES)
        await press(pilot, "h")
        assert set(panes(app)) == set(PANES) - {"gpus"}
        assert "CPU is hidden; press H to show all panes" in [toast.message for toast in app.toasts()]
        assert screen.focused_pane() in panes(app)
        await press(pilot, "H")
        assert set(panes(app)) == set(PANES)


async def test_a_pane_without_room_is_shown_alone_when_asked_for() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(40, 10)) as pilot:
        await settle(pilot)
        assert "gpus" not in panes(app)
        await press(pilot, "1")
        assert set(panes(app)) == {"gpus"}
        await press(pilot, "escape")
        assert "logs" in panes(app)


async def test_the_focused_pane_and_its_row_are_marked_at_once() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "2")
        rows = dashboard(app).pane("replicas").rows  # type: ignore[attr-defined]
        assert rows[0].spans[0][1] == "title_focus"
        assert [row.text.split()[0] for row in rows if row.cursor] == ["r0"]


async def test_histories_begin_with_the_runs_own(tmp_path: Path) -> None:
    samples = [Sample(NOW - 10 * i, services={"r0": (800.0, 1)}) for i in range(30, 0, -1)]  # type: ignore[dict-item]
    lines = [msgspec.json.encode(sample) for sample in samples]
    (tmp_path / "history.jsonl").write_bytes(b"\n".join(lines) + b"\n" + json.dumps({"at": 1}).encode()[:5])
    app = LiverlApp(FakeSource(tmp_path, view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        pane = app.screen.query_one(GpusPane)
        await until(pilot, lambda: "▇▇▇▇▇▇▇▇" in pane.text, lambda: pane.text)


async def test_a_lost_backend_changes_the_head_and_leaves_the_rest() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        before = dashboard(app).pane("replicas").text  # type: ignore[attr-defined]
        app.take(msgspec.structs.replace(view(), link="lost", why="pid 990 is gone"))
        await settle(pilot)
        assert "backend died" in app.screen.query_one("#header").text
        assert "pid 990 is gone" in app.screen.query_one("#header").text
        assert dashboard(app).pane("replicas").text == before  # type: ignore[attr-defined]


async def test_what_is_not_on_the_screen_costs_little() -> None:
    """Eight times the replicas, of which no more are seen."""
    app = LiverlApp(FakeSource(view=crowded(8)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)

        async def cost(replicas: int) -> float:
            crowd, took = Crowd(replicas=replicas), []
            for tick in range(9):
                news = View(link="live", snapshot=crowd.snapshot(NOW + tick))
                began = time.process_time()
                dashboard(app).show(news)
                took.append(time.process_time() - began)
                await settle(pilot)
            return sorted(took)[4]

        assert await cost(64) < 4 * await cost(8)


async def test_a_run_without_replicas_comes_up() -> None:
    app = LiverlApp(FakeSource(view=view(replicas=ReplicaSet(), services=())))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "none in this run" in dashboard(app).pane("replicas").text  # type: ignore[attr-defined]


async def test_a_pane_that_had_no_room_beside_the_others_gives_it_back() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(40, 10)) as pilot:
        await settle(pilot)
        for key in "1234":
            await press(pilot, key)
        assert len(panes(app)) == 1, "the last one has the screen"
        await pilot.resize_terminal(120, 40)
        await settle(pilot)
        assert len(panes(app)) == 4
        await press(pilot, "z")
        await pilot.resize_terminal(200, 50)
        await settle(pilot)
        assert len(panes(app)) == 1, "that was asked for"


@pytest.mark.parametrize("key", "1234")
async def test_a_narrow_moment_does_not_move_the_focus(key: str) -> None:
    """The next key would change another pane's service."""
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, key)
        focused = dashboard(app).focused_pane()
        for size in ((20, 6), (40, 10), (120, 40)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            app.take(view(at=NOW + size[0]))
            await settle(pilot)
            assert dashboard(app).focused_pane() == focused


# -- charts


def write_steps(run_dir: Path, first: int, last: int) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / "metrics.jsonl").open("a") as file:
        for step in range(first, last + 1):
            data = {
                "critic/score/mean": step / 100,
                "actor/ppo_kl": 0.001,
                "timing_s/step": 3.5,
                "other": 1.0,
            }
            file.write(json.dumps({"step": step, "data": data}) + "\n")


def at_step(step: int, second: int = 0) -> View:
    return view(at=NOW + second, metrics=StepMetrics(step, {}), step=step)


async def test_charts_above_the_panes_follow_the_steps(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 40)
    app = LiverlApp(FakeSource(tmp_path, at_step(40)))
    async with app.run_test(size=(160, 45)) as pilot:
        await settle(pilot)
        app.take(at_step(40, 1))
        await settle(pilot)
        strip = app.screen.query_one(ChartStrip)
        await until(pilot, lambda: "reward 0.4" in strip.text, lambda: strip.text)
        title = strip.rows[0].text
        assert title.split() == ["reward", "0.4", "KL", "0.001", "seconds", "per", "step", "3.5"]
        assert any("⠀" < c <= "⣿" for c in strip.text), "dots"
        await settle(pilot)
        check(app, 160, 45)
        assert strip.region.bottom <= min(pane.region.y for pane in panes(app).values())

        drawn, composed = [], []
        compose = strip.compose_rows
        strip.compose_rows = lambda *size: composed.append(size) or compose(*size)  # type: ignore[method-assign,assignment,func-returns-value]
        strip.refresh = lambda *regions, **_: drawn.append(regions)  # type: ignore[method-assign,assignment]
        for second in range(2, 6):
            app.take(at_step(40, second))
            await settle(pilot)
        assert not drawn and not composed, "between two steps nothing is computed or sent"
        write_steps(tmp_path, 41, 41)
        app.take(at_step(41, 6))
        await until(pilot, lambda: "reward 0.41" in strip.text, lambda: strip.text)
        assert drawn


async def test_there_are_no_charts_without_room_or_steps(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 3)
    app = LiverlApp(FakeSource(tmp_path, at_step(3)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        app.take(at_step(3, 1))
        await settle(pilot)
        assert not app.screen.query(ChartStrip), "no file is read for what is not shown"
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: bool(app.screen.query(ChartStrip)), lambda: "no charts")
        strip = app.screen.query_one(ChartStrip)
        await until(pilot, lambda: strip.display and "reward" in strip.text, lambda: strip.text)
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert not strip.display
    empty = LiverlApp(FakeSource(tmp_path / "new", view(metrics=None)))
    async with empty.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        empty.take(view(metrics=None, at=NOW + 1))
        await settle(pilot)
        assert not empty.screen.query(ChartStrip), "nothing is mounted that has nothing to show"


async def test_a_double_click_on_a_chart_opens_the_metrics(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 3)
    app = LiverlApp(FakeSource(tmp_path, at_step(3)))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        app.take(at_step(3, 1))
        await settle(pilot)
        strip = app.screen.query_one(ChartStrip)
        await until(pilot, lambda: strip.display, lambda: app.screen.query_one("#header").text)
        await settle(pilot)
        await pilot.click(ChartStrip, offset=(20, 2), times=2)
        await until(pilot, lambda: isinstance(app.screen, MetricsScreen), lambda: str(app.screen))


async def test_of_a_run_that_ended_nothing_is_said_to_be_still_to_come() -> None:
    ended = View(link="ended", snapshot=view(services=(), trials=TrialsStatus()).snapshot)
    app = LiverlApp(FakeSource(view=ended))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await until(pilot, lambda: "has written any output" in app.screen.query_one(LogsPane).text)
        texts = [app.screen.query_one(pane).text for pane in (LogsPane, TrialsPane)]
        assert "no trials" in texts[1] and not any("yet" in text for text in texts), texts


@pytest.mark.parametrize(
    ("state", "words"),
    [("waiting", "no trials yet: they begin when the trainer is ready"), ("ready", "no trials yet")],
)
async def test_an_empty_list_of_trials_says_when_they_begin(state: str, words: str) -> None:
    shown = view(services=(service("trainer", "trainer", state),), trials=TrialsStatus())
    app = LiverlApp(FakeSource(view=shown))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert app.screen.query_one(TrialsPane).rows[-1].text.strip() == words
