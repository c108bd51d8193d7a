"""The sandboxes screen: containers, what is wrong with them, the way to their trials, and the line to copy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.screens import NOW, FakeSource, settle, snapshot, trial

from liverl.model import SandboxesStatus, SandboxStatus, TrialsStatus
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.sandboxes import SandboxesScreen
from liverl_tui.screens.trajectory import TrajectoryScreen
from liverl_tui.widgets.lists.sandboxes import SandboxList, notes_of, state_of


def row(number: int, **more: Any) -> SandboxStatus:
    values: dict[str, Any] = {
        "id": f"{number:012x}", "name": f"fix-config-{number:02}__env-main-1", "trial": f"fix-config-{number:02}",
        "attempt": "attempt_001", "state": "running", "since": NOW - 60 * number,
        "exec": f"docker exec -it {number:012x} sh",
    }  # fmt: skip
    return SandboxStatus(**{**values, **more})


ROWS = (
    row(9, left=True, since=NOW - 7200),
    row(3, state="exited", exit=137, oom=True, exec="", path="trials/step_0007/trial-001"),
    row(2, kept=True, path="trials/step_0007/trial-001"),
    row(1),
    row(4, state="created", since=None),
)
STATUS = SandboxesStatus(
    running=3, starting=1, ended=1, left=1, networks=5, oldest=NOW - 7200, server="", rows=ROWS
)


def view(status: SandboxesStatus | None = STATUS) -> View:
    trials = TrialsStatus(total=1, finished=1, newest=(trial(1, path="trials/step_0007/trial-001"),))
    return View(link="live", snapshot=snapshot(sandboxes=status, trials=trials))


class Screen(pilots.Driven):
    @property
    def pane(self) -> SandboxList:
        return self.app.screen.query_one(SandboxList)

    @property
    def text(self) -> str:
        panes = self.app.screen.query(SandboxList)
        return panes.first().text if panes else ""


@asynccontextmanager
async def opened(shown: View, size: tuple[int, int] = (120, 24)) -> AsyncIterator[Screen]:
    app = LiverlApp(FakeSource("/runs/x/y", view=shown))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        screen = Screen(pilot)
        await screen.press("W")
        await screen.until(lambda: isinstance(app.screen, SandboxesScreen) and screen.text)
        yield screen


@pytest.mark.parametrize(
    ("one", "state", "notes"),
    [
        (row(1), ("● running", "ok"), ()),
        (row(1, state="exited", exit=0), ("○ exited 0", "dim"), ()),
        (row(1, state="exited", exit=137, oom=True), ("○ exited 137", "bad"), ("memory used up",)),
        (row(1, state="created", left=True, kept=True), ("◐ starting", "info"), ("left: no living trial", "kept")),
        (row(1, state="odd\x1b"), ("odd", "warn"), ()),
        (row(1, state=""), ("-", "warn"), ()),
    ],
)  # fmt: skip
def test_states_and_notes(one: SandboxStatus, state: tuple[str, str], notes: tuple[str, ...]) -> None:
    assert state_of(one) == state
    assert tuple(text for text, _ in notes_of(one)) == notes


async def test_containers_with_counts_states_and_the_line_to_copy() -> None:
    async with opened(view()) as screen:
        lines = screen.text.splitlines()
        assert "3 running · 1 starting · 1 ended · 1 left · 5 networks · oldest 2h00m" in lines[0]
        assert "left: no living trial" in lines[2] and "fix-config-09" in lines[2] and "2h00m" in lines[2]
        assert "exited 137" in lines[3] and "memory used up" in lines[3]
        assert lines[-1].strip() == "y docker exec -it 000000000009 sh"
        await screen.press("down")
        assert screen.text.splitlines()[-1].strip() == "y docker logs 000000000003"
        await screen.press("slash", *"kept", "enter")
        assert "fix-config-02" in screen.text and "fix-config-09" not in screen.text
        assert "1 of 5 rows" in screen.text


async def test_enter_opens_the_trial_of_a_container() -> None:
    async with opened(view()) as screen:
        await screen.press("enter")
        assert isinstance(screen.app.screen, SandboxesScreen), "its trial is not among the newest"
        await screen.press("down", "enter")
        await screen.until(lambda: isinstance(screen.app.screen, TrajectoryScreen))
        assert isinstance(screen.app.screen, TrajectoryScreen)
        assert screen.app.screen.path == "trials/step_0007/trial-001"
        await screen.press("escape")
        assert isinstance(screen.app.screen, SandboxesScreen)
        await screen.press("escape")
        assert not isinstance(screen.app.screen, SandboxesScreen)


async def test_what_is_known_stays_while_docker_is_away() -> None:
    gone = msgspec.structs.replace(
        STATUS, reachable=False, why="Docker: Cannot connect to the daemon", since=NOW - 20
    )
    async with opened(view(gone)) as screen:
        lines = screen.text.splitlines()
        assert "✖ Docker does not answer" in lines[0] and "fix-config-09" in screen.text
        assert "Docker: Cannot connect to the daemon (shown is the last answer)" in screen.text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "the trials have begun no container and no pod"),
        (SandboxesStatus(), "no container of a trial is there now"),
    ],
)
async def test_no_containers(status: SandboxesStatus | None, words: str) -> None:
    async with opened(view(status)) as screen:
        assert words in screen.text and "none" in screen.text.splitlines()[0]
        await screen.press("enter", "y")
        assert isinstance(screen.app.screen, SandboxesScreen)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (40, 12)])
async def test_it_fits_every_terminal(size: tuple[int, int]) -> None:
    many = SandboxesStatus(running=80, rows=tuple(row(number) for number in range(80)))
    async with opened(view(many), size) as screen:
        for keys in (("down",), ("end",), ("home",), ("pagedown",)):
            await screen.press(*keys)
            lines = screen.text.splitlines()
            assert max(map(len, lines)) <= size[0] and len(lines) <= size[1]
            assert screen.pane.chosen is not None and screen.pane.chosen.trial in screen.text
