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
from kit.injected import HeldStart
from kit.processes import stop_process
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.control.messages import ControlError
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
    stop_process(pid)
    try:
        refused = cli(*command, run.run_dir)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert refused.returncode not in (0, None), refused.stdout
    assert f"(pid {pid}) does not respond: a signal such as SIGSTOP" in refused.stderr
    assert f"kill -CONT {pid}" in refused.stderr
    assert "attached" not in refused.stderr
    wait_until(lambda: not stands(pid), what="the backend's continuation")
    assert cli("up", "--detach", "--run", run.run_dir).returncode == 0


def backend_of(run_dir: Path) -> int | None:
    """The pid of a backend of the run that has begun, and perhaps no more than that."""
    for pid, proc in procfs.scan().items():
        if (
            not proc.zombie
            and f"--run-dir\0{run_dir}\0" in cmdline(pid)
            and "liverl.daemon.main" in cmdline(pid)
        ):
            return pid
    return None


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("words", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_up_waits_for_a_backend_however_long_its_start_takes(tmp_path: Path, words: int) -> None:
    """The second time that it says what it waits for is later than the 20 s after which it once gave up, with exit
    code 1, while the run went on and was done."""
    run_dir = make_run(tmp_path, [toy("trainer", "exit", "0", kind="trainer", ends_run=True)]).run_dir
    backend, said = HeldStart(tmp_path / "held", "liverl.daemon.main"), tmp_path / "said"
    with said.open("w") as out:
        up = subprocess.Popen(
            [sys.executable, "-m", "liverl_tui.cli.main", "up", "--no-ui", "--run", str(run_dir)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **backend.env},
        )
    try:
        pid = wait_until(lambda: backend_of(run_dir), what="the backend's process")
        stop_process(pid)
        backend.let_go()
        sentence = f"waiting for the backend (pid {pid}): a signal such as SIGSTOP has stopped it"
        wait_until(lambda: said.read_text().count(sentence) == words, what="its words")
        assert f"kill -CONT {pid}" in said.read_text() and up.poll() is None
        os.kill(pid, signal.SIGCONT)
        assert up.wait(90) == ExitCode.OK, said.read_text()
    finally:
        up.kill()
        up.wait()
        left = backend_of(run_dir)
        if left is not None:
            os.kill(left, signal.SIGKILL)
    result = RunDir(run_dir).read_result()
    assert result is not None and result.state == "done"


@pytest.mark.parametrize("number", [1, 2])
def test_a_start_that_is_cancelled_ends_its_backend_and_says_so(tmp_path: Path, number: int) -> None:
    """Ctrl-C once: SIGTERM, which a stopped process does not get; twice: SIGKILL. It is stopped before it listens."""
    run_dir = make_run(tmp_path, [toy("a", "sleep")]).run_dir
    backend, said = HeldStart(tmp_path / "held", "liverl.daemon.main"), tmp_path / "said"
    with said.open("w") as out:
        up = subprocess.Popen(
            [sys.executable, "-m", "liverl_tui.cli.main", "up", "--no-ui", "--run", str(run_dir)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **backend.env},
        )
    pid = 0
    try:
        pid = wait_until(lambda: backend_of(run_dir), what="the backend's process")
        stop_process(pid)
        backend.let_go()
        up.send_signal(signal.SIGINT)
        wait_until(lambda: "sent SIGTERM to the backend" in said.read_text(), what="its first words")
        if number == 1:
            os.kill(pid, signal.SIGCONT)
        else:
            up.send_signal(signal.SIGINT)
        code, words = up.wait(60), said.read_text()
        assert code == ExitCode.STOPPED, words
        assert f"(pid {pid}) before it accepted commands" in words
        assert number == 1 or "sent SIGKILL to the backend" in words
        wait_until(lambda: not procfs.alive(pid, None), what="the backend's end")
    finally:
        up.kill()
        up.wait()
        if pid and procfs.alive(pid, None):
            os.kill(pid, signal.SIGKILL)


def ready(run: ToyRun, service: str) -> bool:
    """Whether its backend answers, and its service is ready."""
    try:
        return run.service(service).state == "ready"
    except (ControlError, OSError):
        return False


def test_ctrl_c_twice_kills_a_run_whose_backend_does_not_respond(tmp_path: Path) -> None:
    run = make_run(tmp_path, [toy("a", "sleep")])
    said = tmp_path / "said"
    with said.open("w") as out:
        up = subprocess.Popen(
            [sys.executable, "-m", "liverl_tui.cli.main", "up", "--no-ui", "--run", str(run.run_dir)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    pid = 0
    try:
        wait_until(lambda: ready(run, "a"), what="the service")
        pid, services = run.snapshot().backend.pid, run.tagged()
        stop_process(pid)
        up.send_signal(signal.SIGINT)
        wait_until(
            lambda: "press Ctrl-C again to kill the run without it" in said.read_text(), what="its advice"
        )
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == run.result().exit_code, said.read_text()
        assert f"(pid {pid}) does not respond; killed it" in said.read_text()
        assert run.result().state == "stopped"
        assert services and not any(procfs.alive(one, None) for one in services)
    finally:
        up.kill()
        up.wait()
        if pid and procfs.alive(pid, None):
            os.kill(pid, signal.SIGKILL)


def test_wait_goes_on_while_a_backend_does_not_answer(run: ToyRun, tmp_path: Path) -> None:
    pid, said = run.backends[-1], tmp_path / "said"
    stop_process(pid)
    with said.open("w") as out:
        waits = subprocess.Popen(
            [sys.executable, "-m", "liverl_tui.cli.main", "wait", "--for", "done", "--run", str(run.run_dir)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        wait_until(
            lambda: f"waiting for the backend (pid {pid}): a signal" in said.read_text(), what="its words"
        )
        limited = cli("wait", "--for", "done", "--timeout", "0.1", "--run", run.run_dir)
        assert limited.returncode == ExitCode.TIMEOUT and "timed out waiting" in limited.stderr
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: cli("stop", "--run", run.run_dir).returncode is not None, what="the stop")
        assert waits.wait(60) == run.result().exit_code
    finally:
        os.kill(pid, signal.SIGCONT)
        waits.kill()
        waits.wait()


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
