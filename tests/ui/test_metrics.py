"""The metrics screen: which charts there are, what the keys do to them, and a file that grows under it."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kit import pilots
from kit.screens import FakeSource, settle, view

from liverl.model import Bottleneck, StepTime
from liverl.observe.metrics import series
from liverl.observe.metrics.series import Series
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.dialogs import TypedInput
from liverl_tui.screens.metric_finder import MetricChoices, ranked
from liverl_tui.screens.metrics import MetricsScreen
from liverl_tui.widgets.metrics.charts import Charts
from liverl_tui.widgets.metrics.grid import ChartGrid

KEYS = {
    "critic/score/mean": lambda s: 1 - math.exp(-s / 50),
    "actor/kl_loss": lambda s: s * 1e-5,
    "actor/entropy": lambda s: 1 / s,
    "actor/grad_norm": lambda s: math.nan if s == 9 else s % 7 + 0.5,
    "response_length/mean": lambda s: 400 + s,
    "num_turns/mean": lambda s: 4.0,
    "perf/throughput": lambda s: 1200 + s % 10,
    "timing_s/step": lambda s: 60 + s % 3,
    "timing_s/gen": lambda s: 40 + s % 3,
    "actor/lr": lambda s: 1e-6,
}


USUAL = (
    *("reward", "KL", "entropy", "gradient norm"),
    *("response length", "turns", "throughput", "seconds per step"),
)


@pytest.fixture(autouse=True)
def usual_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table as it is, without charts that came later: which there are is not what these tests ask."""
    monkeypatch.setattr(series, "CHARTS", tuple(row for row in series.CHARTS if row[0] in USUAL))


def write(run_dir: Path, first: int, last: int, **more: float) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / "metrics.jsonl").open("a") as file:
        for step in range(first, last + 1):
            data = {key: value(step) for key, value in KEYS.items()} | more
            file.write(json.dumps({"step": step, "data": data}) + "\n")


class Screen(pilots.Driven):
    """The screen with what a test asks of it."""

    @property
    def grid(self) -> ChartGrid:
        return self.app.screen_stack[-1].query_one(ChartGrid)

    @property
    def charts(self) -> Charts:
        return self.grid.charts

    @property
    def text(self) -> str:
        grids = self.app.screen_stack[-1].query(ChartGrid)
        return grids.first().text if grids else ""

    def line(self, part: str) -> str:
        """The first line with some text."""
        return next(line for line in self.text.splitlines() if part in line)

    def dots(self) -> set[object]:
        """The styles of what is drawn."""
        return {s for row in self.grid.rows for t, s in row.spans if any(c >= "\u2800" for c in t)}

    async def look(self) -> None:
        """What the screen does every second. It may be under way, and has seen what was before."""
        await self.until(lambda: not self.app.screen._metrics._busy)  # type: ignore[attr-defined]
        await self.app.screen._read()  # type: ignore[attr-defined]

    async def opened(self) -> None:
        await self.until(lambda: self.text and "reading" not in self.text)


@asynccontextmanager
async def metrics(
    run_dir: Path, size: tuple[int, int] = (120, 40), shown: View | None = None
) -> AsyncIterator[Screen]:
    app = LiverlApp(FakeSource(run_dir, view=shown or view(total_steps=500)))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        screen = Screen(pilot)
        await screen.press("M")
        await screen.opened()
        yield screen


async def test_the_usual_charts_are_shown_and_looked_at_in_other_ways(tmp_path: Path) -> None:
    write(tmp_path, 1, 431)
    async with metrics(tmp_path) as screen:
        for name in (
            "reward",
            "KL",
            "entropy",
            "gradient norm",
            "response length",
            "messages a trial",
            "throughput",
        ):
            assert name in screen.text
        assert "step 431 of 500" in screen.text and "1 not finite" in screen.text
        reward = screen.line("critic/score/mean")
        assert "0.9998" in reward and "actor/kl_loss" in reward  # the newest value; another chart beside it

        # a logarithmic scale belongs to one chart
        await screen.press("L")
        titled = screen.line("critic/score/mean")
        assert titled.index("log") < titled.index("actor/kl_loss") and screen.text.count("log") == 1
        await screen.press("L")
        assert "log" not in screen.text

        # fewer steps, and all
        assert "└1 " in screen.line("└") and "500" in screen.line("└")
        await screen.press("plus")
        assert "last 200" in screen.text and int(screen.line("└").split("└")[1].split()[0]) >= 231
        await screen.press("plus", "minus")
        assert "last 200" in screen.text
        await screen.press("0")
        assert "last" not in screen.text and "└1 " in screen.text

        # a moving average over the values
        assert "dim" not in screen.dots()
        await screen.press("g")
        assert "moving average 0.6" in screen.text and "dim" in screen.dots()
        await screen.press("g", "g", "g")
        assert "moving average" not in screen.text and "dim" not in screen.dots()


