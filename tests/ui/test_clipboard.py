"""Copying: by which way, how much, and what is said about it."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.pilots import press, until
from kit.screens import FakeSource, settle, view

from liverl_tui.app.app import LiverlApp
from liverl_tui.term import clipboard
from liverl_tui.term.clipboard import OSC52_MOST, amount, copy, osc52

TEXT = "10:00:01 r0\tloading weights 97%\n\x1b[31mß→\n"
COPIED = "10:00:01 r0\tloading weights 97%\n\\x1b[31mß→\n"


@pytest.fixture(autouse=True)
def no_multiplexer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "STY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(clipboard, "TMUX_S", 60.0)  # a busy machine is no reason to do without tmux


@pytest.fixture
def tmux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """A tmux server of our own, and we are in it. Gives what begins a command to it."""
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("no tmux here")
    socket = str(tmp_path / "tmux.sock")
    command = [program, "-S", socket, "-f", "/dev/null"]
    subprocess.run([*command, "new-session", "-d", "-x", "80", "-y", "24", "sleep 60"], check=True)
    monkeypatch.setenv("TMUX", f"{socket},{os.getpid()},0")
    yield command
    subprocess.run([*command, "kill-server"], check=False)


def buffer(tmux: list[str]) -> str:
    return subprocess.run([*tmux, "save-buffer", "-"], capture_output=True, text=True, check=False).stdout


def test_in_tmux_its_buffer_holds_the_text(tmux: list[str], tmp_path: Path) -> None:
    sent: list[str] = []
    done = copy(TEXT, sent.append, tmp_path, in_run=True)
    assert buffer(tmux) == COPIED
    assert done.ok and "tmux buffer" in done.words and "2 lines (46 B)" in done.words
    assert not sent, "the terminal gets it from tmux"


def test_a_tmux_that_is_gone_is_not_believed(tmux: list[str], tmp_path: Path) -> None:
    subprocess.run([*tmux, "kill-server"], check=True)
    sent: list[str] = []
    done = copy("x", sent.append, tmp_path, in_run=True)
    assert sent == [osc52("x")] and "OSC 52" in done.words


def test_a_tmux_that_does_not_know_how_to_pass_it_on_still_takes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "tmux"
    fake.write_text('#!/bin/sh\n[ "$2" = -w ] && exit 1\ncat > "$0.got"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("TMUX", "/some/socket,1,0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert clipboard.to_tmux(TEXT) == "to the tmux buffer"
    assert (tmp_path / "tmux.got").read_text() == TEXT


def test_outside_of_tmux_the_terminal_is_asked_and_nothing_is_promised(tmp_path: Path) -> None:
    sent: list[str] = []
    done = copy(TEXT, sent.append, tmp_path, in_run=True)
    (sequence,) = sent
    assert sequence.startswith("\x1b]52;c;") and sequence.endswith("\x07")
    assert base64.b64decode(sequence[7:-1]).decode() == COPIED
    assert done.words == (
        "sent 2 lines (46 B) to the terminal's clipboard (OSC 52; the terminal must allow it)"
    )


def test_more_than_a_terminal_takes_goes_into_a_file(tmp_path: Path) -> None:
    text = "x" * (OSC52_MOST + 1)
    done = copy(text, lambda _: pytest.fail("nothing is sent"), tmp_path, in_run=True)
    path = tmp_path / "copied.txt"
    assert done.ok and str(path) in done.words and path.read_text() == text
    assert path.stat().st_mode & 0o077 == 0, "a log can hold a secret"


def test_where_the_run_cannot_be_written_the_state_directory_takes_it(
    tmp_path: Path, own_state: Path
) -> None:
    done = copy("x" * 80_000, lambda _: None, tmp_path / "p" / "n", in_run=False)
    assert str(own_state / "liverl/interface/p/n/copied.txt") in done.words


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path, own_state: Path) -> None:
    (own_state / "liverl").mkdir(parents=True, exist_ok=True)
    (own_state / "liverl" / "interface").write_text("a file where a directory should be")
    done = copy("x" * 80_000, lambda _: None, tmp_path / "p" / "n", in_run=False)
    assert not done.ok and "not copied" in done.words


def test_gnu_screen_swallows_osc_52(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STY", "1.pts-0")
    done = copy("x", lambda _: pytest.fail("nothing is sent"), tmp_path, in_run=True)
    assert "screen" in done.words and (tmp_path / "copied.txt").read_text() == "x"


@given(st.text(max_size=300))
def test_what_the_terminal_gets_is_the_text(text: str) -> None:
    sequence = osc52(text)
    assert sequence is not None and sequence.isascii() and sequence.count("\x1b") == 1
    assert base64.b64decode(sequence[7:-1]) == text.encode(errors="replace")


def test_the_limit_counts_bytes() -> None:
    assert osc52("ß" * (OSC52_MOST // 2)) is not None
    assert osc52("ß" * (OSC52_MOST // 2 + 1)) is None
    assert len(osc52("x" * OSC52_MOST) or "") < 100_010


@pytest.mark.parametrize(
    ("text", "words"), [("a", "1 line (1 B)"), ("a\nb\n", "2 lines (4 B)"), ("é" * 600, "1 line (1 KB)")]
)
def test_amounts(text: str, words: str) -> None:
    assert amount(text) == words


async def test_y_copies_the_row_and_capital_y_the_pane(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken: list[str] = []
    monkeypatch.setattr(clipboard, "to_tmux", lambda text: taken.append(text) or "to a test")
    app = LiverlApp(FakeSource(tmp_path, view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        for number, key in enumerate(("y", "Y"), 1):
            await press(pilot, *(("2", "down", key) if key == "y" else (key,)))
            await until(
                pilot,
                lambda n=number: sum("to a test" in one.message for one in app._notifications) >= n,  # type: ignore[misc]
            )
    row, pane = taken
    assert row.startswith("r1") and "\n" not in row
    assert "Replicas" in pane and "r0" in pane and row.split()[0] in pane


async def test_an_empty_pane_has_nothing_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipboard, "to_tmux", lambda text: pytest.fail("nothing is copied"))
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        app.navigation.copy_text("  \n")
        await settle(pilot)
        assert "nothing to copy" in next(iter(app._notifications)).message
