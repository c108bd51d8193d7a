"""Text that a terminal would obey: in logs, events, names and answers, on the way to screens and commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from kit.hostile import FORBIDDEN, KINDS, hidden_in, infect
from kit.runs import toy
from kit.screens import event, snapshot
from kit.terminal import RAW_BYTES, Terminal, clean_environment
from kit.waiting import wait_until

from fault_cases.base import Case, Outcome
from fault_cases.toys import stopped, toy_run

COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("events",),
    ("events", "--json"),
    ("logs",),
    ("attach", "--plain"),
)
SIZES = ((80, 24), (200, 50))


def cases() -> Iterator[Case]:
    """Each kind of character through each command over the files of a run; a real terminal; a live run."""
    for kind in KINDS:
        for command in COMMANDS:
            yield Case(f"{kind} characters: {' '.join(command)}", partial(_command, kind, command))
    for columns, rows in SIZES:
        for part, ways in enumerate((WAYS[::2], WAYS[1::2]), 1):
            for where, walk in (("a terminal", _terminal), ("tmux", _tmux)):
                name = f"every kind on every screen of {where}, {columns}x{rows}, part {part}"
                yield Case(name, partial(walk, (columns, rows), (*ways, ("T", "P"))))
    for kind in KINDS:
        yield Case(f"a service that prints {kind} characters and fails", partial(_service, kind))


def _run_of(folder: Path, bad: str) -> Path:
    run = folder / "liverl" / "first"
    logs = run / "attempt_001" / "logs"
    logs.mkdir(parents=True)
    (logs / "trainer.1.log").write_text(f"{bad}INFO a line {bad}\n" * 20 + "the last line\n")
    state = msgspec.structs.replace(infect(snapshot(), bad, but=("run_dir", "path", "log")), run_dir=str(run))
    (run / "snapshot.json").write_bytes(msgspec.json.encode(state))
    events = [infect(event(n, "text", level, "r0"), bad) for n, level in ((1, "info"), (2, "error"))]
    (run / "events.jsonl").write_bytes(b"".join(msgspec.json.encode(e) + b"\n" for e in events))
    result = {
        "state": "failed",
        "exit_code": 1,
        "cause": {"service": bad, "text": bad, "at": 0.0},
        "steps": 3,
    }
    (run / "result.json").write_text(json.dumps({**result, "started_at": 0, "ended_at": 1, "summary": bad}))
    return run


def _command(kind: str, command: tuple[str, ...], folder: Path) -> Outcome:
    from liverl_tui.cli import main

    run = _run_of(folder, KINDS[kind])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main.run([command[0], "--run", str(run), *command[1:]])
    output = out.getvalue() + err.getvalue()
    assert output
    _clean(output.replace("\n", "").replace("\t", ""))
    return Outcome()


def _clean(output: str) -> None:
    found = FORBIDDEN.search(output)
    assert found is None, repr(output[max(0, found.start() - 30) : found.end() + 30]) if found else ""


# Every screen, dialog, prompt and list that keys reach, and the keys within it; each begins on the dashboard.
WAYS: tuple[tuple[str, ...], ...] = (
    ("1", "enter", "]", "]", "pagedown", "escape"),
    ("2", "j", "enter", "l", "escape"),
    ("2", "o", "z", "z"),
    ("3", "/", "line", "enter", "n", "N", "w", "right", "left", "escape"),
    ("3", "f", "line", "enter", "escape", "escape"),
    ("3", "F", "nothing", "enter", "escape", "escape"),
    ("3", "t", "5m", "enter", "escape"),
    ("3", "home", "z", "]", "]", "]", "[", "end", "z"),
    ("4", "!", "!", "o", "o", "/", "a", "escape", "escape"),
    ("4", "enter", "e", "pagedown", "pagedown", "end", "home", "v", "end", "v", "escape"),
    ("4", "enter", "1", "2", "3", "4", "5", "/", "answer", "enter", "n", "]", "[", "escape", "escape"),
    ("E", "/", "text", "enter", "escape", "l", "o", "f", "escape", "escape"),
    ("A", "down", "enter", "escape", "escape"),
    ("M", "j", "l", "a", "own", "escape", "g", "escape"),
    *(
        ("V", *["down"] * index, "enter", "pagedown", "pagedown", "escape", "escape")
        for index in range(0, 8, 2)
    ),
    (":", "res", "escape", "escape"),
    ("?", "pagedown", "escape"),
    ("q", "escape"),
    ("S", "escape"),
    ("Q", "escape"),
    ("x", "escape"),
    ("r", "escape", "escape"),
    ("R", "escape", "escape"),
    ("K", "escape", "escape"),
    ("U", "escape"),
    ("+", "escape"),
    ("-", "escape"),
)


class Walk:
    """Every byte that a program sends while somebody goes through its screens."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._taken = 0
        self.sent = b""

    def press(self, *keys: str) -> None:
        """Press keys one by one; an Escape and the key after it at once would be one key."""
        for key in keys:
            self._terminal.press(key)
            _settle(self._terminal)
            self.take(key)

    def take(self, what: str) -> None:
        """Take in what was sent since the last time, and check it."""
        new = self._terminal.bytes - self._taken
        assert new <= RAW_BYTES, f"{new} bytes after {what} are more than are kept"
        piece = self._terminal.raw[len(self._terminal.raw) - new :]
        self._taken += new
        self.sent += piece
        hidden = hidden_in(piece.decode("utf-8", "replace").replace("\ufffd", ""))
        assert not hidden, (what, hidden[:3])
        _clean("".join(self._terminal.lines))


