"""What is typed into a pane's title; the prompt at the bottom of the logs is in ``test_logs_rows``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key

from liverl_tui.widgets.base.prompt import Prompt, TitlePrompt

KEYS = ["a", "b", "space", "left", "right", "home", "end", "backspace", "delete"]
KEYS += ["ctrl+a", "ctrl+b", "ctrl+d", "ctrl+e", "ctrl+f", "ctrl+h", "ctrl+k", "ctrl+u", "ctrl+w"]


def pressed(key: str) -> Key:
    return Key(key, " " if key == "space" else key if len(key) == 1 else None)


@given(st.lists(st.sampled_from(KEYS)))
def test_both_prompts_edit_alike(keys: list[str]) -> None:
    bottom, title = Prompt("search"), TitlePrompt()
    title.begin()
    for event in map(pressed, keys):
        assert bottom.key(event.key, event.character)
        before = title.text
        assert title.key(event) == ("changed" if title.text != before else "nothing")
        assert event._no_default_action
    assert (title.text, title.cursor) == (bottom.text, bottom.cursor)
    assert (
        title.shown == f"/{title.text[: title.cursor]}▏{title.text[title.cursor :]} Enter applies, Esc clears"
    )


@pytest.mark.parametrize(
    ("key", "did", "shown"),
    [("enter", "kept", "/ab"), ("escape", "cancelled", ""), ("ctrl+c", "nothing", None)],
)
def test_how_typing_ends(key: str, did: str, shown: str | None) -> None:
    prompt = TitlePrompt()
    prompt.begin()
    for character in "ab":
        prompt.key(pressed(character))
    event = pressed(key)
    assert prompt.key(event) == did
    assert prompt.open is (shown is None), "what is not for a line goes on to the bindings"
    assert event._no_default_action is (shown is not None)
    assert shown is None or prompt.shown == shown


def test_it_goes_on_at_its_end() -> None:
    prompt = TitlePrompt()
    prompt.paste("two\nlines")
    prompt.cursor = 0
    prompt.begin()
    prompt.key(pressed("x"))
    assert prompt.text == "two linesx"
