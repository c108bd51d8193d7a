"""Commands of callers with closed streams, stopped backends, and clocks that were set."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.exit_codes import ExitCode
from liverl.procs import procfs
from liverl.rundir.layout import RunDir

MAIN = f"{shlex.quote(sys.executable)} -m liverl_tui.cli.main"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=90, check=False)


def stands(pid: int) -> bool:
    proc = procfs.read_proc(pid)
    return proc is not None and proc.state == "T"


def cli(*args: object) -> subprocess.CompletedProcess[str]:
    return shell(f"{MAIN} {shlex.join(map(str, args))} </dev/null")


@pytest.mark.parametrize(
    ("closed", "names", "redirect"),
    [
        (">&-", "stdout is closed", ">/dev/null"),
        ("2>&-", "stderr is closed", "2>/dev/null"),
        ("<&- >&-", "stdout is closed", ">/dev/null"),
    ],
)
@pytest.mark.parametrize("command", ["ls", "plan", "up --detach --name x"])
def test_a_closed_output_is_named_and_nothing_is_done(
    command: str, closed: str, names: str, redirect: str, own_state: Path
) -> None:
    refused = shell(f"{MAIN} {command} {closed}")
    said = refused.stdout + refused.stderr
    assert refused.returncode == ExitCode.USAGE
    assert f"liverl-tui: {names}" in said and redirect in said and said.count("\n") == 1
    assert not list(own_state.rglob("plan.json"))


def test_with_both_outputs_closed_the_exit_code_is_left() -> None:
    assert shell(f"{MAIN} ls >&- 2>&-").returncode == ExitCode.USAGE


def test_a_closed_input_is_an_empty_one(own_state: Path) -> None:
    listed = shell(f"{MAIN} ls <&-")
    assert listed.returncode == 0 and "Traceback" not in listed.stderr
    # A question that nobody can answer.
    asked = shell(f"{MAIN} up --profile h200-smoke --name x <&-")
    assert "Traceback" not in asked.stderr
    assert asked.returncode in (ExitCode.USAGE, ExitCode.PREFLIGHT) and asked.stderr
    assert not list(own_state.rglob("plan.json"))


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    run = ending(make_run(tmp_path, [toy("worker", "sleep")]))
    run.start()
    run.until("worker", "ready")
    return run


@pytest.mark.parametrize(
    "command",
    [
        ("up", "--detach", "--run"),
        pytest.param(("stop", "--run"), marks=pytest.mark.slow),
        pytest.param(("restart", "worker", "--run"), marks=pytest.mark.slow),
    ],
)
def test_a_stopped_backend_is_named(run: ToyRun, command: tuple[str, ...]) -> None:
    pid = run.backends[-1]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: stands(pid), what="the backend's stop")
        refused = cli(*command, run.run_dir)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert refused.returncode not in (0, None), refused.stdout
    assert f"(pid {pid}) does not respond: a signal such as SIGSTOP" in refused.stderr
    assert f"kill -CONT {pid}" in refused.stderr
    assert "attached" not in refused.stderr
    wait_until(lambda: not stands(pid), what="the backend's continuation")
    assert cli("up", "--detach", "--run", run.run_dir).returncode == 0


@pytest.mark.parametrize("known", [True, False], ids=["monotonic", "before 0.2"])
def test_a_run_does_not_end_before_it_began(run: ToyRun, known: bool) -> None:
    """The clock was set back by an hour while no backend ran: the journal's times are in the future."""
    run.kill_backend()
    journal = RunDir(run.run_dir).journal
    lines = journal.read_text().splitlines()
    record = json.loads(lines[0])
    kept = ["k", "n", "era", *(["monotonic"] if known else [])]
    began = time.time() + 3600
    lines[0] = json.dumps({"at": began, **{name: record[name] for name in kept}})
    journal.write_text("\n".join(lines) + "\n")
    run.start()
    run.command("stop", now=True)
    result = run.result()
    assert result.started_at == began
    lasted = result.ended_at - result.started_at
    assert 0 < lasted < 3000 if known else lasted == 0