def _terminal(size: tuple[int, int], ways: tuple[tuple[str, ...], ...], folder: Path) -> Outcome:
    run = folder / "liverl" / "first"
    run.mkdir(parents=True)
    env = clean_environment(PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    argv = [sys.executable, "-m", "kit.interface_toy", run, "hostile"]
    with Terminal(argv, size=size, env=env) as terminal:
        terminal.wait_for("the last line")
        walk = Walk(terminal)
        walk.take("the start")
        screens = set()
        for way in ways:
            walk.press(*way)
            screens.add(terminal.text)
            assert terminal.running, f"it ended after {way}"
    assert b"\\u202e" in walk.sent
    assert len(screens) > 3
    for picture in (run / "screenshots").glob("*.svg"):
        _clean(picture.read_text().replace("\n", "").replace("\xa0", ""))
        break
    else:
        raise AssertionError("no screenshot")
    return Outcome(note=f"{len(walk.sent)} bytes")


def _tmux(size: tuple[int, int], ways: tuple[tuple[str, ...], ...], folder: Path) -> Outcome:
    """A server of its own: what a pane shows, its title, the window's name and tmux's clipboard."""
    if shutil.which("tmux") is None:
        return Outcome(note="no tmux here")
    run = folder / "liverl" / "first"
    run.mkdir(parents=True)
    env = clean_environment(PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    (folder / "conf").write_text(
        "set -g set-clipboard on\nset -g allow-rename on\nset -g automatic-rename off\nset -g allow-passthrough on\n"
    )
    tmux = ["tmux", "-S", str(folder / "tmux"), "-f", str(folder / "conf")]

    def ask(*words: str) -> str:
        done = subprocess.run([*tmux, *words], capture_output=True, check=False, env=env)
        return done.stdout.decode("utf-8", "surrogateescape")

    def screen() -> str:
        return ask("capture-pane", "-p")

    command = shlex.join([sys.executable, "-m", "kit.interface_toy", str(run), "hostile"])
    columns, rows = map(str, size)
    subprocess.run([*tmux, "new-session", "-d", "-x", columns, "-y", rows, command], check=True, env=env)
    try:
        name = ask("display-message", "-p", "#{window_name}")
        wait_until(lambda: "the last line" in screen(), 60, "the interface")
        titles = set()
        for way in ways:
            for key in way:
                names = {
                    "enter": "Enter",
                    "escape": "Escape",
                    "pagedown": "NPage",
                    "home": "Home",
                    "end": "End",
                }
                names |= {"down": "Down", "left": "Left", "right": "Right"}
                before = screen()
                ask("send-keys", *([names[key]] if key in names else ["-l", "--", key]))
                _quiet(screen, before)
                _clean(screen().replace("\n", ""))
            titles.add(ask("display-message", "-p", "#{pane_title}"))
            assert ask("list-buffers") == "", ask("show-buffer")
            assert ask("display-message", "-p", "#{window_name}") == name
            assert ask("display-message", "-p", "#{alternate_on}").strip() == "1", way
        _clean("".join(titles).replace("\n", ""))
        return Outcome()
    finally:
        ask("kill-server")


def _quiet(screen: Callable[[], str], before: str) -> None:
    """Wait until a screen is the same for a moment."""
    while True:
        time.sleep(0.15)
        now = screen()
        if now == before:
            return
        before = now


def _settle(terminal: Terminal) -> None:
    """Wait until nothing more was painted for a moment."""
    seen = -1
    while terminal.bytes != seen:
        seen = terminal.bytes
        time.sleep(0.15)


def _service(kind: str, folder: Path) -> Outcome:
    """The last line of its log becomes the reason of its state, an event, and the cause of the run's end."""
    bad = KINDS[kind]
    line = f"raise ValueError({bad + 'it broke'!r})"
    failing = msgspec.structs.replace(toy("bad", fatal=False), argv=(sys.executable, "-c", line))
    with toy_run(folder, (toy("good", "sleep"), failing), start=False) as run:
        run.start()
        run.until("bad", lambda s: s.state == "gave_up")
        for command in ("status", "events", "logs"):
            argv = [sys.executable, "-m", "liverl_tui", command, "--run", str(run.run_dir)]
            done = subprocess.run(
                argv, capture_output=True, check=False, env={**os.environ, "PYTHONUTF8": "1"}
            )
            _clean((done.stdout + done.stderr).decode().replace("\n", "").replace("\t", ""))
        return stopped(run)
