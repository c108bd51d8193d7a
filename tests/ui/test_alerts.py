"""The alerts screen: every symptom with cause, fix and evidence, and the keys that act on them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import pilots
from kit.screens import NOW, FakeSource, settle, view
from kit.symptoms import proof
from rich.cells import cell_len

from liverl.model import Evidence, Symptom
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.alerts import AlertsScreen
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.dialogs import Confirm
from liverl_tui.screens.events import EventsScreen
from liverl_tui.screens.service import ServiceScreen
from liverl_tui.screens.trajectory import TrajectoryScreen
from liverl_tui.text.wrapping import LEAST
from liverl_tui.widgets.lists.alerts import AlertList, alert_rows, alert_text

NO_TOOLS = Symptom(
    id="zero_tool_calls",
    severity="critical",
    title="trials call no tool",
    cause="all 32 trials of step 7 called none: format and parser do not match",
    fix="set model.tool_parser to the format that the model writes",
    evidence=(Evidence("trials/step_0007/sort-1"), Evidence("trials/step_0007/sort-2")),
    since=NOW - 125,
)
IDLE = Symptom(
    id="replica_idle:r1",
    severity="warning",
    title="r1 is loaded but idle",
    cause="nothing has run on it for 75 s while there was work",
    fix="a restart brings it back",
    evidence=(Evidence("r1: ready, 0 running"), Evidence("r0: ready, 3 running")),
    since=NOW - 75,
    action="restart r1",
)
UNLISTED = Symptom(
    id="replica_unlisted:r1",
    severity="warning",
    title="r1 is ready but gets no trials",
    cause="the proxy's file leaves it out",
    fix="add it to the proxy's file",
    action="scale +1",
)
UNNAMED = Symptom("trials_unattributed", "info", "requests name no trial", "2 requests", "give keys")


class Screen(pilots.Driven):
    def __init__(self, pilot: Any, source: FakeSource) -> None:
        super().__init__(pilot)
        self.source = source

    @property
    def pane(self) -> AlertList:
        return self.app.screen.query_one(AlertList)

    @property
    def text(self) -> str:
        panes = self.app.screen.query(AlertList)
        return panes.first().text if panes else ""

    def take(self, *symptoms: Symptom) -> None:
        snapshot = msgspec.structs.replace(self.app.view.snapshot, symptoms=symptoms)
        self.app.take(msgspec.structs.replace(self.app.view, snapshot=snapshot))


@asynccontextmanager
async def opened(
    *symptoms: Symptom,
    key: str = "exclamation_mark",
    size: tuple[int, int] = (80, 24),
    readonly: bool = False,
) -> AsyncIterator[Screen]:
    source = FakeSource(view=view(symptoms=symptoms))
    app = LiverlApp(source, readonly=readonly)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        screen = Screen(pilot, source)
        await screen.press(key)
        await screen.until(lambda: isinstance(app.screen, AlertsScreen) and screen.text)
        yield screen


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 10)])
async def test_each_alert_has_cause_fix_and_evidence(size: tuple[int, int]) -> None:
    async with opened(NO_TOOLS, IDLE, UNNAMED, size=size) as screen:
        assert "2 alerts, 1 notice" in screen.text.splitlines()[0]
        flat = " ".join(screen.text.split())
        assert "✖ trials call no tool" in flat and "fix: set model.tool_parser" in flat
        assert "for 2m" in flat
        if size != (40, 10):
            for part in (
                NO_TOOLS.cause,
                *proof(NO_TOOLS),
                "▲ r1 is loaded but idle",
                "f applies the fix: restart r1",
            ):
                assert part in flat, part
            assert "• requests name no trial" in flat
        await screen.press("escape")
        assert isinstance(screen.app.screen, Dashboard)


async def test_the_death_of_the_backend_is_an_alert_of_the_page_too() -> None:
    """The head said it, and the page of alerts told one notice and nothing of it."""
    async with opened(UNNAMED) as screen:
        assert "died" not in screen.text
        screen.app.take(msgspec.structs.replace(screen.app.view, link="lost", why="it was killed"))
        flat = " ".join(screen.text.split())
        assert "1 alert, 1 notice" in flat and "✖ the backend died" in flat and "it was killed" in flat
        assert "fix: U starts a backend again" in flat
        screen.app.take(msgspec.structs.replace(screen.app.view, link="live", why=""))
        assert "died" not in screen.text


async def test_the_trials_under_the_cursor_are_those_that_enter_opens() -> None:
    later = (Evidence("trials/step_0008/sort-9"),)
    async with opened(NO_TOOLS, IDLE) as screen:
        idle = msgspec.structs.replace(IDLE, evidence=(Evidence("r1: ready, 1 running"),))
        screen.take(msgspec.structs.replace(NO_TOOLS, title="no trial calls a tool", evidence=later), idle)
        assert "no trial calls a tool" in screen.text and "step_0008" not in screen.text
        await screen.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, TrajectoryScreen))
        assert screen.app.screen.path == proof(NO_TOOLS)[0]  # type: ignore[attr-defined]
        await screen.press("escape")
        await screen.until(lambda: isinstance(screen.app.screen, AlertsScreen))
        await screen.press("down")
        screen.take(msgspec.structs.replace(NO_TOOLS, evidence=later), IDLE)
        assert "step_0008" in screen.text, "the cursor is on another alert"
        assert "r1: ready, 0 running" in screen.text, "evidence that names no trial stays current"


async def test_what_an_alert_says_and_its_trials_are_of_one_time() -> None:
    async with opened(NO_TOOLS) as screen:
        later = (Evidence("trials/step_0008/sort-9"),)
        screen.take(
            msgspec.structs.replace(NO_TOOLS, cause="all trials of step 8 are silent", evidence=later)
        )
        assert "of step 8" in screen.text and "step_0008" in screen.text and "step_0007" not in screen.text


def test_an_alert_of_a_run_that_has_ended_lasts_no_longer() -> None:
    symptom = msgspec.structs.replace(IDLE, since=NOW - 90)
    assert alert_rows(symptom, 80, NOW)[0].text.endswith(" for 1m ")
    clock = time.strftime("%H:%M:%S", time.localtime(NOW - 90))
    assert alert_rows(symptom, 80, NOW, over=True)[0].text.endswith(f" at {clock} ")


def test_a_command_that_checks_something_is_not_cut() -> None:
    check = "the kernel may have killed it; check: dmesg -T | grep -iE 'out of memory|killed process'"
    symptom = Symptom("x", "warning", "x", "y", "z", (Evidence(check), Evidence("w" * 300, "a.log", 3)))
    rows = [row.text for row in alert_rows(symptom, 60, NOW)]
    assert " ".join("".join(rows).split()).endswith("…"), "a line of a log is"
    assert check in " ".join(" ".join(rows).split())


async def test_without_alerts_at_its_end_a_run_may_have_had_some() -> None:
    async with opened() as screen:
        screen.app.take(msgspec.structs.replace(screen.app.view, link="ended"))
        await screen.until(lambda: "no alert was open at the end; attempt_001/report.md has" in screen.text)
        assert "no problem detected" not in screen.text


async def test_without_alerts_it_says_so() -> None:
    async with opened(key="A") as screen:
        assert "no problem detected" in screen.text
        await screen.press("enter", "f", "down", "y")  # nothing to do it with
        assert isinstance(screen.app.screen, AlertsScreen)
        screen.take(IDLE)
        assert "r1 is loaded but idle" in screen.text and "1 alert " in screen.text.splitlines()[0]
        screen.take()
        assert "no problem detected" in screen.text


async def test_the_cursor_stays_on_its_alert_and_all_of_it_is_seen() -> None:
    async with opened(NO_TOOLS, IDLE, UNLISTED, UNNAMED, size=(80, 12)) as screen:
        await screen.press("down")
        assert screen.pane.chosen == IDLE and "r0: ready, 3 running" in screen.text
        screen.take(NO_TOOLS, UNLISTED, msgspec.structs.replace(IDLE, since=NOW - 200))
        assert screen.pane.chosen is not None and screen.pane.chosen.id == IDLE.id
        assert "r0: ready, 3 running" in screen.text
        await screen.press("End")
        screen.take(NO_TOOLS)
        assert screen.pane.chosen == NO_TOOLS and "trials call no tool" in screen.text.splitlines()[1]


async def test_enter_goes_to_what_it_is_about() -> None:
    async with opened(NO_TOOLS, IDLE, UNNAMED) as screen:
        await screen.press("enter")
        shown = screen.app.screen
        assert isinstance(shown, TrajectoryScreen) and shown.path == "trials/step_0007/sort-1"
        await screen.press("escape", "down", "enter")
        assert isinstance(screen.app.screen, ServiceScreen) and screen.app.screen.selected_service == "r1"
        await screen.press("escape", "down", "enter")
        assert isinstance(screen.app.screen, EventsScreen)


async def test_the_fix_is_applied_where_it_is_one_command() -> None:
    async with opened(IDLE, UNLISTED, NO_TOOLS) as screen:
        await screen.press("f")
        assert isinstance(screen.app.screen, Confirm), "a restart of a replica is asked first"
        await screen.press("y")
        await screen.until(lambda: ("restart", {"service": "r1"}) in screen.source.asked)
        await screen.press("down", "f")
        await screen.until(lambda: ("scale", {"delta": 1}) in screen.source.asked)
        before = list(screen.source.asked)
        await screen.press("down", "f")
        assert screen.source.asked == before and isinstance(screen.app.screen, AlertsScreen)


async def test_a_read_only_interface_applies_nothing() -> None:
    async with opened(UNLISTED, readonly=True) as screen:
        await screen.press("f")
        assert not [name for name, _ in screen.source.asked if name == "scale"]


def test_a_copy_has_all_of_it() -> None:
    assert alert_text(NO_TOOLS).splitlines() == [
        "critical: trials call no tool",
        NO_TOOLS.cause,
        f"fix: {NO_TOOLS.fix}",
        "- trials/step_0007/sort-1",
        "- trials/step_0007/sort-2",
    ]


@given(st.text(), st.text(), st.text(), st.lists(st.text(), max_size=3), st.integers(20, 200))
def test_any_text_fits(title: str, cause: str, fix: str, evidence: list[str], width: int) -> None:
    symptom = Symptom(
        "x", "warning", title, cause, fix, tuple(map(Evidence, evidence)), since=NOW - 5, action="restart x"
    )
    for row in alert_rows(symptom, width, NOW):
        assert cell_len(row.text) <= max(width, LEAST + 4)


async def test_what_is_muted_has_a_line_each_below_the_alerts() -> None:
    async with opened() as screen:
        muted = msgspec.structs.replace(screen.app.view.snapshot, muted=(NO_TOOLS,))
        screen.app.take(msgspec.structs.replace(screen.app.view, snapshot=muted))
        line = f"muted by diagnosis.mute: {NO_TOOLS.id}: {NO_TOOLS.title}"
        await screen.until(lambda: line in screen.text)
        assert "no problem detected" in screen.text
        both = msgspec.structs.replace(muted, symptoms=(IDLE,))
        screen.app.take(msgspec.structs.replace(screen.app.view, snapshot=both))
        await screen.until(lambda: IDLE.title in screen.text and line in screen.text)
        assert "1 alert " in screen.text.splitlines()[0], "it is not counted"
        assert screen.pane.chosen == IDLE
        await screen.press("f")
        assert isinstance(screen.app.screen, Confirm), "keys are for the alert"


async def test_what_is_muted_is_reached_below_many_alerts() -> None:
    async with opened(NO_TOOLS, IDLE, UNLISTED, UNNAMED, size=(80, 12)) as screen:
        state = msgspec.structs.replace(screen.app.view.snapshot, muted=(NO_TOOLS,))
        screen.app.take(msgspec.structs.replace(screen.app.view, snapshot=state))
        await screen.press("down", "down", "down")
        await screen.until(lambda: "muted by diagnosis.mute" in screen.text)
