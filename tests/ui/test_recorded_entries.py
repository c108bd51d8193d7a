"""What only a recording has is offered only there, and numbers and lists say no more than is known."""

from __future__ import annotations

import msgspec
import pytest
from kit.screens import NOW, RecordingApp, settle, snapshot, trial, view

from liverl.control.service_detail import ServiceDetail
from liverl.model import Symptom, TrialsStatus
from liverl_tui.data.view import View
from liverl_tui.screens.entries import entries
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.header.header import below_rows
from liverl_tui.widgets.service.text import _whole, argv_line


@pytest.mark.parametrize("link", ["live", "ended", "demo"])
async def test_entries_of_recordings(link: str) -> None:
    app = RecordingApp(msgspec.structs.replace(view(), link=link))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        names = {one.name for one in entries(app)}
        assert ({"pause demo", "demo back", "demo faster"} <= names) == (link == "demo")
        assert not any("demo" in name for name in names) or link == "demo"


async def test_no_number_of_trials_is_told_while_they_are_read() -> None:
    status = TrialsStatus(900, finished=900, newest=tuple(trial(n) for n in range(3)))
    shown: View = view(trials=status)
    app = RecordingApp(shown)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        pane = app.screen.query_one(TrialsPane)
        pane._only_flagged = True
        for progress, words in (
            ("reading trials, 64 of 127 folders", "still being read"),
            ("", "no flagged trials"),
        ):
            pane._whole.progress = progress
            text = "".join(row.text for row in pane.empty_rows(120))
            assert words in text
            assert ("match" in pane.title_words(120, "", None, 0)) == (not progress)


@pytest.mark.parametrize(
    ("number", "words"), [(28362.0, "28,362"), (2.4, "2.4"), (64.0, "64"), (1234.5, "1,234")]
)
def test_room_for_requests(number: float, words: str) -> None:
    assert _whole(number) == words


def test_a_planned_command_has_no_placeholder() -> None:
    detail = ServiceDetail("ray", "ray", True, argv=("{python:verl}", "-m", "ray.scripts.scripts", "start"))
    assert argv_line(detail) == "python -m ray.scripts.scripts start"


def test_an_alert_of_a_recording_at_its_end_is_told_once() -> None:
    alert = Symptom("zero_tool_calls", "critical", "trials call no tool", "", "set a parser")
    state = snapshot(symptoms=(alert,))
    shown = View(
        "demo", "the recording has ended: 5 of 5 steps; trials call no tool; | plays it again", state
    )
    rows = [row.text for row in below_rows(shown, state, NOW, 120)]
    assert sum("trials call no tool" in row for row in rows) == 1
    assert rows[0] == "the recording has ended: 5 of 5 steps; | plays it again"
