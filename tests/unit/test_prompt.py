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


@pytest.mark.parametrize(
    ("keys", "text"),
    [("x", "x"), ("x y", "xy"), ("backspace", ""), ("delete x", "x"), ("left x", "two linexs"), ("end x", "two linesx"),
     ("home x", "xtwo lines"), ("end backspace", "two line"), ("ctrl+w x", "two x"), ("f5 x", "x"), ("", "two lines")],
)  # fmt: skip
def test_what_is_typed_replaces_what_was_there(keys: str, text: str) -> None:
    title = TitlePrompt()
    title.paste("two\nlines")
    title.key(pressed("enter"))
    title.begin()
    assert "[two lines]" in title.shown and "type to replace" in title.shown
    bottom = Prompt("include", "two lines")
    for event in map(pressed, keys.split()):
        title.key(event)
        bottom.key(event.key, event.character)
    assert (title.text, bottom.text) == (text, text)
    title.key(pressed("enter"))
    assert title.shown == (f"/{text}" if text else "")


def test_a_pasted_text_replaces_what_was_there() -> None:
    title = TitlePrompt()
    title.paste("calls=0")
    title.begin()
    title.paste("calls=1")
    assert title.text == "calls=1"
    title.paste("2")
    assert title.text == "calls=12"
