"""Secrets of a configuration: in which files, command lines and outputs they stand."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fault_cases.base import Case, Outcome
from fault_cases.toys import stopped, toy_run
from liverl.exit_codes import ExitCode
from liverl.procs import procfs

SECRET = "sk-fault-8c1f77e2a9"
PORT = "infrastructure.litellm_port"
KEY = "infrastructure.anthropic_api_key"
COMMANDS = (("plan",), ("plan", "--json"), ("config", "--resolved"), ("up", "--detach", "--name", "x"))


def cases() -> Iterator[Case]:
    """A secret given as a value, by a variable, in a file, and in the environment of the caller."""
    for command in COMMANDS:
        for how in ("value", "variable", "file"):
            yield Case(f"a key given as {how}: {' '.join(command)}", partial(_printed, command, how))
    yield Case("a key given as value: the files of a new run", _files)
    yield Case("a key in the caller's environment: files and command lines of a run", _environment)


def _sets(how: str, folder: Path) -> list[str]:
    if how == "variable":
        os.environ["LIVERL_INFRASTRUCTURE__ANTHROPIC_API_KEY"] = SECRET
        return []
    if how == "file":
        (folder / "key").write_text(SECRET)
        (folder / "key").chmod(0o600)
        return ["--set", f"{KEY}=file:{folder / 'key'}"]
    return ["--set", f"{KEY}={SECRET}"]


def _printed(command: tuple[str, ...], how: str, folder: Path) -> Outcome:
    from liverl_tui.cli import main

    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        # So that `up` prints what the preflight checks found, and starts nothing.
        port = f"{PORT}={held.getsockname()[1]}"
        code = main.run([*command, "--run-root", str(folder), "--set", port, *_sets(how, folder)])
    output = out.getvalue() + err.getvalue()
    assert code == (ExitCode.PREFLIGHT if command[0] == "up" else ExitCode.OK), output[-500:]
    assert output and SECRET not in output, output[-500:]
    return Outcome()


def _files(folder: Path) -> Outcome:
    from liverl.daemon.launch import create_run
    from liverl_tui.cli.options import UpOptions
    from liverl_tui.cli.target import load_target

    sets = tuple(_sets("value", folder)[1::2])
    target = load_target(UpOptions(run_root=folder, sets=sets, name="first"))
    create_run(target.loaded, target.plan(), target.run_dir)
    _only_private(folder)
    return Outcome()


def _only_private(folder: Path) -> None:
    """A file with the secret is readable by its owner only."""
    needle = re.compile(re.escape(SECRET.encode()))
    for path in folder.rglob("*"):
        if path.is_file() and needle.search(path.read_bytes()):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert not mode & 0o077, f"{path.name} has mode {mode:o} and holds the secret"


def _environment(folder: Path) -> Outcome:
    os.environ["WANDB_API_KEY"] = SECRET
    with toy_run(folder) as run:
        for path in run.run_dir.rglob("*"):
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), path.name
        for pid in run.tagged():
            assert SECRET not in procfs.command_line(pid)
        return stopped(run)
