"""A second look right before the trainer starts: real processes, ports and disks under the real backend."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.looked_at import FIRST, gated, open_gate
from kit.ports import free_port
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.model import Event
from liverl.preflight.record import read
from liverl.rundir.layout import RunDir

Ending = Callable[[ToyRun], ToyRun]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def stranger(port: int) -> Iterator[Callable[[], int]]:
    """Starts a process of nobody's run that listens on ``port``; returns its pid."""
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
        "print('listening', flush=True); sys.stdin.read()"
    )
    started: list[subprocess.Popen[str]] = []

    def start() -> int:
        env = {name: value for name, value in os.environ.items() if not name.startswith("LIVERL_RUN")}
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "listening\n"
        return process.pid

    yield start
    for process in started:
        process.communicate()


def told(run: ToyRun) -> list[Event]:
    return [event for event in run.events() if event.kind == "preflight"]


def trainer_logs(run: ToyRun) -> list[Path]:
    return list(run.run_dir.glob("attempt_*/logs/trainer*"))


def test_a_port_taken_meanwhile_ends_the_attempt(
    tmp_path: Path, ending: Ending, port: int, stranger: Callable[[], int]
) -> None:
    run = ending(gated(tmp_path, port))
    run.start()
    run.until("trainer", "waiting")
    pid = stranger()
    open_gate(run)
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 3)
    assert result.cause is not None and result.cause.service == "trainer"
    assert result.cause.text.startswith(f"was not started: port {port} (trainer): held by pid {pid} ")
    assert not trainer_logs(run), "no process of the trainer was started"
    found = read(RunDir(run.run_dir))
    assert found is not None and found.checks == FIRST and found.second_look is not None
    assert {check.id: check.status for check in found.second_look.checks} == {
        "ports": "fail", "run-directory": "ok",
    }  # fmt: skip
    assert found.second_look.attempt == 1


def test_the_next_attempt_looks_again(
    tmp_path: Path, ending: Ending, port: int, stranger: Callable[[], int]
) -> None:
    run = ending(gated(tmp_path, port))
    open_gate(run)
    run.start()
    assert run.result().state in ("done", "stopped")
    pid = stranger()
    run.start(resume=True)
    result = run.result()
    assert (result.exit_code, result.attempt) == (3, 2)
    assert result.cause is not None and f"pid {pid} " in result.cause.text
    found = read(RunDir(run.run_dir))
    assert found is not None and found.second_look is not None and found.second_look.attempt == 2


def test_a_disk_filled_meanwhile_ends_the_attempt(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare, to mount a small tmpfs")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a kernel that lets root have a mount namespace")
    inside = Path(__file__).with_name("second_look_inside.py")
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, str(inside), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    state, code, service, text, trainers = json.loads(done.stdout.splitlines()[-1])
    assert (state, code, service, trainers) == ("failed", 3, "trainer", 0)
    assert text.startswith(f"was not started: run directory: {tmp_path}/disk/") and text.endswith(
        "MiB free; at least 64 MiB are required"
    )


def test_where_all_is_well_nothing_is_told(tmp_path: Path, ending: Ending, port: int) -> None:
    run = ending(gated(tmp_path, port))
    open_gate(run)
    run.start()
    assert run.result().exit_code != 3
    assert not told(run) and trainer_logs(run)
    found = read(RunDir(run.run_dir))
    assert found is not None and found.second_look is not None
    assert [(check.name, check.status) for check in found.second_look.checks] == [
        (f"port {port} (trainer)", "ok"),
        ("run directory", "ok"),
    ]


def test_what_cannot_be_looked_at_is_told_and_no_ok(tmp_path: Path, ending: Ending) -> None:
    run = ending(gated(tmp_path))
    run.start()
    run.until("trainer", "waiting")
    (run.run_dir / "config.yaml").write_text("training: {total_steps: no}\n")
    open_gate(run)
    assert run.result().exit_code != 3, "what is not known ends no run"
    (event,) = told(run)
    assert event.level == "warning" and event.service == "trainer"
    assert event.text.startswith("second look: the run's configuration cannot be read: ")
    found = read(RunDir(run.run_dir))
    assert found is not None and found.second_look is not None
    assert [check.status for check in found.second_look.checks] == ["skipped"]


def test_a_look_that_hangs_holds_up_neither_commands_nor_a_stop(tmp_path: Path, ending: Ending) -> None:
    run = ending(gated(tmp_path))
    hangs, hanging = tmp_path / "hangs", tmp_path / "hangs.blocked"
    hangs.touch()
    open_gate(run)
    run.start(env={"LIVERL_BLOCK_AT": f"second_look:{hangs}"})
    wait_until(hanging.exists, what="the look")
    assert run.service("trainer").state == "preparing", "commands are answered"
    run.command("stop")
    result = run.result()
    assert (result.state, result.exit_code) == ("stopped", 5)
    assert hanging.exists() and not trainer_logs(run)


@pytest.mark.stack
def test_the_embedded_run_finds_its_own_services_and_no_strangers(
    tmp_path: Path, ending: Ending, port: int
) -> None:
    """The proxy's socket is held by the run since its start."""
    run = ending(
        gated(tmp_path, 0, f"infrastructure.litellm_port={port}", "training.total_steps=1", embedded=True)
    )
    open_gate(run)
    run.start()
    result = run.result(200)
    assert (result.state, result.exit_code) == ("done", 0)
    assert not told(run)
    found = read(RunDir(run.run_dir))
    assert found is not None and found.second_look is not None
    assert {check.status for check in found.second_look.checks} == {"ok"}
    (ours,) = [check.text for check in found.second_look.checks if check.name == f"port {port} (proxy)"]
    assert ours.startswith("held by this run (pid ")


@pytest.mark.stack
def test_the_embedded_run_ends_before_a_trainer_without_its_port(
    tmp_path: Path, ending: Ending, port: int, stranger: Callable[[], int]
) -> None:
    run = ending(gated(tmp_path, port, "proxy.trials_through=sessions", embedded=True))
    run.start()
    run.until("sessions", "ready", 200)
    pid = stranger()
    open_gate(run)
    result = run.result(100)
    assert (result.state, result.exit_code, result.steps) == ("failed", 3, 0)
    assert result.cause is not None and f"port {port} (trainer): held by pid {pid} " in result.cause.text
    assert not trainer_logs(run)
    assert not run.tagged(), "nothing of the run is left"
