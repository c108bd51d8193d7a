"""What a real terminal is sent, and how it is left behind: on a signal, a lost connection, a fault."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

from liverl_tui.term import terminal
from liverl_tui.term.terminal import WindowTitle, title_sequence

TESTS = Path(__file__).parents[1]


class Recorded(Terminal):
    """A terminal that also keeps what it was sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.sent = b""
        super().__init__(*arguments, **options)

    def _emulate(self) -> float | None:
        waiting = self._waiting[0][1] if self._waiting else b""
        at = super()._emulate()
        self.sent += waiting if at is not None else b""
        return at

    def everything(self) -> bytes:
        _ = self.lines
        return self.sent


def environment(state: Path, **more: str) -> dict[str, str]:
    env = clean_environment(XDG_STATE_HOME=str(state), **more)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    return env


def argv(run_dir: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "kit.interface_toy", str(run_dir), *more]


def interface(tmp_path: Path, *more: str, **env: str) -> Recorded:
    run_dir = tmp_path / "liverl" / "first"
    run_dir.mkdir(parents=True)
    return Recorded(argv(run_dir, *more), env=environment(tmp_path / "state", **env))


def pen_codes(sent: bytes) -> set[str]:
    """The colours and attributes that were asked for, one code each."""
    found = re.findall(rb"\x1b\[([\d;]*)m", sent)
    return {code for group in found for code in group.decode().split(";")}


def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with interface(tmp_path) as it:
        it.wait_for("quit")
        wait_until(lambda: b"\x1b]2;7/20 liverl/first\x07" in it.everything(), what="the window has a title")
        assert b"\x1b[?1000h" not in it.sent, "the mouse is off until it is asked for"
        it.press("m")
        it.wait_for("mouse on")
        assert b"\x1b[?1003h" in it.sent
        it.press("m")
        it.wait_for("mouse off")
        it.send("\x1a")
        it.wait_for("cannot suspend")
        it.signal(signal.SIGTERM)
        assert it.wait() == 128 + signal.SIGTERM
        last = it.everything()
        assert last.rindex(b"\x1b[?1003l") > last.rindex(b"\x1b[?1003h")
        for what in (
            b"\x1b[?1049l",
            b"\x1b[?25h",
            b"\x1b[?2004l",
            b"\x1b]2;\x07" + terminal.POP_TITLE.encode(),
        ):
            assert what in last[-200:], what
        assert "left in order" in it.text


def test_a_lost_connection_is_a_way_to_leave(tmp_path: Path) -> None:
    with interface(tmp_path, "flood") as it:
        it.wait_for("quit")
        it.hang_up()
        assert it.wait(60) == 128 + signal.SIGHUP
    assert not list(tmp_path.rglob("*crash*")), "it is no fault"


