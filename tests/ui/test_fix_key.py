"""`f` on an alert with a patch: the diff, the restart of what reads it within the attempt, and the user's own file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.screens import FakeSource, settle, view
from msgspec.structs import replace

from liverl.config import load_config, resolved, run_directory
from liverl.control.messages import CommandError
from liverl.daemon.launch import create_run
from liverl.model import Symptom
from liverl.observe.config_edits import was_edited
from liverl.plan import make_plan
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.change_dialog import ConfirmChange, Diff
from liverl_tui.screens.dialogs import Options, Wrapped

PATCH = {"model.tool_parser": "hermes"}
ALERT = Symptom("zero_tool_calls", "critical", "trials call no tool", "why", "what to do", patch=PATCH)
MINE = "# mine\nmodel:\n  tool_parser: qwen3_coder  # of the card\n"


class Screen(pilots.Driven):
    def __init__(self, pilot: Any, source: FakeSource) -> None:
        super().__init__(pilot)
        self.source = source

    @property
    def toasts(self) -> list[str]:
        return [toast.message for toast in self.app._notifications]

    @property
    def text(self) -> str:
        return "\n".join([str(self.app.screen), self.words, *self.toasts])

    @property
    def words(self) -> str:
        return "\n".join(words.words for words in self.app.screen.query(Wrapped))

    async def asks(self, what: str) -> None:
        await self.until(lambda: isinstance(self.app.screen, ConfirmChange) and what in self.words)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    path.chmod(0o640)
    return path


def make_run(folder: Path, file: Path | None) -> Path:
    loaded = load_config(file, sets=["run.name=r", f"run.run_root={folder / 'runs'}"], env={})
    loaded = replace(loaded, config=resolved(loaded.config, env={}, cwd=folder, now=0.0))
    run_dir = run_directory(loaded.config)
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    return run_dir


@asynccontextmanager
async def opened(
    tmp_path: Path, file: Path | None = None, size: tuple[int, int] = (100, 30), alert: Symptom = ALERT
) -> AsyncIterator[Screen]:
    source = FakeSource(make_run(tmp_path, file), replace(view(symptoms=(alert,)), link="live"))
    source.answer = {"text": "model.tool_parser: qwen3_coder -> hermes: restarted r0"}
    async with LiverlApp(source).run_test(size=size) as pilot:
        await settle(pilot)
        screen = Screen(pilot, source)
        await screen.press("exclamation_mark")
        await screen.press("f")
        await screen.asks("the run's config.yaml")
        yield screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_change_is_shown_and_made_within_the_attempt(
    tmp_path: Path, mine: Path, size: tuple[int, int]
) -> None:
    async with opened(tmp_path, mine, size) as screen:
        diff = screen.app.screen.query_one(Diff)
        assert diff.words == "- model.tool_parser: qwen3_coder\n+ model.tool_parser: hermes"
        rows = [row.text for row in diff.compose_rows(diff.size.width, diff.size.height)]
        assert rows == [" - model.tool_parser: qwen3_coder", " + model.tool_parser: hermes"]
        assert diff.size.height == 2 and diff.region.bottom < size[1]
        options = screen.app.screen.query_one(Options)
        assert options.cursor == "no" and options.region.bottom <= size[1] and options.size.height >= 3
        assert "the run goes on." in screen.words and "guess" not in screen.words
        assert "Requests in flight on a replica that restarts fail" in screen.words
        await screen.press("n")
        assert screen.source.asked == [] and mine.read_text() == MINE
        await screen.press("f")
        await screen.asks("in the run's config.yaml")
        await screen.press("y")
        await screen.asks("your own file")
        assert screen.source.asked == [("reconfigure", {"values": PATCH})] and screen.source.resumed == []
        assert any("restarted r0" in toast for toast in screen.toasts)
        assert f"{mine}:" in screen.words
        assert "-    3   tool_parser: qwen3_coder  # of the card" in screen.words
        assert "+    3   tool_parser: hermes  # of the card" in screen.words
        await screen.press("y")
        await screen.until(lambda: any(f"wrote {mine}" in toast for toast in screen.toasts))
    assert mine.read_text() == MINE.replace("qwen3_coder", "hermes") and mine.stat().st_mode & 0o777 == 0o640
    assert not was_edited(tmp_path / "runs/liverl/r", mine), "the run knows that it was it"


async def test_without_consent_the_own_file_stays(tmp_path: Path, mine: Path) -> None:
    async with opened(tmp_path, mine) as screen:
        await screen.press("y")
        await screen.asks("your own file")
        await screen.press("n")
        assert len(screen.source.asked) == 1
    assert mine.read_text() == MINE


async def test_an_own_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path, mine: Path) -> None:
    async with opened(tmp_path, mine) as screen:
        await screen.press("y")
        await screen.asks("your own file")
        mine.write_text(MINE + "# more\n")
        await screen.press("y")
        await screen.until(lambda: any("was changed in the meantime" in toast for toast in screen.toasts))
    assert mine.read_text() == MINE + "# more\n"


async def test_an_own_file_that_cannot_be_edited_is_named_with_what_to_set(
    tmp_path: Path, mine: Path
) -> None:
    async with opened(tmp_path, mine) as screen:
        mine.write_text("model: {\n")
        await screen.press("y")
        words = "set model.tool_parser=hermes in it"
        await screen.until(lambda: any(words in toast and str(mine) in toast for toast in screen.toasts))
        assert not isinstance(screen.app.screen, ConfirmChange)
    assert mine.read_text() == "model: {\n"


async def test_an_own_file_that_is_read_only_stays(tmp_path: Path, mine: Path) -> None:
    """Whoever may write to its folder could replace it, and root could write to it."""
    mine.chmod(0o444)
    async with opened(tmp_path, mine) as screen:
        await screen.press("y")
        await screen.until(lambda: any("it is read-only (mode 0444)" in toast for toast in screen.toasts))
        assert not isinstance(screen.app.screen, ConfirmChange)
    assert mine.read_text() == MINE


async def test_a_guess_is_called_one(tmp_path: Path) -> None:
    async with opened(tmp_path, alert=msgspec.structs.replace(ALERT, guess=True)) as screen:
        assert "a guess for the run's config.yaml" in screen.words
        assert "a rule of thumb chose the value" in screen.words


async def test_a_run_without_an_own_file_asks_no_second_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as screen:
        await screen.press("y")
        await screen.until(lambda: any("restarted r0" in toast for toast in screen.toasts))
        await settle(screen.pilot)
        assert not isinstance(screen.app.screen, ConfirmChange)


async def test_what_the_backend_refuses_is_shown_and_leaves_the_own_file(tmp_path: Path, mine: Path) -> None:
    async with opened(tmp_path, mine) as screen:
        screen.source.answer = CommandError("busy", "another change of the configuration is being applied")
        await screen.press("y")
        await screen.until(lambda: any("another change of the" in toast for toast in screen.toasts))
        assert not isinstance(screen.app.screen, ConfirmChange)
        screen.source.answer = {"text": "done"}
        await screen.press("f")
        await screen.asks("in the run's config.yaml")
    assert mine.read_text() == MINE


async def test_a_slurm_job_changes_what_needs_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    async with opened(tmp_path) as screen:
        await screen.press("y")
        await screen.until(lambda: screen.source.asked)
