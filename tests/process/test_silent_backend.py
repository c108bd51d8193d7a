"""What is said of a run whose backend runs and answers nobody, and of one whose backend died: never nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.processes import stop_process
from kit.runs import ToyRun, make_run, toy

from liverl.control.blocking import snapshot
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyRun]:
    """A run whose backend a signal has stopped."""
    run = make_run(tmp_path_factory.mktemp("silent"), [toy("worker", "sleep")])
    run.start()
    try:
        run.until("worker", "ready")
        RunDir(run.run_dir).snapshot.write_bytes(encode_snapshot(snapshot(run.run_dir)))
        stop_process(run.backends[-1])
        try:
            yield run
        finally:
            os.kill(run.backends[-1], signal.SIGCONT)
    finally:
        run.end()


def silence(run: ToyRun) -> str:
    pid = run.backends[-1]
    why = f"(pid {pid}) does not respond: a signal such as SIGSTOP has stopped its process"
    return f"{why}. To continue it: kill -CONT {pid}"


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (("status", "--run"), 1, "This is the last state that its backend wrote, "),
        (("status", "--json", "--run"), 1, '"live": false'),
        (("status", "--json", "--watch", "--run"), 1, '"live": false'),
        (("status", "--prometheus", "--run"), 1, "} 0.0"),
        (("report",), 0, "whether it still runs is not known"),
        (("trials", "ls"), 0, ""),
        (("timeline",), 4, ""),
        (("nodes",), 0, "waits for no other hosts"),
        (("doctor",), 1, "its backend does not answer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_reader_says_that_the_backend_does_not_answer_and_what_its_files_know(
    stopped: ToyRun, command: tuple[str, ...], code: int, says: str
) -> None:
    said = run_cli(*command, stopped.run_dir)
    assert said.returncode == code, said
    assert silence(stopped) in " ".join((said.stderr + said.stdout).split())
    assert says in said.stdout


def test_a_script_gets_the_state_and_why_it_is_old(stopped: ToyRun) -> None:
    told = json.loads(run_cli("status", "--json", "--run", stopped.run_dir).stdout)
    assert (told["live"], told["state"], told["services"][0]["state"]) == (False, "running", "ready")
    assert silence(stopped) in told["phase"]
    (listed,) = json.loads(run_cli("ls", "--json", "--run-root", stopped.run_dir.parent.parent).stdout)
    assert listed["state"] == "live" and f"kill -CONT {stopped.backends[-1]}" in listed["cause"]


def test_the_report_of_a_run_whose_backend_was_killed(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    """It said that there was none."""
    run = ending(make_run(tmp_path, [toy("worker", "sleep")]))
    run.start()
    run.until("worker", "ready")
    run.kill_backend()
    said = run_cli("report", run.run_dir)
    assert said.returncode == 0, said
    first, *lines = said.stdout.splitlines()
    assert first.startswith("# tests/toy, attempt 1: backend died ")
    assert "- it has no result. If its backend said why it ended, `backend.log` has it" in lines
    assert f"- its services may still be running; to continue: liverl-tui up --run {run.run_dir}" in lines
    assert f"- what its logs say: `liverl-tui doctor {run.run_dir}`" in lines
    page = run_cli("report", run.run_dir, "--html")
    assert page.returncode == 0 and "backend died" in page.stdout
    other = run_cli("report", run.run_dir, "--attempt", "7")
    assert other.returncode == 1
    assert "attempt 7 of run tests/toy has no report: there is no such attempt (there are: 1)" in other.stderr
