"""The help of a screen names what stands on it."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from liverl.observe.trials.query import EARLIER
from liverl_tui.screens.help import STATES, help_rows
from liverl_tui.text.legend import LEGEND
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.dashboard import cpu_rows, gpu_rows, replica_rows, trial_groups, trial_rows
from liverl_tui.widgets.runs.list import _SHORT

PICTURES = Path(__file__).parents[1] / "ui" / "pictures"
# Lines, bars, curves, dots of cut texts, and what a label's words stand beside: no mark by itself.
DRAWN = set("─│┌┐└┘├┤┬┴┼╸╺━…·•°▁▂▃▄▅▆▇█▏▎▍▌▋▊▉–±×→") | {chr(code) for code in range(0x2800, 0x2900)}


def tables() -> dict[str, tuple[Column, ...]]:
    replicas = [
        replica_rows.columns(8, 8, 3, narrow, carrier, 4, wordy)
        for narrow in (False, True)
        for carrier in ("proxy", "sessions", "workers")
        for wordy in range(replica_rows.WORDIEST + 1)
    ]
    return {
        "Replicas": tuple(column for columns in replicas for column in columns),
        "GPUs": gpu_rows.columns(8, 8, 4),
        "CPU": cpu_rows.columns(8),
        "trials": trial_rows.TRIAL,
        "steps": trial_rows.STEP,
        "groups": trial_groups.GROUP,
    }


NAMED = {mark for _, marks in LEGEND["dashboard"] for one in marks for mark in one.marks}


@pytest.mark.parametrize("table", list(tables()))
def test_each_head_of_the_dashboard_is_in_its_help(table: str) -> None:
    heads = {column.head for column in tables()[table] if column.head}
    assert heads <= NAMED, heads - NAMED


@pytest.mark.parametrize(
    "picture", sorted(PICTURES.glob("dashboard-*.svg")) + [PICTURES / "zero-tool-calls.svg"]
)
def test_each_glyph_that_a_dashboard_shows_is_in_its_help(picture: Path) -> None:
    shown = unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text())))
    told = "".join(row.text for row in help_rows(("dashboard", "app")))
    unknown = {character for character in shown if ord(character) > 127} - DRAWN - set(told)
    assert not unknown
    assert "●" in shown and "replica" in shown, "the picture is read"


def test_each_short_word_for_a_course_is_in_the_help_of_the_runs() -> None:
    named = {mark for _, marks in LEGEND["runs"] for one in marks for mark in one.marks}
    assert {*_SHORT.values()} <= named
    assert "near solved" in "\n".join(row.text for row in help_rows(("runs", "app")))


def test_the_documents_name_the_field_for_trials_of_an_earlier_attempt() -> None:
    docs = Path(__file__).parents[2] / "docs"
    for page in ("interface.md", "guides/trials.md"):
        assert f"`{EARLIER}=any`" in (docs / page).read_text(), page


@pytest.mark.parametrize("scope", list(LEGEND))
def test_a_mark_is_one_line_of_a_small_terminal(scope: str) -> None:
    for _, marks in LEGEND[scope]:
        for one in marks:
            assert len(", ".join(one.marks)) <= 25 and len(one.meaning) <= 50, one


def test_the_help_says_what_is_on_the_screen_where_it_was_opened() -> None:
    def text(*scopes: str) -> str:
        return "\n".join(row.text for row in help_rows(scopes))  # type: ignore[arg-type]

    assert "s/ans, s/answer" in text("replicas", "dashboard", "app")
    assert "52 × 0.9s" in text("timeline", "app")
    assert "s/ans, s/answer" not in text("timeline", "app") and "52 × 0.9s" not in text("dashboard")
    assert set(STATES)
