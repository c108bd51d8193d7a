"""Text that a terminal would obey: in logs, events, names and answers, on the way to screens and commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
from kit.hostile import FORBIDDEN, KINDS, hidden_in, infect
from kit.runs import toy
from kit.screens import event, snapshot
from kit.terminal import Terminal, clean_environment
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
    for size in SIZES:
        yield Case(
            f"every kind on every screen of a terminal of {size[0]}x{size[1]}", partial(_terminal, size)
        )
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


def _terminal(size: tuple[int, int], folder: Path) -> Outcome:
    run = _run_of(folder, "".join(KINDS.values()).replace("\r", ""))
    raw = b""
    env = clean_environment(PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    argv = [sys.executable, "-m", "kit.interface_toy", run, "hostile"]
    with Terminal(argv, size=size, env=env) as terminal:
        terminal.wait_for("the last line")
        for key in ("E", "A", "V", ":", "?", "x", "q"):
            for pressed in (key, "escape"):  # an Escape and the key after it at once would be one key
                before = terminal.bytes
                terminal.press(pressed)
                wait_until(lambda seen=before: terminal.bytes > seen, what=f"an answer to {pressed}")
                _settle(terminal)  # the next key must not come together with an Escape
        raw = terminal.raw
    text = raw.decode("utf-8", "replace").replace("\ufffd", "")
    hidden = hidden_in(text)
    assert not hidden, hidden[:3]
    assert "\\u202e" in text
    return Outcome()


def _settle(terminal: Terminal) -> None:
    """Wait until nothing more was painted for a moment."""
    seen = -1
    while terminal.bytes != seen:
        seen = terminal.bytes
        time.sleep(0.3)


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