async def test_arrows_go_between_charts_and_enter_shows_one_alone(tmp_path: Path) -> None:
    write(tmp_path, 1, 45)
    async with metrics(tmp_path) as screen:
        await screen.press("right", "down")
        assert screen.charts.key == "actor/grad_norm"
        await screen.press("left", "up")
        assert screen.charts.key == "critic/score/mean"
        await screen.press("enter")
        assert "KL" not in screen.text and "chart 1 of 8" in screen.text
        await screen.press("down")
        assert "actor/kl_loss" in screen.text and "critic/score/mean" not in screen.text
        await screen.press("left", "left")
        assert "at 44" in screen.text  # one chart alone: sideways moves its cursor
        await screen.press("escape")
        assert "critic/score/mean" in screen.text and isinstance(screen.app.screen, MetricsScreen)
        await screen.press("c")
        assert "at 44" not in screen.text

        # a cursor reads every chart off
        await screen.press("c")
        assert screen.text.count("▲45") == 8
        await screen.press("left", "left")
        assert screen.text.count("▲43") == 8 and "443 at 43" in screen.text
        await screen.press("shift+left", "right")
        assert screen.text.count("▲34") == 8 and screen.charts.key == "actor/kl_loss"
        await screen.press("shift+right")
        assert "▲44" in screen.text
        assert screen.grid.copy_line() == f"actor/kl_loss {44e-5!r} at step 44"
        await screen.press("escape")
        assert "▲" not in screen.text and isinstance(screen.app.screen, MetricsScreen)

        # what was chosen stays while the interface is open
        await screen.press("g", "escape")
        assert not isinstance(screen.app.screen, MetricsScreen)
        await screen.press("M")
        await screen.opened()
        assert "moving average" in screen.text and screen.charts.key == "actor/kl_loss"


async def test_any_metric_is_found_added_and_taken_away(tmp_path: Path) -> None:
    write(tmp_path, 1, 3)
    async with metrics(tmp_path) as screen:
        assert "actor/lr" not in screen.text
        await screen.press("slash")
        await screen.until(lambda: isinstance(screen.app.focused, TypedInput))
        await screen.press("a", "c", "l", "r")
        found = screen.app.screen.query_one(MetricChoices)
        await screen.until(lambda: found.keys()[0] == "actor/lr")
        await screen.until(lambda: "1e-6" in found.text)
        await screen.press("enter")
        assert screen.charts.key == "actor/lr" and screen.charts.keys[-1] == "actor/lr"
        await screen.until(lambda: "actor/lr" in screen.text)
        lines = screen.grid.copy_all().splitlines()
        assert lines == ["step\tactor/lr", "1\t1e-06", "2\t1e-06", "3\t1e-06"]
        await screen.press("slash")
        await screen.until(lambda: isinstance(screen.app.focused, TypedInput))
        await screen.until(lambda: "●" in screen.app.screen.query_one(MetricChoices).text)
        await screen.press("down", "down", "up", "escape")
        assert screen.charts.key == "actor/lr", "nothing is chosen by leaving"
        await screen.press("d")
        assert "actor/lr" not in screen.text
        await screen.press(*["d"] * 8)
        assert "no chart" in screen.text
        await screen.press("d", "enter", "right", "L", "c")
        assert "no chart" in screen.text
        await screen.press("o")
        assert "critic/score/mean" in screen.text


