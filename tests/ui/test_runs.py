"""The list of all runs, and runs side by side."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.ended_runs import FALLING, RISING, a_run
from kit.screens import FakeSource, settle, view
from kit.terminal import Terminal, clean_environment
from msgspec.structs import replace

from liverl.model import Cause, RewardCourse
from liverl.rundir import index, layout
from liverl_tui.app.app import LiverlApp
from liverl_tui.app.runs import RunsApp
from liverl_tui.app.settings import read_settings
from liverl_tui.cli import up as up_module
from liverl_tui.cli.options import UpOptions
from liverl_tui.screens.compare import BOTH_FROM, CompareScreen
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.runs import RunsScreen
from liverl_tui.text.errors import CliError
from liverl_tui.widgets.metrics import chart
from liverl_tui.widgets.runs.curves import CurvesPane
from liverl_tui.widgets.runs.differences import DifferencesPane
from liverl_tui.widgets.runs.list import RunsPane

pytestmark = pytest.mark.drill
CAUSE = Cause(text="trainer was killed by SIGKILL in step 6", service="trainer", at=150.0)
BEGAN = {"rising": 100.0, "falling": 200.0, "broken": 300.0, "alive": 400.0}
NAMES = {"rising": RISING, "falling": FALLING, "broken": FALLING}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs that have ended, and one that is live."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "runs"
    for at, (name, rewards) in enumerate(NAMES.items(), 1):
        path = a_run(
            place,
            name,
            rewards,
            sets=(f"algorithm.learning_rate={at}e-6",),
            alerts=("reward_flat",) if name == "falling" else (),
            cause=CAUSE if name == "broken" else None,
        )
        os.utime(path / "result.json", (1000.0 + at, 1000.0 + at))
    make_live(place / "exp" / "alive")
    return place


def make_live(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "plan.json").write_text("{}")
    layout.write_backend(path, layout.own_record(path / "control.sock", "0"))
    os.utime(path / "backend.json", (500.0, 500.0))
    index.register(path)


class Screen(pilots.Driven):
    @property
    def pane(self) -> RunsPane:
        return self.app.screen.query_one(RunsPane)

    @property
    def text(self) -> str:
        return "\n".join(pane.text for pane in self.app.screen.query("RunsPane, CurvesPane, DifferencesPane"))

    @property
    def toasts(self) -> str:
        return "\n".join(toast.message for toast in self.app._notifications)

    @property
    def names(self) -> list[str]:
        return [Path(key).name for key in map(str, self.pane.keys())]

    def line(self, name: str) -> str:
        return next(line for line in self.text.splitlines() if f"exp/{name}" in line)


@asynccontextmanager
async def without_a_run(root: Path, size: tuple[int, int] = (160, 40)) -> AsyncIterator[Screen]:
    app = RunsApp(root, read_settings(Path(os.devnull)))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        screen = Screen(pilot)
        await screen.until(lambda: len(screen.pane.runs) == 4 and "…" not in screen.line("rising")[80:100])
        yield screen


async def test_all_runs_are_listed_live_ones_first_with_what_they_learned(root: Path) -> None:
    async with without_a_run(root) as screen:
        assert screen.names == ["alive", "broken", "falling", "rising"]
        assert "4 in all · 1 live" in screen.text
        assert "● live" in screen.line("alive")
        assert "✔ done" in screen.line("rising") and "0.250 → 0.703" in screen.line("rising")
        assert "12/12" in screen.line("rising") and "1m00s" in screen.line("rising")
        await screen.until(lambda: screen.line("rising").split().count("…") == 0)
        assert "✖ failed" in screen.line("broken") and "trainer was killed by" in screen.line("broken")
        await screen.press("down")
        await screen.until(
            lambda: CAUSE.text in screen.text
        )  # below the list, where there is room for all of it


@pytest.mark.parametrize("width", [80, 120, 160])
async def test_no_change_of_the_reward_is_listed_without_what_it_proves(root: Path, width: int) -> None:
    async with without_a_run(root, (width, 40)) as screen:
        assert "0.250 → 0.703 learning " in screen.line("rising")
        assert "0.250 → 0.000 unclear " in screen.line("broken")


@pytest.mark.parametrize("width", [80, 120, 160])
async def test_a_short_word_for_what_rewards_prove_says_the_same(root: Path, width: int) -> None:
    """``nearly all solved`` was cut to ``nearly all``."""
    async with without_a_run(root, (width, 40)) as screen:
        for verdict in ("early", "unclear", "learning", "flat", "falling", "solved", "nearly_solved"):
            course = RewardCourse(verdict)  # type: ignore[arg-type]
            run = replace(screen.pane.runs[str(root / "exp/rising")], reward_course=course)
            screen.pane.take([run])
            line = screen.line("rising")
            assert "…" not in line.split("0.703", 1)[1][:12], line
            if verdict == "nearly_solved":
                assert "0.703 near solved " in line and "nearly all" not in line
            elif verdict == "solved":
                assert "0.703 all solved " in line


@pytest.mark.parametrize(
    ("typed", "left"), [("falling", ["falling"]), ("failed", ["broken"]), ("done", ["falling", "rising"])]
)
async def test_the_filter_looks_in_names_and_words(root: Path, typed: str, left: list[str]) -> None:
    async with without_a_run(root) as screen:
        await screen.press("/", *typed, "enter")
        assert screen.names == left


async def test_on_a_small_screen_no_cell_is_cut_in_the_middle_of_a_number(root: Path) -> None:
    """The time of a run with several attempts was ``1m00s, a…``; which one it is of stands below the list."""
    async with without_a_run(root, (80, 24)) as screen:
        path = str(root / "exp/rising")
        run = replace(screen.pane.runs[path], attempt=3)
        assert run.attempt_words
        screen.pane.take([run])
        await screen.until(lambda: run.attempt_words in screen.text)
        assert "…" not in screen.line("rising") and screen.line("rising").rstrip().endswith("1m00s")
        screen.pane.take_best(path, "best: step 9, validation 0.5 (val)")
        await screen.until(lambda: "best checkpoint: step 9, validation 0.5 (val)" in screen.text)
        screen.pane.take_best(path, "no checkpoint")
        await screen.until(lambda: "checkpoints: no checkpoint" in screen.text)


async def test_the_best_reward_is_on_top_when_it_sorts(root: Path) -> None:
    async with without_a_run(root) as screen:
        screen.pane.sort_by("reward")
        assert screen.names[0] == "rising"


async def test_two_marked_runs_are_compared(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, Any]] = []

    def overlay(*lines: Any, **options: Any) -> Any:
        drawn.append(options)
        return chart.overlay(*lines, **options)

    monkeypatch.setattr("liverl_tui.widgets.runs.curves.overlay", overlay)
    async with without_a_run(root) as screen:
        await screen.press("down", "down", "space", "space", "c")
        await screen.until(lambda: isinstance(screen.app.screen, CompareScreen) and "reward" in screen.text)
        curves = screen.app.screen.query_one(CurvesPane)
        assert "A falling" in curves.text and "B rising" in curves.text
        assert re.search(r"reward  A 0  B 0\.75  B 0\.\d+ above A from step [4-6] on\b", curves.text)
        differences = screen.app.screen.query_one(DifferencesPane)
        await screen.until(lambda: "algorithm.learning_rate" in differences.text)
        assert "2e-06" in differences.text and "  only A, no fault: reward_flat" in "\n".join(
            row.text for row in differences.lines(120, 99)
        )
        await screen.press("t")
        await screen.until(lambda: "over the time that training took" in curves.text)
        assert "no points" in curves.text, "these runs do not say how long their steps take"
        assert drawn[-1]["places"](0, 2000, 2) == [900, 1800], "round on a clock"
        await screen.press("enter")
        await screen.until(lambda: not differences.display)
        await screen.press("escape", "escape")
        await screen.until(lambda: isinstance(screen.app.screen, RunsScreen))


async def test_a_lone_run_gets_no_advice_to_mark_others(root: Path) -> None:
    async with without_a_run(root) as screen:
        only = next(run for key, run in screen.pane.runs.items() if Path(key).name == "rising")
        screen.pane.take([only])
        assert screen.names == ["rising"]
        await screen.press("c")
        await screen.until(lambda: "only one run is listed" in screen.toasts)
        assert "mark 2" not in screen.toasts


@pytest.mark.parametrize(
    ("cursor", "shown", "mark", "compared"),
    [
        ("falling", "rising", False, ["rising", "falling"]),  # with the one before it; the earlier one is A
        ("rising", "falling", False, ["rising", "falling"]),  # with the shown one: none was before
        ("falling", "falling", False, ["rising", "falling"]),  # the shown one, with the one before it
        ("falling", "rising", True, ["rising", "falling"]),  # a single mark is that run
        ("broken", "", False, ["falling", "broken"]),  # nothing is shown
        (
            "broken",
            "alive",
            False,
            ["falling", "broken"],
        ),  # the newest one is shown: that is not what was before
        ("rising", "rising", False, []),  # there is none before it
    ],
)
async def test_without_marks_a_run_is_compared_with_the_one_before_it_or_the_shown_one(
    root: Path, cursor: str, shown: str, mark: bool, compared: list[str]
) -> None:
    async with without_a_run(root) as screen:
        pane = screen.pane
        # Their times come from their folders: say in which order they began.
        pane.take(
            [
                msgspec.structs.replace(run, started_at=BEGAN[Path(run.run_dir).name])
                for run in pane.runs.values()
            ]
        )
        pane.shown = root / "exp" / shown if shown else None
        await screen.press("home", *["down"] * screen.names.index(cursor), *(["space"] if mark else []))
        assert ("compares it with" in screen.text) == (bool(compared) and not mark)
        await screen.press("c")
        if not compared:
            await screen.until(
                lambda: "mark 2 to 6 runs" in screen.toasts and "marked now: 0" in screen.toasts
            )
            assert f"no listed run began before exp/{cursor}" in screen.toasts
            return
        await screen.until(lambda: isinstance(screen.app.screen, CompareScreen) and "reward" in screen.text)
        curves = screen.app.screen.query_one(CurvesPane).text
        assert [f"{letter} {name}" in curves for letter, name in zip("AB", compared, strict=True)] == [
            True
        ] * 2
        first = cursor == compared[0]
        words = "B is the run that is shown" if first else "A is the run of the same model before B"
        assert words in curves and words in screen.app.screen.query_one(DifferencesPane).heading()[1]


async def test_runs_without_a_common_metric_show_only_their_differences(root: Path) -> None:
    async with without_a_run(root) as screen:
        assert "alive" in screen.names, "it has no metrics"
        await screen.press("home", "space", "space", "c")
        await screen.until(lambda: isinstance(screen.app.screen, CompareScreen))
        words = screen.app.screen.query_one(DifferencesPane)
        await screen.until(lambda: "no metric is reported by two of them" in words.text or bool(words.text))
        await screen.until(lambda: not screen.app.screen.query_one(CurvesPane).display)
        assert words.display and words.has_focus and "A exp/broken   B exp/alive" in words.text


async def test_a_low_terminal_shows_curves_or_differences(root: Path) -> None:
    async with without_a_run(root, size=(80, BOTH_FROM - 1)) as screen:
        await screen.press("down", "down", "space", "space", "c")
        await screen.until(lambda: isinstance(screen.app.screen, CompareScreen) and "reward" in screen.text)
        curves = screen.app.screen.query_one(CurvesPane)
        differences = screen.app.screen.query_one(DifferencesPane)
        assert (curves.display, differences.display) == (True, False)
        await screen.press("tab")
        assert (curves.display, differences.display) == (False, True)
        await screen.press("tab")
        assert (curves.display, differences.display) == (True, False)


async def test_enter_opens_a_run_after_this_one(root: Path) -> None:
    async with without_a_run(root) as screen:
        await screen.press("down", "enter")
        await screen.until(lambda: screen.app._exit)
        assert screen.app.next_run is not None and screen.app.next_run.name == "broken"


async def test_what_only_a_run_has_is_refused_in_words(root: Path) -> None:
    async with without_a_run(root) as screen:
        for key in ("M", "V", "E", "!", "W", "r"):
            await screen.press(key)
            await screen.until(lambda: "no run is open" in screen.toasts)
            assert isinstance(screen.app.screen, RunsScreen)
            screen.app.clear_notifications()


@asynccontextmanager
async def in_a_run(run: Path, **how: Any) -> AsyncIterator[Screen]:
    app = LiverlApp(FakeSource(run, view=view()), **how)
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        screen = Screen(pilot)
        await screen.press("Z")
        await screen.until(
            lambda: isinstance(app.screen, RunsScreen) and len(screen.pane.runs) == 4 and screen.text
        )
        yield screen


@pytest.mark.parametrize("readonly", [False, True])
async def test_the_key_opens_the_list_and_enter_on_the_shown_run_goes_back(
    root: Path, readonly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run root is listed, wherever it is, whoever may change the run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "elsewhere"))
    async with in_a_run(root / "exp" / "rising", opens_others=True, readonly=readonly) as screen:
        assert "exp/rising (shown)" in screen.text
        screen.pane.select(str(root / "exp" / "rising"))
        await screen.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, Dashboard))
        assert screen.app.next_run is None


@pytest.mark.parametrize("name", ["alive", "rising", "falling", "broken"])
async def test_the_cursor_begins_on_the_shown_run_which_is_compared(root: Path, name: str) -> None:
    """With the newest one under the cursor another pair would be compared, without a word about the shown run."""
    async with in_a_run(root / "exp" / name) as screen:
        assert screen.pane.chosen is not None and Path(screen.pane.chosen.run_dir).name == name
        other = screen.pane.beside(screen.pane.chosen)
        await screen.press("c")
        if other is None:
            await screen.until(lambda: "mark 2 to 6 runs" in screen.toasts)
            return
        await screen.until(lambda: isinstance(screen.app.screen, CompareScreen))
        await screen.until(lambda: f"exp/{name}" in screen.app.screen.query_one(DifferencesPane).text)


async def test_the_cursor_stays_where_the_user_has_put_it(root: Path) -> None:
    async with in_a_run(root / "exp" / "rising") as screen:
        await screen.press("home")
        first = screen.pane.cursor
        screen.pane.take(list(screen.pane.runs.values()))
        assert screen.pane.cursor == first and not str(first).endswith("rising")


async def test_an_interface_that_cannot_open_others_names_the_command(root: Path) -> None:
    async with in_a_run(root / "exp" / "rising") as screen:
        screen.pane.select(str(root / "exp" / "broken"))
        await screen.press("enter")
        await screen.until(lambda: f"liverl-tui attach --run {root}/exp/broken" in screen.toasts)
        assert screen.app.next_run is None


@pytest.mark.parametrize("live", [0, 1, 2])
def test_without_a_command_the_list_opens_where_several_runs_are_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    for number in range(live):
        make_live(tmp_path / "many" / "exp" / f"run{number}")
    opened: list[str] = []
    monkeypatch.setattr(up_module, "_mode", lambda _options: "interface")
    monkeypatch.setattr(up_module, "all_runs", lambda _root, readonly: opened.append("list") or 0)
    monkeypatch.setattr(up_module, "_show", lambda run, *_: opened.append(run.path.name) or 0)
    monkeypatch.setattr(up_module, "up", lambda _options: opened.append("started") or 0)
    assert up_module.up_or_attach(UpOptions()) == 0
    assert opened == [["started"], ["run0"], ["list"]][live]
    if live == 2:
        monkeypatch.setattr(up_module, "_mode", lambda _options: "plain")
        with pytest.raises(CliError, match="2 runs are live here; choose one"):
            up_module.up_or_attach(UpOptions())


def test_a_directory_of_ended_runs_is_listed_and_no_run_is_started_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wanted to look at old runs got a new one in their archive, unasked."""
    root = tmp_path / "old"
    a_run(root, "rising", RISING)
    done: list[str] = []
    how = "interface"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    monkeypatch.setattr(up_module, "_mode", lambda _options: how)
    monkeypatch.setattr(
        up_module, "all_runs", lambda run_root, told: done.append(f"list {run_root}: {told}") or 0
    )
    monkeypatch.setattr(up_module, "up", lambda _options: done.append("started") or 0)
    assert up_module.up_or_attach(UpOptions(run_root=root)) == 0
    start = f"liverl-tui up --run-root {root}"
    assert (
        done.pop()
        == f"list {root}: no run in {root} is live on this host, and none was started; to start one: {start}"
    )
    empty = tmp_path / "empty"
    for options in (
        UpOptions(run_root=empty),
        UpOptions(),
        UpOptions(run_root=root, name="new"),
        UpOptions(run_root=root, detach=True),
        UpOptions(run_root=root, yes=True),
        UpOptions(run_root=root, smoke=True),
    ):
        assert up_module.up_or_attach(options) == 0
        assert done.pop() == "started", options
    how = "plain"  # a script starts a run with it, each night one more
    assert up_module.up_or_attach(UpOptions(run_root=root)) == 0
    assert done == ["started"]