def test_a_terminal_that_takes_no_more_bytes_holds_nobody(tmp_path: Path) -> None:
    """As with a stalled connection: the process blocks in a write, and still hears the signal."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        argv(tmp_path, "flood"), stdin=slave, stdout=slave, stderr=slave, env=environment(tmp_path)
    )
    try:
        wait_until(lambda: not termios.tcgetattr(slave)[3] & termios.ECHO, what="it has the terminal")
        status = Path(f"/proc/{process.pid}/stat")
        last = [0.0, time.monotonic()]

        def stands_still() -> bool:
            state, *rest = status.read_text().rpartition(")")[2].split()
            ticks = sum(map(float, rest[10:12]))
            if ticks != last[0] or state == "R":  # it does, or would, were there a processor for it
                last[:] = [ticks, time.monotonic()]
            return time.monotonic() - last[1] > 0.5

        wait_until(stands_still, what="the terminal is full")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert termios.tcgetattr(slave)[3] == before[3], "the line modes are back"
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_a_fault_of_ours_is_one_line_and_a_file(tmp_path: Path) -> None:
    with interface(tmp_path, "fault") as it:
        assert it.wait() == 1
        log = tmp_path / "liverl/first/interface-crash.log"
        said = "".join(line for line in it.lines if line)
        assert f"run liverl/first is still running. The traceback is in {log}" in said
        assert "Traceback" not in said
        assert b"\x1b[?1049l" in it.everything()
    text = log.read_text()
    assert "RuntimeError: a fault of the interface" in text and "interface_toy.py" in text


def test_no_color_sends_no_colour_and_keeps_what_marks_a_state(tmp_path: Path) -> None:
    with interface(tmp_path, NO_COLOR="1") as it:
        it.wait_for("quit")
        it.press("T")
        it.wait_for("NO_COLOR is set")
        it.press("D")
        it.wait()
        assert pen_codes(it.everything()) <= {"0", "1", "2", "4", "7", "39", "49", ""}
        assert {"1", "7"} <= pen_codes(it.everything())


def test_a_terminal_of_sixteen_colours_gets_its_own(tmp_path: Path) -> None:
    with interface(tmp_path, TERM="xterm", COLORTERM="") as it:
        it.wait_for("ready")
        it.press("D")
        it.wait()
        codes = pen_codes(it.everything())
        assert "32" in codes and not codes & {"38", "48"}


def test_facts_behind_a_dialog_do_not_send_the_whole_screen(tmp_path: Path) -> None:
    """Textual's own way costs about 80 times what the same facts cost without a dialog."""
    run_dir = tmp_path / "liverl" / "first"
    run_dir.mkdir(parents=True)
    with Recorded(argv(run_dir, "flood"), size=(200, 50), env=environment(tmp_path / "state")) as it:

        def per_view() -> float:
            """Bytes for each new view; the window's title tells them apart."""
            before = it.everything()
            views = before.count(b"/20 liverl/first\x07")
            wait_until(
                lambda: it.everything().count(b"/20 liverl/first\x07") >= views + 25, what="views come"
            )
            after = it.sent
            return (len(after) - len(before)) / (after.count(b"/20 liverl/first\x07") - views)

        it.wait_for("#" * 40)
        alone = per_view()
        it.press("q")
        it.wait_for("Quit?")
        behind = per_view()
        assert behind < 20 * alone, (alone, behind)


def test_ctrl_z_goes_to_the_shell_and_fg_comes_back(tmp_path: Path) -> None:
    run_dir = tmp_path / "liverl" / "first"
    run_dir.mkdir(parents=True)
    env = environment(tmp_path / "state", PS1="shell> ")
    with Recorded(["/bin/bash", "--norc", "--noediting", "-i"], env=env) as it:
        it.wait_for("shell>")
        it.send(" ".join(argv(run_dir)) + "\n")
        it.wait_for("maximise")
        it.send("\x1a")
        it.wait_for("Stopped")
        it.send("fg\n")
        it.wait_for("maximise")
        it.press("D")
        it.wait_for("left in order")
        it.send("exit\n")
        it.wait()


# -- the title


def test_a_title_is_sent_when_it_changes_and_taken_back_once() -> None:
    sent: list[str] = []
    title = WindowTitle(sent.append)
    title.restore()
    for text in ("1/20 a", "1/20 a", "2/20 a"):
        title.set(text)
    title.restore()
    title.restore()
    assert sent == [
        terminal.PUSH_TITLE + "\x1b]2;1/20 a\x07",
        "\x1b]2;2/20 a\x07",
        "\x1b]2;\x07" + terminal.POP_TITLE,
    ]


@pytest.mark.parametrize("text", ["a\x07b\x1b]0;evil\x07", "x" * 1000, "\x9d0;evil\x9c", "a\nb"])
def test_nothing_in_a_title_ends_it(text: str) -> None:
    sequence = title_sequence(text)
    assert sequence.startswith("\x1b]2;") and sequence.endswith("\x07")
    assert all(c.isprintable() for c in sequence[4:-1]) and len(sequence) < 200
