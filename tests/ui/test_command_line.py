"""The command line: typed commands with arguments, their completions, errors and history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kit import pilots
from kit.screens import FakeSource, settle, view
from textual.widgets import Input

from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.dialogs import Confirm, Quit, TypeName, Wrapped
from liverl_tui.screens.palette import Entries, Palette
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.log.pane import LogsPane

pytestmark = pytest.mark.drill


class Line(pilots.Driven):
    """The interface with its command line."""

    def __init__(self, pilot: Any, source: FakeSource) -> None:
        super().__init__(pilot)
        self.source = source

    @property
    def typed(self) -> str:
        return self.app.screen.query_one(Input).value

    @property
    def note(self) -> str:
        return self.app.screen.query_one("#note", Wrapped).words

    @property
    def rows(self) -> list[str]:
        return [row.text.strip() for row in self.app.screen.query_one(Entries).rows[1:]]

    @property
    def marked(self) -> str | None:
        return next((r.text.strip() for r in self.app.screen.query_one(Entries).rows if r.cursor), None)

    @property
    def text(self) -> str:
        return f"{self.typed}\n{self.note}" if isinstance(self.app.screen, Palette) else str(self.app.screen)

    async def type(self, text: str, *keys: str) -> None:
        """Open the line if it is closed, put ``text`` into it, and press ``keys``."""
        if not isinstance(self.app.screen, Palette):
            await self.press("colon")
        await self.press("ctrl+u", *(("space" if c == " " else c) for c in text), *keys)

    @property
    def open(self) -> bool:
        return isinstance(self.app.screen, Palette)


@asynccontextmanager
async def opened(
    *, size: tuple[int, int] = (100, 30), readonly: bool = False, run_dir: Path | str = "/runs/liverl/first"
) -> AsyncIterator[Line]:
    source = FakeSource(run_dir, view=view())
    app = LiverlApp(source, readonly=readonly, theme="dark")
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield Line(pilot, source)


async def test_a_typed_command_is_completed_checked_and_run() -> None:
    async with opened() as line:
        await line.type("restart ")
        assert [row.split("  ")[0] for row in line.rows[:4]] == [
            "restart r0",
            "restart r1",
            "restart proxy",
            "restart trainer",
        ]
        assert line.note.startswith("restart NAME...: ") and line.marked is None
        await line.press("p", "tab")
        assert line.typed == "restart proxy"
        await line.press("enter")
        await line.until(lambda: line.source.asked == [("restart", {"service": "proxy"})])
        await line.type("scale 4", "enter")
        await line.until(lambda: line.source.asked[1:] == [("scale", {"to": 4})])
        await line.type("scale 1", "enter")
        assert isinstance(line.app.screen, Confirm), "replicas that are removed are asked about"
        await line.press("y")
        await line.until(lambda: line.source.asked[2:] == [("scale", {"to": 1})])


@pytest.mark.parametrize("size", [(100, 30), (80, 24), (40, 10)])
async def test_a_wrong_line_stays_with_the_reason(size: tuple[int, int]) -> None:
    async with opened(size=size) as line:
        await line.type("restart prox", "enter")
        assert line.open and line.typed == "restart prox"
        assert "found 'prox'" in line.note and "did you mean proxy?" in line.note
        assert line.app.screen.query_one(Entries).region.bottom <= size[1]
        await line.press("z")
        assert line.note.startswith("restart NAME"), "it goes away with the next letter"
        await line.press("enter")
        assert line.open and line.source.asked == []
        await line.type("scale", "enter")
        assert line.open and line.typed == "scale " and "expected a number of replicas" in line.note
        await line.press("escape")
        assert not line.open and line.source.asked == []


async def test_the_arrows_choose_a_completion_and_enter_runs_it() -> None:
    async with opened() as line:
        await line.type("service ", "down")
        assert line.marked is not None and line.marked.startswith("service r0")
        await line.press("down", "enter")
        await line.until(lambda: line.app.commands.selected_service() == "r1")
        await line.press("escape")
        await line.type("scale ", "down", "down", "tab")
        assert line.typed == "scale -1" and line.open
        await line.type("set training.total_st", "down", "enter")
        assert line.typed == "set training.total_steps=" and "expected" in line.note, "a value is missing"


async def test_what_is_found_by_name_is_still_found() -> None:
    async with opened() as line:
        for typed, kind in (("stop run", TypeName), ("stop ru", TypeName), ("qui", Quit), ("quit", Quit)):
            await line.type(typed, "enter")
            await line.until(lambda kind=kind: isinstance(line.app.screen, kind))
            await line.press("escape")
        await line.type("rr1", "enter")
        await line.until(lambda: isinstance(line.app.screen, Confirm))
        await line.press("escape")
        await line.type("stop dependency")
        assert line.open and line.marked is None, "found by explanations; Enter must not run any of them"
        await line.press("enter")
        assert line.open and "found 'dependency'" in line.note


async def test_up_on_the_empty_line_recalls_what_was_run() -> None:
    async with opened() as line:
        await line.press("colon", "up")
        assert line.typed == ""
        await line.type("theme light", "enter")
        await line.type("theme nonsense", "enter")
        await line.press("escape")
        await line.type("theme ansi", "enter")
        await line.type("theme light", "enter")
        await line.press("colon", "up")
        assert line.typed == "theme light"
        await line.press("up")
        assert line.typed == "theme ansi", "a line is remembered once, and only if it was run"
        await line.press("up", "down")
        assert line.typed == "theme light"
        await line.press("down")
        assert line.typed == ""
        await line.press("down", "up")
        assert line.typed == "", "in the list, the arrows move the cursor"
        await line.press("up", "up", "enter")
        await line.until(lambda: line.app.theme == "liverl-ansi")


async def test_a_read_only_interface_refuses_changes_with_the_reason() -> None:
    async with opened(readonly=True) as line:
        for text in ("restart proxy", "scale 4", "set training.total_steps=4"):
            await line.type(text, "enter")
            assert line.open and "read-only" in line.note, text
        await line.type("set ui.bell=false", "enter")
        assert not line.open and not line.app.notifications.wants_bell
        assert line.source.asked == []


async def test_several_services_are_asked_about_once_and_restarted_one_after_another() -> None:
    async with opened() as line:
        await line.type("restart r0 r1", "enter")
        assert isinstance(line.app.screen, Confirm)
        await line.press("y")
        await line.until(lambda: len(line.source.asked) == 2)
        assert line.source.asked == [("restart", {"service": "r0"}), ("restart", {"service": "r1"})]
        await line.type("remove r0 r1", "enter")
        await line.press("n")
        assert len(line.source.asked) == 2


async def test_settings_of_the_interface_are_applied_at_once() -> None:
    async with opened() as line:
        await line.type("set ui.refresh_interval=2", "enter")
        assert line.source.interval == 2.0
        await line.type("set ui.theme=light", "enter")
        assert line.app.theme == "liverl-light"
        await line.type("set ui.refresh_interval=0.001", "enter")
        assert not line.open and line.source.interval == 0.05


async def test_goto_shows_a_step_and_a_place_in_the_log(tmp_path: Path) -> None:
    logs = tmp_path / "liverl" / "first" / "attempt_001" / "logs"
    logs.mkdir(parents=True)
    (logs / "trainer.1.log").write_text("".join(f"line {number}\n" for number in range(1, 501)))
    async with opened(run_dir=tmp_path / "liverl" / "first") as line:
        await line.type("log trainer", "enter")
        pane = line.app.screen.query_one(LogsPane)
        await line.until(lambda: "line 500" in pane.text)
        await line.press("2")
        await line.type("goto 120", "enter")
        await line.until(lambda: pane.frame.number == 120 and "line 120\n" in pane.text)
        assert pane.has_focus
        await line.type("goto 501", "enter")
        await line.until(lambda: "trainer.1.log has no line 501" in pane.text)
        await line.type("goto 1", "enter")
        await line.until(lambda: pane.frame.number == 1)
        await line.type("goto step 6", "enter")
        trials = line.app.screen.query_one(TrialsPane)
        await line.until(lambda: "step 6" in trials.text)
        assert trials.has_focus
        await line.type("log nothing", "enter")
        assert line.open
        await line.type("goto 5m", "enter")
        await line.until(lambda: pane.has_focus and "time index" in pane.text)
