"""The key that saves what is shown, and what a run holds on disk."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kit import pilots
from kit.ended_runs import a_run
from kit.made_checkpoints import fsdp
from kit.mentions import parse_command_line
from kit.screens import FakeSource, settle, snapshot, trial
from msgspec.structs import replace

from liverl.model import TrialsStatus
from liverl.offline.run_disk import RunDisk, run_disk
from liverl.util.tree_size import measure
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.disk import DiskPane, DiskScreen
from liverl_tui.screens.metrics import MetricsScreen
from liverl_tui.screens.timeline import TimelineScreen
from liverl_tui.text.disk import lines
from liverl_tui.text.words import size
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.timeline.step import StepPane

KEY = "sk-ant-secret-0123456789"


class Screen(pilots.Driven):
    @property
    def text(self) -> str:
        return "\n".join(toast.message for toast in self.app._notifications)

    async def saved(self, *keys: str) -> Path:
        """The file that keys save."""
        self.app.clear_notifications()
        await self.press(*keys)
        await self.until(lambda: "saved " in self.text)
        return Path(self.text.partition("saved ")[2].strip())


@asynccontextmanager
async def opened(run: Path) -> AsyncIterator[Screen]:
    trials = TrialsStatus(
        total=2,
        finished=2,
        newest=(trial(1, reward=1.0, task="move"), trial(2, reward=0.0, task=f"key {KEY}")),
    )
    app = LiverlApp(FakeSource(run, view=View("ended", snapshot=snapshot(trials=trials))))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        yield Screen(pilot)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return a_run(tmp_path, "shown")


async def test_a_list_is_saved_as_it_is_shown_without_secrets(run: Path) -> None:
    async with opened(run) as screen:
        await screen.press("4")
        pane = screen.app.screen.query_one(TrialsPane)
        await screen.until(lambda: len(pane.keys()) == 2)
        file = await screen.saved("e")
        assert file.parent == run / "saved" and file.suffix == ".csv"
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        rows, shown = list(csv.DictReader(io.StringIO(file.read_text()))), list(pane.keys())
        assert [row["reward"] for row in rows] == [str(pane.value(key, _column(pane))) for key in shown]
        assert KEY not in file.read_text()
        pane.set_filter("move")
        await screen.until(lambda: len(pane.keys()) == 1)
        screen.app.clear_notifications()
        screen.app.navigation.export("json")
        await screen.until(lambda: ".json" in screen.text)
        (row,) = json.loads(Path(screen.text.partition("saved ")[2].strip()).read_text())
        assert row["reward"] == 1.0 and row["task"] == "move"


def _column(pane: TrialsPane) -> Column:
    return next(column for column in pane.columns() if column.name == "reward")


def _disk(screen: Screen) -> str:
    return screen.app.screen.query_one(DiskPane).text


async def test_charts_are_saved_as_a_picture_and_a_table_or_as_one_of_them(run: Path) -> None:
    async with opened(run) as screen:
        await screen.press("M")
        await screen.until(
            lambda: isinstance(screen.app.screen, MetricsScreen) and screen.app.screen.exporters()
        )
        await screen.press("e")
        await screen.until(lambda: ".csv" in screen.text)
        first, _, second = screen.text.partition("saved ")[2].strip().partition(" and ")
        picture, table = Path(first), Path(first).with_name(second.strip())
        assert picture.stem == table.stem, "one export has one stamp"
        assert (
            picture.suffix == ".svg"
            and picture.read_text().startswith("<svg")
            and "score" in picture.read_text()
        )
        assert table.read_text().startswith("step,critic/score/mean")
        screen.app.clear_notifications()
        screen.app.navigation.export("csv")
        await screen.until(lambda: ".csv" in screen.text)
        table = Path(screen.text.partition("saved ")[2].strip()).read_text().splitlines()
        assert table[0] == "step,critic/score/mean" and table[1] == "1,0.2" and len(table) == 13


async def test_charts_that_are_not_all_metrics_name_the_command_that_writes_all(run: Path) -> None:
    """`e` saved 9 of 59 columns, and nothing said that there are more or how to get them."""
    with (run / "metrics.jsonl").open("w") as file:
        for step in (1, 2):
            values = {"critic/score/mean": 0.5, "actor/entropy": 0.1, "other/one": 1, "other/two": 2}
            file.write(json.dumps({"step": step, "data": values}) + "\n")
    async with opened(run) as screen:
        await screen.press("M")
        await screen.until(
            lambda: isinstance(screen.app.screen, MetricsScreen) and screen.app.screen.exporters()
        )
        await screen.press("e")
        command = f"liverl-tui metrics export {run}"
        await screen.until(lambda: f": 2 of 4 metrics; all of them: {command}" in screen.text)
        parse_command_line(command)


async def test_a_form_that_is_not_there_is_refused_with_those_that_are(run: Path) -> None:
    async with opened(run) as screen:
        await screen.press("4")
        screen.app.navigation.export("svg")
        await screen.until(lambda: "can be saved as csv or json, not as svg" in screen.text)
        assert not (run / "saved").exists()


async def test_a_timeline_is_saved_as_json_and_lines_as_text(run: Path) -> None:
    (run / "metrics.jsonl").write_text('{"step": 1, "data": {"timing_s/step": 9, "timing_s/gen": 7}}\n')
    async with opened(run) as screen:
        await screen.press("I")
        await screen.until(
            lambda: (
                isinstance(screen.app.screen, TimelineScreen)
                and screen.app.screen.query_one(StepPane).step == 1
            )
        )
        file = await screen.saved("e")
        assert json.loads(file.read_text())["parts"] == {"generate": 7.0, "other": 2.0}
        await screen.press("c")
        assert (await screen.saved("e")).read_text().splitlines()[1] == "1,9.0,7.0,2.0"
        await screen.press("escape", "escape", "K")
        await screen.until(lambda: isinstance(screen.app.screen, DiskScreen) and "holds" in _disk(screen))
        text = await screen.saved("e")
        assert text.suffix == ".txt" and "exp/shown holds" in text.read_text()


def fill(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


async def test_what_a_run_holds_by_kind_and_what_may_go(run: Path) -> None:
    fill(run / "trials" / "step_0001" / "a" / "result.json", 5000)
    fill(run / "attempt_001" / "logs" / "trainer.1.log", 3000)
    fill(run / "attempt_001" / "report.md", 100)
    fill(run / "saved" / "a.csv", 200)
    for step in (2, 4):
        fsdp(run / "checkpoints", step)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("4")
    found = run_disk(run)
    by_kind = {row.kind: row for row in found.rows}
    held = {"trials": "trials", "logs": "attempt_001/logs", "saved by you": "saved"}
    assert {kind: by_kind[kind].bytes for kind in held} == {
        kind: measure(run / folder).bytes for kind, folder in held.items()
    }
    assert by_kind["trials"].may_go == f"liverl-tui clean {run} --trials"
    assert by_kind["logs"].may_go.endswith("--logs")
    assert by_kind["saved by you"].may_go == ""
    prune = by_kind["checkpoints"].may_go
    parse_command_line(prune)
    assert by_kind["records"].may_go == "" and by_kind["records"].bytes > 100
    assert [row.bytes for row in found.rows] == sorted((row.bytes for row in found.rows), reverse=True)
    assert found.bytes == sum(row.bytes for row in found.rows)
    assert [(row.step, row.state, row.newest) for row in sorted(found.checkpoints, key=lambda r: r.step)] == [
        (2, "complete", False), (4, "complete", True),
    ]  # fmt: skip
    text = "\n".join(lines(found))
    assert "2 checkpoints" in text and "nobody can tell whether and where it runs" in text
    assert "no trial and no log may go now" in text
    assert "--trials" not in text, "no command that would be refused"
    assert by_kind["trials"].goes == by_kind["logs"].goes == 0
    assert by_kind["checkpoints"].goes == found.checkpoints[0].bytes
    assert by_kind["checkpoints"].bytes == sum(row.bytes for row in found.checkpoints), (
        "one number for one thing"
    )
    two = size(by_kind["checkpoints"].bytes)
    assert f"{size(found.checkpoints[0].bytes)} of {two}" in text and text.count(prune) == 1
    assert f"2 checkpoints, {two}, in {run / 'checkpoints'}:" in text
    export = text.splitlines()[-1]
    assert export.startswith("model of step 4: liverl-tui checkpoints export")
    parse_command_line(export.removeprefix("model of step 4: "))
    async with opened(run) as screen:
        await screen.press("K")
        await screen.until(
            lambda: (
                isinstance(screen.app.screen, DiskScreen)
                and "2 checkpoints" in screen.app.screen.query_one(DiskPane).text
            )
        )
        title = screen.app.screen.query_one(DiskPane).text.splitlines()[0]
        assert re.search(r"counted at \d\d:\d\d:\d\d, u counts again", title), title
        fill(run / "trials" / "step_0001" / "b" / "result.json", 500_000)
        grown = size(measure(run / "trials").bytes)
        await screen.press("u")
        await screen.until(lambda: grown in screen.app.screen.query_one(DiskPane).text)


async def test_while_the_disk_is_counted_the_page_says_how_far_that_is(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run with 80 checkpoints and many trials the page said only that it was counting, for seven seconds."""
    for step in (2, 4):
        fsdp(run / "checkpoints", step)
    fill(run / "trials" / "step_0001" / "a" / "result.json", 500)
    fill(run / "trials" / "step_0002" / "a" / "result.json", 500)
    said: list[str] = []
    shown: list[str] = []
    async with opened(run) as screen:

        def watched(path: Path, say: Callable[[str], None]) -> RunDisk:
            def heard(text: str) -> None:
                said.append(text)
                say(text)
                shown.append(
                    screen.app.call_from_thread(lambda: screen.app.screen.query_one(DiskPane).heading()[1])
                )

            return run_disk(path, heard)

        monkeypatch.setattr("liverl.offline.run_disk.run_disk", watched)
        await screen.press("K")
        await screen.until(lambda: "counted at" in _disk(screen))
    assert {f"counting checkpoint {number} of 2" for number in (1, 2)} <= set(said)
    assert {f"counting trials, {number} of 3" for number in (1, 2, 3)} <= set(said), said
    assert shown == [f"{text} ..." for text in said]


