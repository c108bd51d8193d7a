"""Notifications of the desktop through the terminal."""

from __future__ import annotations

import pytest

from liverl_tui.term.desktop import TEXT_MOST, form, sequence


@pytest.mark.parametrize(
    ("setting", "env", "expected"),
    [
        ("auto", {"TERM": "xterm-256color"}, "osc9"),
        ("auto", {"TERM": "xterm-kitty"}, "osc9"),
        ("auto", {"TERM": "rxvt-unicode-256color"}, "osc777"),
        ("auto", {"TERM": "foot"}, "osc777"),
        ("auto", {"TERM": "xterm-256color", "VTE_VERSION": "7600"}, "osc777"),
        ("auto", {"TERM": "linux"}, "off"),
        ("osc9", {"TERM": "dumb"}, "off"),
        ("osc9", {}, "off"),
        ("osc9", {"TERM": "foot"}, "osc9"),
        ("osc777", {"TERM": "xterm"}, "osc777"),
        ("off", {"TERM": "xterm"}, "off"),
    ],
)
def test_the_form_follows_the_terminal(setting: str, env: dict[str, str], expected: str) -> None:
    assert form(setting, env) == expected
    assert bool(sequence("x", setting, env)) == (expected != "off")


def test_the_sequences() -> None:
    env = {"TERM": "xterm"}
    assert sequence("9;4 done", "osc9", env) == "\x1b]9;liverl-tui: 9;4 done\x07"
    assert sequence("a;b", "osc777", env) == "\x1b]777;notify;liverl-tui;a,b\x07"
    in_tmux = sequence("a", "osc9", env | {"TMUX": "/tmp/x,1,0"})
    assert in_tmux == "\x1bPtmux;\x1b\x1b]9;liverl-tui: a\x07\x1b\\"
    assert sequence("a", "osc9", env | {"STY": "1.x"}) == "\x1bP\x1b]9;liverl-tui: a\x07\x1b\\"


def test_a_text_cannot_end_the_sequence_or_be_endless() -> None:
    told = sequence("a\x07b\x1b\\c\u009cd\n" + "x" * 9999, "osc9", {"TERM": "xterm"})
    inner = told.removeprefix("\x1b]9;liverl-tui: ").removesuffix("\x07")
    assert inner.isprintable() and len(inner) == TEXT_MOST