async def test_the_list_says_why_it_is_shown(root: Path) -> None:
    settings = read_settings(Path(os.devnull))
    app = RunsApp(root, settings, told="none was started; to start one: liverl-tui up")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        assert [toast.message for toast in app.toasts()] == ["none was started; to start one: liverl-tui up"]


def test_the_program_with_a_run_that_has_ended_shows_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, bool]] = []
    how = "interface"
    monkeypatch.setattr(up_module, "_mode", lambda _options: how)
    monkeypatch.setattr(up_module, "_require_trusted", lambda *_: None)
    monkeypatch.setattr(
        up_module, "show", lambda run, _how, readonly: shown.append((run.path.name, readonly)) or 0
    )
    ended = root / "exp" / "rising"
    assert up_module.up_or_attach(UpOptions(run=ended)) == 0
    assert shown == [("rising", False)]
    for options in (UpOptions(run=ended, detach=True), UpOptions(run=ended, sets=("a.b=1",))):
        with pytest.raises(
            CliError, match=r"has ended .*To look at it: liverl-tui attach .*/exp/rising\. To"
        ):
            up_module.up_or_attach(options)
    how = "plain"  # a script may wait for the exit code of a start
    with pytest.raises(CliError, match="To look at it: liverl-tui attach "):
        up_module.up_or_attach(UpOptions(run=ended))
    assert shown == [("rising", False)]