def test_names_are_ranked_by_how_well_they_fit() -> None:
    keys = [
        "actor/grad_norm",
        "critic/advantages/mean",
        "timing_s/gen",
        "perf/throughput",
        "response_length/mean",
    ]
    assert ranked("grad", keys)[0] == "actor/grad_norm"
    assert ranked("len mean", keys)[0] == "response_length/mean"
    assert ranked("tgen", keys)[0] == "timing_s/gen"
    assert ranked("", keys) == sorted(keys)
    assert ranked("xyz", keys) == []
    assert ranked("a" * 500, keys) == []


def test_what_the_interface_calls_a_metric_finds_it_first() -> None:
    """`val` found a number of turns, and `reward` nothing of what is charted as the reward."""
    keys = [
        "val-aux/num_turns/max",
        "val-core/b/reward/mean@1",
        "val-core/a/reward/mean@1",
        "val/x",
        "critic/rewards/mean",
        "critic/score/mean",
        "critic/rewards/max",
        "timing_s/gen",
        "timing_s/step",
    ]
    for query in ("val", "VALID"):
        assert ranked(query, keys)[0] == "val-core/a/reward/mean@1", query
    assert ranked("reward", keys)[0] == "critic/score/mean"
    assert ranked("seconds", keys)[0] == "timing_s/step"
    assert ranked("aux", keys)[0] == "val-aux/num_turns/max"


@pytest.mark.parametrize(
    ("values", "words"),
    [((0.5,), "one point"), ((0.5,) * 4, "4 equal points"), ((0.5, 0.6, 0.5), ""), ((math.nan,) * 2, "")],
)
async def test_a_chart_without_a_line_says_so(tmp_path: Path, values: tuple[float, ...], words: str) -> None:
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step, value in enumerate(values, 1):
            file.write(json.dumps({"step": step, "data": {"val-core/a/reward/mean@1": value}}) + "\n")
    async with metrics(tmp_path, (80, 24)) as screen:
        await screen.until(lambda: "validation" in screen.text or "val-core" in screen.text)
        title = next(line for line in screen.text.splitlines() if "val-core" in line)
        assert ("point" in title) == bool(words) and words in title


async def test_a_small_terminal_shows_one_column_and_scrolls(tmp_path: Path) -> None:
    write(tmp_path, 1, 45)
    async with metrics(tmp_path, (80, 24)) as screen:
        assert "chart 1-3 of 8" in screen.text and "throughput" not in screen.text
        await screen.press(*["down"] * 7)
        assert screen.charts.key == "timing_s/step"
        assert "chart 6-8 of 8" in screen.text and "throughput" in screen.text
        await screen.press("up")
        assert screen.charts.key == "perf/throughput"
        await screen.pilot.resize_terminal(40, 10)
        await screen.press("enter", "c", "L", "g", "plus", "down", "up", "enter")
        assert "throughput" in screen.text
        await screen.pilot.resize_terminal(200, 50)
        await screen.press("0")
        x, y, *_, index = screen.grid._places[3]
        await screen.pilot.click(ChartGrid, offset=(x + 12, y + 3))
        await screen.until(lambda: screen.charts.selected == index)
        await screen.pilot.click(ChartGrid, offset=(x + 12, y + 3), times=2)
        await screen.until(lambda: screen.charts.maximised)


async def test_the_file_grows_and_only_what_is_new_is_drawn(tmp_path: Path) -> None:
    write(tmp_path, 1, 45)
    async with metrics(tmp_path, (200, 50)) as screen:
        asked: list[Any] = []
        refresh = screen.grid.refresh
        screen.grid.refresh = lambda *regions, **_: asked.append(regions)  # type: ignore[method-assign]
        for _ in range(3):
            screen.app._tick()
            await screen.look()
        assert not asked, "nothing is sent while nothing is new"
        before = {key: id(kept[1]) for key, kept in screen.grid._pictures.items()}
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 46, "data": {"actor/entropy": 0.025}}) + "\n")
        await screen.look()
        after = {key: id(kept[1]) for key, kept in screen.grid._pictures.items()}
        assert {key for key in before if before[key] != after[key]} == {"actor/entropy"}
        assert "step 46 of 500" in screen.text and "0.025" in screen.text
        assert 0 < sum(region.area for regions in asked for region in regions) < 60
        screen.grid.refresh = refresh  # type: ignore[method-assign]

        # a resumed trainer writes a step again
        await screen.press("c")
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 45, "data": {"actor/entropy": 0.777}}) + "\n")
        await screen.look()
        assert "0.777 at 45" in screen.text
        # another file in its place
        (tmp_path / "new").mkdir()
        write(tmp_path / "new", 1, 3)
        (tmp_path / "new" / "metrics.jsonl").replace(tmp_path / "metrics.jsonl")
        await screen.look()
        assert "step 3 of 500" in screen.text


