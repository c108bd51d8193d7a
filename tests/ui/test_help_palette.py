"""The help screen and the command palette: everything that the table of keys has, and nothing else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.mentions import parse_command_line
from kit.pilots import press, until
from kit.screens import FakeSource, settle, view
from textual.pilot import Pilot
from textual.widgets import Input

from liverl_tui.app.app import LiverlApp
from liverl_tui.keys.bindings import KEYS, SCOPE_TITLES, keys_of
from liverl_tui.keys.questions import QUESTIONS
from liverl_tui.screens.dialogs import Confirm
from liverl_tui.screens.entries import Entry, entries, rank
from liverl_tui.screens.help import (
    QUESTIONS_TITLE,
    HelpPane,
    HelpScreen,
    help_rows,
    matching,
    question_rows,
    wrapped,
)
from liverl_tui.screens.palette import Entries, Palette
from liverl_tui.screens.runs import RunsScreen
from liverl_tui.screens.shell_entries import shell_commands, shell_entries
from liverl_tui.text.words import GLYPH
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.log.pane import LogsPane


async def type_in(pilot: Pilot[None], text: str) -> None:
    """As if it had been typed, only quicker."""
    pilot.app.screen.query_one(Input).value = text
    await settle(pilot)


# -- help


def test_help_has_every_key_and_every_sign() -> None:
    lines = [row.text for row in help_rows(("replicas", "dashboard", "app"))]
    for key in KEYS:
        assert any(key.help in line and key.label in line and key.name in line for line in lines), key
    for state, glyph in GLYPH.items():
        assert any(glyph in line and state.replace("_", " ") in line for line in lines)
    titles = [line for line in lines if line in SCOPE_TITLES.values()]
    assert titles[:3] == ["Replicas pane", "Dashboard", "Everywhere"]
    assert lines[0] == QUESTIONS_TITLE and lines.count(QUESTIONS_TITLE) == 1
    assert sorted(titles) == sorted({SCOPE_TITLES[k.scope] for k in KEYS}), "each scope once"
    assert any("attach" in line for line in lines) and any("Ctrl-C" in line for line in lines)


@pytest.mark.parametrize("key", ["question_mark", "f1"])
async def test_help_begins_with_where_one_is_and_goes_away_again(key: str) -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "2", key)
        assert isinstance(app.screen, HelpScreen)
        lines = app.screen.query_one(HelpPane).text.splitlines()
        assert [line for line in lines if line and line[0] != " "][:2] == [QUESTIONS_TITLE, "Replicas pane"]
        await press(pilot, key)
        assert len(app.screen_stack) == 1 and not app._exit
        for way in ("escape", "q"):
            await press(pilot, key, way)
            assert len(app.screen_stack) == 1 and not app._exit, way


async def test_help_of_another_screen_begins_with_its_keys() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "K", "question_mark")
        lines = app.screen.query_one(HelpPane).copy_all().splitlines()
        titles = [line for line in lines if line and line[0] != " "]
        assert "Disk" in titles[:2] and titles.index(QUESTIONS_TITLE) > titles.index("Everywhere")


def test_each_question_is_one_line_of_a_small_terminal_and_its_keys_exist() -> None:
    for row in question_rows():
        assert len(row.text.rstrip()) <= 80 and "{" not in row.text, row.text
    assert len({question.asked for question in QUESTIONS}) == len(QUESTIONS)
    for question in QUESTIONS:
        assert question.key.name in question.answer or "liverl-tui" in question.answer, question


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("report", "A report for a colleague?"),
        ("csv", "As a file?"),
        ("why reward", "Why reward 0?"),
        ("last run", "Better than the last run?"),
        ("checkpoints", "Disk and checkpoints?"),
        ("learning", "Is it learning?"),
        ("slow", "Which replica is slow?"),
        ("who", "Who holds a GPU?"),
        ("fail", "Why did it fail?"),
    ],
)
async def test_the_palette_finds_an_answer_by_the_words_of_the_question(typed: str, found: str) -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "colon")
        await type_in(pilot, typed)
        assert found in app.screen.query_one(Entries).text


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("report", "liverl-tui report /runs/liverl/first --html -o report.html"),
        ("checkpoint export", "liverl-tui checkpoints export /runs/liverl/first STEP"),
    ],
)
async def test_what_only_a_shell_does_is_copied_and_said(
    typed: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = LiverlApp(FakeSource(view=view()))
    copied: list[str] = []
    monkeypatch.setattr(app.navigation, "copy_text", copied.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        found = rank(typed, [*entries(app), *shell_entries(app)])[0]
        assert found.about == f"in a shell: {line}"
        await press(pilot, "colon")
        await type_in(pilot, "export")
        assert "export a checkpoint" in app.screen.query_one(Entries).text
        await type_in(pilot, typed)
        await press(pilot, "enter")
        await until(pilot, lambda: copied == [line])
        assert any(line in toast.message for toast in app.toasts())


def test_commands_for_a_shell_are_accepted_as_they_are_copied() -> None:
    for name, line in shell_commands("liverl/base"):
        parse_command_line(line.replace("STEP", "4"))
        assert name.islower()


async def test_a_question_leads_to_its_screen_and_never_stands_above_a_command() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        found = rank("disk", entries(app))
        assert found[0].name == "disk" and not found[0].asked and any(entry.asked for entry in found[1:])
        await press(pilot, "colon")
        await type_in(pilot, "better than")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen))


async def test_help_scrolls_by_every_key_to_its_ends() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "question_mark")
        pane = app.screen.query_one(HelpPane)
        first = pane.text
        for there, back in (
            ("down", "up"),
            ("j", "k"),
            ("pagedown", "pageup"),
            ("ctrl+f", "ctrl+b"),
            ("end", "home"),
            ("G", "g"),
        ):
            await press(pilot, there)
            assert pane.text != first, there
            await press(pilot, back)
            assert pane.text == first, back
        await press(pilot, "end")
        last = list(help_rows(()))[-1].text[:60].strip()
        assert last in pane.text.splitlines()[-1]


async def test_help_can_be_filtered() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "question_mark", "slash")
        await type_in(pilot, "clipboard ")
        await press(pilot, "q")
        pane = app.screen.query_one(HelpPane)
        assert "no line matches" in pane.text, "while one types, q is a letter"
        await type_in(pilot, "screenshot")
        shown = [line.split() for line in pane.text.splitlines()[1:] if line]
        assert shown[0] == ["Everywhere"] and shown[1][:2] == ["P", "screenshot"] and len(shown) == 2
        await press(pilot, "enter")
        await press(pilot, "j", "k")
        assert "screenshot" in pane.text and "quit" not in pane.text, "Enter goes on reading what is left"
        await press(pilot, "slash", "escape")
        assert len(pane.text.splitlines()) > 20 and isinstance(app.screen, HelpScreen)


async def test_escape_takes_the_filter_of_the_help_away_before_it_closes_it() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "question_mark", "slash")
        await type_in(pilot, "screenshot")
        await press(pilot, "enter")
        await press(pilot, "escape")
        assert isinstance(app.screen, HelpScreen)
        assert len(app.screen.query_one(HelpPane).text.splitlines()) > 20
        assert not app.screen.query_one("#filter").display
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1 and not app._exit
        await press(pilot, "question_mark", "slash")
        await type_in(pilot, "screenshot")
        await press(pilot, "enter")
        await press(pilot, "q")
        assert len(app.screen_stack) == 1 and not app._exit, "its own key closes it at once"


async def test_help_tells_where_a_history_ends() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "question_mark", "slash")
        await type_in(pilot, "histor")
        text = " ".join(app.screen.query_one(HelpPane).text.split())
        assert "History bars end at the right with the newest sample" in text


@given(st.integers(20, 200))
def test_wrapping_loses_nothing(width: int) -> None:
    rows = list(help_rows(()))
    lines = list(wrapped(rows, width))
    assert "".join("".join(r.text for r in rows).split()) == "".join("".join(r.text for r in lines).split())
    if width >= 60:
        assert all(len(row.text) <= width for row in lines)


@given(st.text(max_size=8))
def test_what_a_filter_leaves_has_the_text_in_it(text: str) -> None:
    rows = list(help_rows(()))
    found = matching(rows, text)
    wanted = text.strip().lower()
    assert all(row in rows for row in found)
    assert all(wanted in row.text.lower() for row in found if row.text.startswith("  ")) or not wanted


async def test_the_bar_names_no_key_that_does_something_else_here() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 24)) as pilot:
        await settle(pilot)
        assert "q quit" in app.screen.query_one(KeyBar).text
        await press(pilot, "question_mark")
        bar = app.screen.query_one(KeyBar).text
        assert "q quit" not in bar and "^c quit" in bar and "Esc close" in bar


@pytest.mark.parametrize("size", [(40, 10), (200, 50)])
async def test_help_and_palette_fit_any_size(size: tuple[int, int]) -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await press(pilot, "question_mark", "colon")
        assert isinstance(app.screen, Palette)
        lines = app.screen.query_one(Entries)
        assert lines.region.bottom <= size[1] and "close" in lines.text


# -- palette


@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
async def test_the_palette_runs_what_is_chosen(key: str) -> None:
    source = FakeSource(view=view())
    app = LiverlApp(source)
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, key)
        await type_in(pilot, "add rep")
        await press(pilot, "enter")
        await until(pilot, lambda: source.asked)
        assert source.asked == [("scale", {"delta": 1})] and app.screen is app.run_screen
        await press(pilot, key)
        await type_in(pilot, "maximise")
        await press(pilot, "enter")
        await until(pilot, lambda: app.screen.maximised == "logs")  # type: ignore[attr-defined]


async def test_the_palette_names_services_and_themes() -> None:
    source = FakeSource(view=view())
    app = LiverlApp(source, theme="dark")
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "colon")
        await type_in(pilot, "theme light")
        await press(pilot, "enter")
        await until(pilot, lambda: app.theme == "liverl-light")
        await press(pilot, "colon")
        await type_in(pilot, "restart r1")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await press(pilot, "y")
        assert source.asked == [("restart", {"service": "r1"})]
        await press(pilot, "colon")
        await type_in(pilot, "logs proxy")
        await press(pilot, "enter")
        await until(pilot, lambda: app.screen.query_one(LogsPane).tab().name == "proxy")
        await press(pilot, "colon")
        await type_in(pilot, "service trainer")
        await press(pilot, "enter")
        await until(pilot, lambda: app.commands.selected_service() == "trainer")


async def test_the_palette_moves_by_arrows_and_escape_does_nothing() -> None:
    source = FakeSource(view=view())
    app = LiverlApp(source)
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "colon")
        lines = app.screen.query_one(Entries)
        names = [e.name for e in entries(app)]
        for key, name in (("down", names[1]), ("ctrl+n", names[2]), ("up", names[1]), ("ctrl+p", names[0])):
            await press(pilot, key)
            assert lines.chosen is not None and lines.chosen.name == name, key
        (marked,) = [row for row in lines.rows if row.cursor]
        assert names[0] in marked.text
        await press(pilot, "pagedown")
        assert lines.chosen is not None and lines.chosen.name not in names[:3]
        await press(pilot, *"zzzz", "enter")
        assert isinstance(app.screen, Palette) and "no command matches" in lines.text
        assert "did you mean" not in lines.text
        await press(pilot, "ctrl+u", *"scal", "space", "3")
        assert "no command matches; did you mean scale?" in lines.text
        await press(pilot, "ctrl+u")
        await press(pilot, "escape")
        assert app.screen is app.run_screen and source.asked == []


async def test_the_palette_offers_what_works_here_and_now() -> None:
    app = LiverlApp(FakeSource(view=view()), readonly=True)
    async with app.run_test() as pilot:
        await settle(pilot)
        names = {e.name for e in entries(app)}
        changing = {k.label for k in KEYS if k.changes}
        assert not names & changing and not any(n.startswith(("stop ", "restart ", "remove ")) for n in names)
        assert {"service trainer", "theme ansi", "help"} <= names
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "2")
        found = entries(app)
        labels = {k.label for s in ("replicas", "dashboard", "app") for k in keys_of(s)}  # type: ignore[arg-type]
        of_recordings = {label for label in labels if "demo" in label}
        assert labels - of_recordings - {"commands"} <= {e.name for e in found}
        assert of_recordings and not of_recordings & {e.name for e in found}, "this run is none"
        assert len({e.name for e in found}) == len(found)
        assert not any(e.name == "start r0" for e in found), "it runs"


async def test_enter_right_behind_the_letters_means_what_was_typed() -> None:
    """Letters and Enter can come in one piece: pasted, typed ahead, or over a slow line."""
    source = FakeSource(view=view())
    app = LiverlApp(source, theme="dark")
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "colon")
        app.screen.query_one(Input).value = "theme light"
        app.screen.action_pick()  # type: ignore[attr-defined]
        await until(pilot, lambda: app.theme == "liverl-light")
        await press(pilot, "colon", "down")
        chosen = app.screen.query_one(Entries).chosen
        app.screen.query_one(Entries).look_for("")
        assert app.screen.query_one(Entries).chosen == chosen, "the cursor stays while nothing is typed"


def entry(name: str, about: str = "") -> Entry:
    return Entry(name, about, lambda: None)


def test_ranking() -> None:
    found = [
        entry("metrics", "Charts"),
        entry("restart proxy"),
        entry("remove replica"),
        entry("restart r1", "it"),
    ]
    assert [e.name for e in rank("", found)] == [e.name for e in found]
    assert rank("rest", found)[0].name == "restart proxy"
    assert rank("rr1", found)[0].name == "restart r1"
    assert [e.name for e in rank("charts", found)] == ["metrics"], "found by its explanation"
    assert rank("no such thing", found) == []


@given(st.text(max_size=60))
def test_any_query_is_answered_quickly(query: str) -> None:
    found = [entry(k.label, k.help) for k in KEYS] + [entry(f"restart replica-{i}") for i in range(8)]
    assert all(e in found for e in rank(query, found))


def test_a_query_that_could_match_in_many_ways_is_quick() -> None:
    found = [entry(f"restart replica-{i}") for i in range(64)]
    began = time.process_time()
    rank("r" * 200, found)
    rank("eeaaia", found)
    assert time.process_time() - began < 2.0
