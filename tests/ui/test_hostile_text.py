"""Text of others on every screen: nothing of it moves the cursor, changes the order of letters, or is hidden."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.hostile import EVERY, FORBIDDEN, KINDS, infect
from kit.hostile_run import TRIAL, detail, fill, the_view
from kit.pilots import press, until
from kit.screens import NOW, FakeSource, settle
from kit.token_documents import DIALOGUE, said, write_run

from liverl.model import Cause, Result
from liverl_tui.app.app import LiverlApp

pytestmark = pytest.mark.drill


class Watched:
    """The app, with all that it has painted."""

    def __init__(self, pilot: Any) -> None:
        self.pilot = pilot
        self.app: LiverlApp = pilot.app
        self.seen = ""

    def look(self, where: str) -> str:
        """Fail with the text on the screen that must not be there; the screen."""
        strips = self.app.screen._compositor.render_full_update().strips
        lines = [
            "".join(text for strip in row for text, _, control in strip if not control) for row in strips
        ]
        for line in lines:
            assert not FORBIDDEN.search(line), f"{where}: {line!r}"
        self.seen += "\n".join(lines)
        return "\n".join(lines)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await press(self.pilot, key)
            await settle(self.pilot)
            self.look(f"after {key} of {keys}")

    async def until(self, text: str) -> None:
        await until(self.pilot, lambda: text in self.look(text), lambda: self.look(text))


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A process with such text in its command line."""
    bad = EVERY.replace("\0", "")
    process = subprocess.Popen([f"{bad}sleep", "600"], executable="/bin/sleep")
    yield process.pid
    process.kill()
    process.wait()


def escapes(bad: str) -> list[str]:
    """How the characters are shown."""
    return [repr(character)[1:-1] for character in bad if character not in "\n\x1b"]


@pytest.fixture(params=KINDS)
def bad(request: pytest.FixtureRequest) -> str:
    return KINDS[request.param]


@pytest.mark.parametrize("size", [(80, 24), pytest.param((200, 50), marks=pytest.mark.slow)], ids=str)
async def test_no_screen_lets_it_through(
    tmp_path: Path, neighbour: int, bad: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "liverl" / "first"
    fill(run_dir, bad)
    source = FakeSource(run_dir, the_view(run_dir, neighbour, bad))
    source.answer = {**msgspec.to_builtins(infect(detail(), bad)), "text": f"{bad}done"}
    async with LiverlApp(source).run_test(size=size) as pilot:
        shown = Watched(pilot)
        await until(pilot, lambda: pilot.app.view.snapshot is not None, lambda: "no view")
        await shown.until("the last line")
        await shown.press("1", "enter", "2", "j", "3", "slash", *"line", "enter", "w", "4", "f")
        await shown.press("escape", "escape", "3", "z", "right_square_bracket", "right_square_bracket", "z")
        await shown.press("y", "Y")
        for screen in ("E", "A", "M", "V", "colon", "question_mark", "q", "x", "S", "Q", "r", "U"):
            await shown.press(screen)
            shown.look(screen)
            await shown.press("escape")
            while len(pilot.app.screen_stack) > 2:
                await shown.press("escape")
        await shown.press("M", "j", "l", "a", "escape", "escape")
        for index in range(9):
            await shown.press("V", *["down"] * index, "enter")
            await shown.press(*["pagedown"] * 3, "escape", "escape")
            while len(pilot.app.screen_stack) > 2:
                await shown.press("escape")
        pilot.app.notifications.toast(f"{bad}a toast", "error")
        await settle(pilot)
        shown.look("toast")
    missing = [text for text in escapes(bad) if text not in shown.seen]
    assert not missing


async def test_a_trajectory_lets_nothing_through(tmp_path: Path, neighbour: int, bad: str) -> None:
    from liverl_tui.screens.trajectory import TrajectoryScreen

    run_dir = tmp_path / "liverl" / "first"
    fill(run_dir, bad)
    async with LiverlApp(FakeSource(run_dir, the_view(run_dir, neighbour, bad))).run_test(
        size=(120, 60)
    ) as pilot:
        shown = Watched(pilot)
        await settle(pilot)
        await pilot.app.push_screen(TrajectoryScreen(TRIAL.path))
        await shown.until("the answer")
        await shown.press("e", "pagedown", "pagedown", "end", "home", "v", "pagedown", "end", "v")
        await shown.press("slash", *"answer", "enter", "y", "Y")
    assert not [text for text in escapes(bad) if text not in shown.seen and text != "\\r"]


async def test_tokens_let_nothing_through(tmp_path: Path, neighbour: int, bad: str) -> None:
    from liverl_tui.screens.tokens import TokensScreen

    run_dir = tmp_path / "liverl" / "first"
    fill(run_dir, bad)
    rows = [said((bad, 0), (f"x{bad}y", 1), kind=bad), said(*DIALOGUE, kind=bad)]
    write_run(run_dir, TRIAL.path, {"rows": rows, "not_trained": {bad: 3}})
    async with LiverlApp(FakeSource(run_dir, the_view(run_dir, neighbour, bad))).run_test(
        size=(160, 60)
    ) as pilot:
        shown = Watched(pilot)
        await settle(pilot)
        await pilot.app.push_screen(TokensScreen(TRIAL.path))
        await shown.until("row 2 of 2")
        await shown.press("n", "v", "n", "end", "home", "y", "Y")
        await shown.until("row 1 of 2")
        shown.look("tokens")
    assert not [text for text in escapes(bad) if text not in shown.seen and text != "\\r"]


@pytest.mark.parametrize("link", ["lost", "ended"])
async def test_nor_does_a_run_without_a_backend(tmp_path: Path, neighbour: int, link: str) -> None:
    run_dir = tmp_path / "liverl" / "first"
    bad = EVERY
    fill(run_dir, bad)
    given = the_view(run_dir, neighbour, bad, link)
    assert given.snapshot is not None
    result = Result("failed", 1, Cause("r0", "the cause", NOW), 3, NOW - 9, NOW, summary="a summary")
    ended = infect(result, bad) if link == "ended" else None
    given = msgspec.structs.replace(given, snapshot=msgspec.structs.replace(given.snapshot, result=ended))
    async with LiverlApp(FakeSource(run_dir, given)).run_test(size=(160, 50)) as pilot:
        shown = Watched(pilot)
        await settle(pilot)
        await shown.press("E", "escape", "V", "enter", "escape", "A", "escape", "q", "escape", "U")