async def test_a_run_without_metrics_says_so_and_gets_them_later(tmp_path: Path) -> None:
    async with metrics(tmp_path) as screen:
        assert "no metrics yet" in screen.text
        await screen.press("enter", "d", "c", "left", "plus", "0", "g", "g", "g", "g")
        (tmp_path / "metrics.jsonl").mkdir()
        await screen.look()
        assert "cannot read metrics.jsonl: not a regular file but a directory" in screen.text
        (tmp_path / "metrics.jsonl").rmdir()
        write(tmp_path, 1, 1)
        await screen.look()
        assert "reward" in screen.text and "Is a directory" not in screen.text


async def test_the_metrics_of_an_ended_run_fill_their_charts(tmp_path: Path) -> None:
    write(tmp_path, 1, 431)
    async with metrics(tmp_path, shown=View(link="ended", snapshot=view().snapshot)) as screen:
        await screen.until(lambda: "the run has ended" in screen.text)
        assert "431" in screen.line("└") and "500" not in screen.line("└")


def test_a_chart_of_a_key_that_has_gone_is_empty() -> None:
    charts = Charts(chosen=["gone"])
    assert isinstance(charts.points("gone"), Series) and charts.reading("gone") is None


@pytest.mark.parametrize(
    ("width", "count", "per_line"),
    [
        (80, 8, 1),
        (120, 8, 2),
        (160, 9, 3),
        (200, 8, 4),
        (200, 9, 3),
        (200, 2, 2),
        (250, 9, 3),
        (250, 4, 4),
        (40, 3, 1),
    ],
)
def test_charts_side_by_side(width: int, count: int, per_line: int) -> None:
    charts = Charts(chosen=[f"key{i}" for i in range(count)])
    grid = ChartGrid(charts)
    lines = grid._arrange(width, 100)
    assert grid.per_line == per_line == len(lines[0])
    assert [i for line in lines for i in line] == list(range(count))


SENTENCE = (
    "62 % of the step waits for the 3 slowest of 32 trials: "
    "end such trials earlier (harbor_runtime.tail_kill_target: 0.9)"
)


@pytest.mark.parametrize(
    ("size", "time", "words"),
    [
        (
            (120, 40),
            StepTime(6, 9.0, {}, Bottleneck(0.62, "tail", SENTENCE, "k"), "slow"),
            "62 % of the step waits",
        ),
        (
            (120, 40),
            StepTime(6, 9.0, {}, None, "update takes 2.0 times as long"),
            "update takes 2.0 times as long",
        ),
        ((120, 40), StepTime(6, 9.0, {}), ""),
        ((120, 40), None, ""),
        (
            (80, 24),
            StepTime(6, 9.0, {}, Bottleneck(0.62, "tail", SENTENCE, "k")),
            "",
        ),  # the charts need the rows
    ],
)
async def test_what_a_step_waits_for_stands_below_the_title(
    tmp_path: Path, size: tuple[int, int], time: StepTime | None, words: str
) -> None:
    write(tmp_path, 1, 45)
    async with metrics(tmp_path, size, view(total_steps=500, step_time=time)) as screen:
        await screen.until(lambda: "critic/score/mean" in screen.text)
        below = screen.text.splitlines()[1]
        assert words in below if words else "critic/score/mean" in below
        if time is not None and time.bottleneck is not None and words:
            whole = " ".join(row.strip() for row in screen.text.splitlines()[1:3])
            assert SENTENCE in whole
        assert len(screen.text.splitlines()) <= screen.grid.size.height