def test_the_real_program_opens_a_run_from_the_list_and_the_list_from_the_run(root: Path) -> None:
    argv = [sys.executable, "-m", "liverl_tui.cli.main", "runs", "--run-root", str(root)]
    env = clean_environment(XDG_STATE_HOME=os.environ["XDG_STATE_HOME"])
    with Terminal(argv, size=(160, 40), env=env, cwd=root) as terminal:
        terminal.wait_for("exp/broken")
        terminal.press("down", "enter")
        terminal.wait_for("run has ended")
        terminal.press("Z")
        terminal.wait_for("exp/broken (shown)")
        terminal.press("q")
        assert terminal.wait() == 1  # as the run that it showed


@pytest.mark.parametrize("width", [80, 160])
async def test_which_attempt_the_time_is_of_is_said_where_others_came_before_it(
    root: Path, width: int
) -> None:
    path = root / "exp" / "rising"
    result = layout.RunDir(path).read_result()
    assert result is not None
    again = replace(result, attempt=2, started_at=200.0, ended_at=217.0)
    (path / "result.json").write_bytes(msgspec.json.encode(again))
    async with without_a_run(root, (width, 40)) as screen:
        assert ("17s, attempt 2" in screen.line("rising")) is (width == 160)
        assert "attempt" not in screen.line("falling")
        while "rising" not in str(screen.pane.cursor):
            await screen.press("down")
        await screen.until(lambda: "started and time are of attempt 2" in screen.text)
