"""Secrets of a configuration: in which files, command lines and outputs they stand."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import stat
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kit.real import real_run
from kit.runs import make_run
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

from fault_cases import secret_runs
from fault_cases.base import Case, Outcome
from fault_cases.toys import SERVICES, stopped, toy_run
from liverl.exit_codes import ExitCode
from liverl.procs import procfs

SECRET = "sk-fault-8c1f77e2a9"
BROKEN = ("_look_at_host", "_look_at_processes", "look_at_files")  # of the sampler, in the case of an error
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
    yield Case("marked secrets: all that a whole run writes, prints and shows", _whole_run)
    yield Case("marked secrets: the report of a crash of the interface", _interface_crash)
    yield Case("marked secrets: the log and events of a backend with an error inside", _backend_error)


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


def _whole_run(folder: Path) -> Outcome:
    """The embedded default with LiteLLM: files, command lines, outputs, screens and screenshots."""
    run = real_run(folder, f"{KEY}={SECRET}", "training.total_steps=60", "embedded.turn_latency=0.3")
    try:
        run.start(env={**secret_runs.CALLER, "PATH": os.environ["PATH"]})
        run.until("trainer", "ready", 80)
        wait_until((run.run_dir / "metrics.jsonl").exists, 60, "a step")
        secrets = {**secret_runs.secrets_of(run.run_dir), "the configured key": SECRET.encode()}
        assert len(secrets) >= 4, secrets.keys()
        found = secret_runs.in_command_lines(run, secrets)
        for place, shown in (*secret_runs.outputs(run), *secret_runs.pictures(run)):
            assert shown, place
            found += [f"{place}: {name}" for name, value in secrets.items() if value in shown]
        assert list((run.run_dir / "screenshots").glob("*.svg"))
        outcome = stopped(run)
        found += secret_runs.in_files(folder, secrets)
        assert not found, "; ".join(found)
        return outcome
    finally:
        run.end()


def _interface_crash(folder: Path) -> Outcome:
    """An exception in a screen, with secrets in variables of its frames and in the environment."""
    run_dir = folder / "liverl" / "first"
    run_dir.mkdir(parents=True)
    env = clean_environment(PYTHONPATH=os.pathsep.join(p for p in sys.path if p), **secret_runs.CALLER)
    with Terminal([sys.executable, "-m", "kit.interface_toy", run_dir, "fault"], env=env) as terminal:
        terminal.wait_for("has crashed")
        terminal.wait()
        assert secret_runs.MARK.encode() not in terminal.raw
    report = run_dir / "interface-crash.log"
    assert "a fault of the interface" in report.read_text()
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    found = secret_runs.in_files(folder, {"the caller's": secret_runs.MARK.encode()})
    assert not found, found
    return Outcome()


def _backend_error(folder: Path) -> Outcome:
    """An error of the backend's own whose words hold an address with a password: in no event and no log."""
    words = f"cannot connect to http://me:{SECRET}@127.0.0.1:9/ with Bearer {SECRET}"
    (folder / "sitecustomize.py").write_text(
        "import liverl.daemon.sampler as sampler\n"
        "def broken(*args, **kwargs):\n"
        f"    raise RuntimeError({words!r})\n"
        f"for name in {BROKEN!r}:\n"
        "    assert hasattr(sampler.Sampler, name)\n"
        "    setattr(sampler.Sampler, name, broken)\n"
    )
    path = f"{folder}{os.pathsep}{os.environ['PYTHONPATH']}"
    run = make_run(folder / "run", SERVICES)
    try:
        run.start(env={"PYTHONPATH": path})
        log = run.run_dir / "backend.log"
        wait_until(lambda: "RuntimeError" in log.read_text(), 40, "the error in backend.log")
        found = secret_runs.in_files(run.run_dir, {"the secret": SECRET.encode()})
        assert not found, found
        return stopped(run)
    finally:
        run.end()
