"""Files in a run's directory that somebody has replaced: nothing freezes, each is named, and the run can be stopped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.hanging import hanging, waiting_openers
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.exit_codes import ExitCode
from liverl.procs import procfs

TRAJECTORY = "litellm-trajectory.jsonl"
TURN = {
    "success": True,
    "response_body": {
        "choices": [{"message": {"role": "assistant", "tool_calls": [{}]}, "finish_reason": "stop"}]
    },
}
DEEP = b'{"success": true, "response_body": {"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n"


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    return ending(make_run(tmp_path, [toy("steady", "sleep")]))


def trial(run: ToyRun, name: str, *, finished: bool = True) -> Path:
    folder = run.run_dir / "trials" / "step_0001" / name
    folder.mkdir(parents=True)
    (folder / TRAJECTORY).write_text(json.dumps(TURN) + "\n")
    if finished:
        (folder / "result.json").write_text(json.dumps({"verifier_result": {"rewards": {"reward": 1.0}}}))
    return folder


def unreadable(run: ToyRun) -> dict[str, str]:
    return {file.path: file.why for file in run.snapshot().unreadable}


def test_a_fifo_as_a_result_freezes_no_other_trial_and_no_stop(run: ToyRun) -> None:
    bad = trial(run, "bad", finished=False)
    os.mkfifo(bad / "result.json")
    trial(run, "good")
    run.start()
    run.until("steady", "ready")
    wait_until(lambda: run.snapshot().trials.finished == 1)
    path = "trials/step_0001/bad/result.json"
    wait_until(lambda: path in unreadable(run))
    assert unreadable(run)[path] == "not a regular file but a FIFO"
    wait_until(
        lambda: [s for s in run.snapshot().symptoms if s.id == "file_unreadable"], what="it is an alert"
    )
    trial(run, "later")
    wait_until(lambda: run.snapshot().trials.finished == 2)
    run.command("stop")
    assert run.result().state == "stopped"


def test_a_line_nested_deeply_and_a_link_out_of_the_run_hide_nothing_else(run: ToyRun) -> None:
    deep = trial(run, "deep")
    with (deep / TRAJECTORY).open("ab") as file:
        file.write(DEEP)
    outer = trial(run, "outer", finished=False)
    (outer / "result.json").symlink_to("/etc/hostname")
    trial(run, "good")
    run.start()
    run.until("steady", "ready")
    wait_until(lambda: run.snapshot().trials.finished == 2)
    path = "trials/step_0001/outer/result.json"
    wait_until(lambda: path in unreadable(run))
    assert unreadable(run)[path] == "a symbolic link, which is not followed here"


def test_a_log_replaced_by_a_fifo_is_named_and_the_run_goes_on(run: ToyRun) -> None:
    run.start()
    run.until("steady", "ready")
    logs = run.run_dir / "attempt_001" / "logs"
    for log in logs.glob("steady.*.log"):
        log.unlink()
        os.mkfifo(log)
    (run.run_dir / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(run.run_dir / "metrics.jsonl")
    for name in ("metrics.jsonl", "attempt_001/logs/steady.1.log"):
        wait_until(lambda name=name: name in unreadable(run), what=f"{name} is named")
    assert run.command("restart", service="steady")["generation"] == 2
    run.until("steady", lambda s: s.generation == 2 and s.state == "ready")
    run.command("stop")
    assert run.result().state == "stopped"


def test_an_adopting_backend_does_not_hang_at_a_fifo_either(run: ToyRun) -> None:
    run.start()
    first = run.until("steady", "ready").pid
    bad = trial(run, "bad", finished=False)
    os.mkfifo(bad / "result.json")
    os.mkfifo(bad / "config.json")
    run.kill_backend()
    run.start()
    assert run.until("steady", "ready").pid == first
    wait_until(lambda: len(unreadable(run)) == 2)
    run.command("stop", now=True)
    assert run.result().state == "stopped"


@pytest.mark.parametrize("how", ["stop", "stop --now", "SIGTERM"])
def test_each_way_to_end_a_run_ends_one_with_fifos(run: ToyRun, how: str) -> None:
    bad = trial(run, "bad", finished=False)
    os.mkfifo(bad / "result.json")
    run.start()
    run.until("steady", "ready")
    for name in ("metrics.jsonl", "trainer.json", "replicas.json", "members.json"):
        (run.run_dir / name).unlink(missing_ok=True)
        os.mkfifo(run.run_dir / name)
    wait_until(lambda: "metrics.jsonl" in unreadable(run))
    if how == "SIGTERM":
        os.kill(run.backends[-1], signal.SIGTERM)
    else:
        out = run_cli(*how.split(), "--run", run.run_dir)
        assert out.returncode == 0, out
    assert run.result().state == "stopped"
    assert not run.tagged()


@pytest.mark.parametrize(
    ("kind", "resumed"),
    [
        pytest.param("FIFO", False, id="FIFO-stop"),
        pytest.param("directory", True, id="directory-up"),
        pytest.param("FIFO", True, id="FIFO-up", marks=pytest.mark.slow),
        pytest.param("directory", False, id="directory-stop", marks=pytest.mark.slow),
    ],
)
def test_a_run_whose_files_were_all_replaced_is_looked_at_and_ended(
    run: ToyRun, kind: str, resumed: bool
) -> None:
    """Every file of a run whose backend died, but the one that names its keeper; ``up`` needs plan and keys, too."""
    run.start()
    run.until("steady", "ready")
    before = run.service("steady").pid
    run.kill_backend()
    keys = [path.name for path in (run.run_dir / "secrets").iterdir()]
    kept = {"keeper.json", "plan.json", *keys} if resumed else {"keeper.json"}
    for path in [p for p in run.run_dir.rglob("*") if p.is_file() and p.name not in kept]:
        path.unlink()
        os.mkfifo(path) if kind == "FIFO" else path.mkdir()
    for command in ("status", "events", "logs", "config"):
        read = run_cli(command, "--run", run.run_dir, seconds=60)
        assert "Traceback" not in read.stderr, (command, read.stderr)
    if resumed:
        up = run_cli("up", "--detach", "--run", run.run_dir)
        assert up.returncode == 0, up
        run.backends.append(run.snapshot().backend.pid)
        assert run.until("steady", "ready").pid == before
    out = run_cli("stop", "--run", run.run_dir)
    assert out.returncode == 0, out
    wait_until(lambda: not run.tagged(), what="no process of the run")


@pytest.mark.parametrize("name", ["master_key", "replica_token"])
def test_a_key_that_is_no_file_is_named_and_the_run_can_be_stopped(run: ToyRun, name: str) -> None:
    run.start()
    run.until("steady", "ready")
    run.kill_backend()
    key = run.run_dir / "secrets" / name
    key.unlink()
    os.mkfifo(key)
    refused = run_cli("up", "--detach", "--run", run.run_dir)
    assert refused.returncode == ExitCode.PREFLIGHT, refused
    assert "not a regular file but a FIFO" in refused.stderr and str(key) in refused.stderr
    out = run_cli("stop", "--run", run.run_dir)
    assert out.returncode == 0, out
    wait_until(lambda: not run.tagged(), what="no process of the run")


def test_files_without_end_are_named_by_their_size(run: ToyRun) -> None:
    huge = trial(run, "huge")
    os.truncate(huge / "result.json", 1 << 40)  # no block of it is on the disk
    endless = trial(run, "endless")
    os.truncate(endless / TRAJECTORY, 1 << 40)  # one line
    trial(run, "good")
    run.start()
    run.until("steady", "ready")
    path = "trials/step_0001/huge/result.json"
    wait_until(lambda: "larger than" in unreadable(run).get(path, ""), what="it is named")
    wait_until(lambda: run.snapshot().trials.finished >= 1)
    status = Path(f"/proc/{run.backends[-1]}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 600_000, peak  # kB
    run.command("stop")
    assert run.result().state == "stopped"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("up", "--detach", "--name", "x"), id="up"),
        pytest.param(("plan",), id="plan", marks=pytest.mark.slow),
        pytest.param(("config",), id="config", marks=pytest.mark.slow),
    ],
)
def test_a_configuration_that_nobody_writes_to_is_refused_by_name(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    fifo = tmp_path / "config.yaml"
    os.mkfifo(fifo)
    out = run_cli(*command, "--config", fifo, "--run-root", tmp_path / "runs", seconds=60)
    assert out.returncode == ExitCode.USAGE, out
    assert str(fifo) in out.stderr and "nobody wrote to this FIFO" in out.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "adopted",
    [
        pytest.param(False, id="first backend"),
        pytest.param(True, id="its successor", marks=pytest.mark.slow),
    ],
)
def test_a_read_that_hangs_holds_up_no_restart_and_no_end(run: ToyRun, adopted: bool) -> None:
    """A storage does not answer: threads of the backend wait in the kernel for a trial's file and for a log."""
    hung = trial(run, "hung")
    away = run.run_dir.parent / "hung"
    hung.rename(away)
    run.start()
    run.until("steady", "ready")
    log = run.run_dir / str(run.service("steady").log)
    if adopted:
        run.kill_backend()
    with hanging(away / "result.json", away / TRAJECTORY, log):
        away.rename(hung)
        if adopted:
            run.start()
        backend = run.backends[-1]
        wait_until(lambda: waiting_openers(backend), what="a thread waits")
        assert run.command("restart", service="steady")["generation"] == 2
        run.until("steady", lambda s: s.generation == 2 and s.state == "ready")
        run.command("stop")
        assert run.result().state == "stopped"
        assert not procfs.alive(backend, None)
    late = [e.text for e in run.events() if e.kind == "storage"]
    assert late and "could not be read within" in late[0]
