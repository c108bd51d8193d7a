"""Dialogs by themselves: answers, lists, names, at any size, by keys and by mouse."""

from __future__ import annotations

from typing import Any

import pytest
from kit.pictures import app_screen
from kit.pilots import press, until
from kit.screens import FakeSource, settle, view
from textual.pilot import Pilot

from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.dialogs import (
    Choose,
    Confirm,
    Dialog,
    Option,
    Options,
    Question,
    Quit,
    TypeName,
    Wrapped,
)

NOTHING = "nothing yet"


async def ask(pilot: Pilot[None], dialog: Dialog[Any], *keys: str) -> Any:
    """What the dialog says after these keys; NOTHING while it stays open."""
    said = [NOTHING]
    pilot.app.push_screen(dialog, said.append)
    await settle(pilot)
    await press(pilot, *keys)
    return said[-1]


async def test_a_confirmation_by_every_key() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        for key, answer in (
            ("y", "yes"),
            ("enter", None),
            ("n", None),
            ("escape", None),
            ("ctrl+c", None),
            ("q", None),
        ):
            assert await ask(pilot, Confirm("Stop r0?", "It hurts.", "stop r0"), key) == answer, key
        assert await ask(pilot, Confirm("Kill?", "", "kill"), "up", "enter") == "yes"
        assert await ask(pilot, Confirm("Kill?", "", "kill"), "d", "s", "x", "1") == NOTHING, (
            "keys of other dialogs"
        )


async def test_no_key_of_the_interface_works_behind_a_dialog() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        assert (
            await ask(pilot, Confirm("Stop r0?", "", "stop r0"), "r", "a", "D", "T", "M", "2", "z", "tab")
            == NOTHING
        )
        assert app.source.asked == [] and not app._exit  # type: ignore[attr-defined]
        assert app.run_screen.focused_pane() == "logs"  # type: ignore[union-attr]


async def test_the_quit_dialog() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        for keys, answer in (
            (("enter",), "detach"),
            (("s",), "stop"),
            (("escape",), None),
            (("down", "enter"), "stop"),
        ):
            assert await ask(pilot, Quit("liverl/first", "step 3/20"), *keys) == answer, keys


@pytest.mark.parametrize("columns", [48, 60, 80])
async def test_the_quit_dialog_is_whole_in_a_narrow_terminal(columns: int) -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(columns, 24)) as pilot:
        await settle(pilot)
        assert await ask(pilot, Quit("liverl/first", "step 3/20")) == NOTHING
        lines = [line[1:-1].strip(" │") for line in app_screen(app).display if "│" in line]
        shown = " ".join(" ".join(lines).split())
        for words in ("the run keeps running", "liverl-tui attach shows it again", "asks for its name"):
            assert words in shown


async def test_a_list_scrolls_to_the_last_of_many() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        items = {f"replica-{i}": "replica, ready" for i in range(64)}
        assert await ask(pilot, Choose("Which?", items), "end") == NOTHING
        assert "replica-63" in app.screen.query_one(Options).text
        await press(pilot, "enter")
        assert await ask(pilot, Choose("Which?", items), "end", "up", "enter") == "replica-62"
        assert await ask(pilot, Choose("Which?", items), "q") is None


async def test_a_name_has_to_be_typed_as_it_is() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        assert await ask(pilot, TypeName("Stop?", "All of it.", "first"), *"FIRST", "enter") == NOTHING
        assert "not first" in app.screen.query_one("#hint").text
        await press(pilot, "backspace")
        assert "Type first" in app.screen.query_one("#hint").text
        await press(pilot, "ctrl+c")
        assert await ask(pilot, TypeName("Stop?", "All of it.", "q-y.1"), *"q-y.1", "enter") is True
        assert await ask(pilot, TypeName("Stop?", "All of it.", "first"), *"first", "escape") is None


async def test_the_mouse_answers_too() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        said: list[Any] = []
        app.push_screen(Quit("liverl/first", ""), said.append)
        await settle(pilot)
        await pilot.click(Options, offset=(10, 2))
        await settle(pilot)
        assert said == ["stop"]


@pytest.mark.parametrize("size", [(200, 50), (80, 24), (40, 10), (20, 6)])
async def test_every_answer_can_be_given_at_any_size(size: tuple[int, int]) -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        options = [Option(f"o{i}", "", f"option {i}") for i in range(5)]
        long = "What follows from this is explained in a sentence that does not fit into one row of anything."
        assert await ask(pilot, Question("Which?", long, options, "o0"), "end") == NOTHING
        lines = app.screen.query_one(Options)
        assert "option 4" in lines.text
        assert app.size.contains(lines.region.x, lines.region.bottom - 1) or size == (20, 6)


async def test_facts_go_on_behind_a_dialog() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await ask(pilot, Quit("liverl/first", ""))
        app.source.queue.put_nowait(view(step=13, phase="step 14/20: update"))  # type: ignore[attr-defined]
        await settle(pilot)
        assert "14/20" in app.run_screen.query_one("#header").text  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [(30, 8), (40, 12), (60, 20), (80, 24)])
async def test_the_answers_are_seen_whatever_the_text_above_takes(size: tuple[int, int]) -> None:
    """The long name of a run pushed them out of a small terminal, whose dialog then had a question alone."""
    options = [Option("yes", "y", "do it"), Option("no", "n", "leave it")]
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        app.push_screen(Question("Really?", "because of " + "a long name and " * 20, options, "no"))
        await settle(pilot)
        await until(pilot, lambda: isinstance(app.screen, Question), lambda: str(app.screen))
        await settle(pilot)
        listed = app.screen.query_one(Options)
        assert listed.size.height == 3 and listed.region.bottom <= size[1] - 1, listed.region
        assert "do it" in listed.text and "leave it" in listed.text
        why = app.screen.query(Wrapped).last()
        assert why.size.height >= 1 and (why.text.rstrip().endswith("…")) == (size[1] < 20), why.text