def test_a_narrow_terminal_has_no_room_for_what_a_kind_is(run: Path) -> None:
    assert "the run's memory" in "\n".join(lines(run_disk(run), 200))
    narrow = list(lines(run_disk(run), 80))
    assert "the run's memory" not in "\n".join(narrow) and any("records" in line for line in narrow)


def test_what_goes_on_below_is_indented_on_a_narrow_terminal(run: Path) -> None:
    """Wrapped cells began at the left, as rows do."""
    for step in (2, 4):
        fsdp(run / "checkpoints", step)
    found = run_disk(run)
    wide, narrow = list(lines(found)), list(lines(found, 78))
    assert all(len(line) <= 78 or " " not in line.strip() for line in narrow), narrow
    firsts = {line.split(maxsplit=1)[0] for line in wide if line.strip()}
    assert {line.split()[0] for line in narrow if line.strip() and not line.startswith(" ")} <= firsts


def test_of_the_embedded_trainer_there_is_no_model_to_export(run: Path) -> None:
    fsdp(run / "checkpoints", 2)
    found = run_disk(run)
    rows = tuple(replace(row, format="embedded") for row in found.checkpoints)
    assert any(line.startswith("no model to export") for line in lines(replace(found, checkpoints=rows)))
    broken = tuple(replace(row, state="incomplete") for row in found.checkpoints)
    assert not any("checkpoints export" in line for line in lines(replace(found, checkpoints=broken)))


def test_a_run_without_checkpoints_says_so(run: Path) -> None:
    assert "checkpoints: no checkpoint was written yet" in "\n".join(lines(run_disk(run)))
