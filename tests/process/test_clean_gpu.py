"""``clean --pid``: ends real processes. NVML is simulated: it lists memory of a process while that lives."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest
from kit import contract
from kit.contract import problems
from kit.waiting import wait_until

from liverl.exit_codes import ExitCode
from liverl.offline import clean_gpu
from liverl.offline.clean_gpu import NotEnded, end, holder
from liverl.procs import procfs
from liverl_tui.cli import main as cli

MIB = 1 << 20
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
TAME = "import time; print(1, flush=True); time.sleep(600)"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(code: str = TAME, *words: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "1\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def nvml(*pids: int) -> tuple[dict[int, int | None], str]:
    return {pid: 300 * MIB for pid in pids if procfs.alive(pid, None)}, ""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """simulated: every process has an NVIDIA device open."""
    monkeypatch.setattr(clean_gpu, "whose", lambda pid, members, own_namespace: ("stranger", None))


@pytest.mark.parametrize(("code", "by", "grace"), [(TAME, "SIGTERM", 60.0), (DEAF, "SIGKILL", 0.3)])
def test_it_ends_and_its_memory_is_looked_at_again(
    code: str, by: str, grace: float, start: Start, seen: None
) -> None:
    process, beside = start(code), start()
    found = holder(process.pid, lambda: nvml(process.pid, beside.pid))
    assert (found.memory, found.note, found.ended) == (300 * MIB, "", False)
    assert "time.sleep(600)" in found.command and found.user
    ended = end(found, lambda: nvml(process.pid, beside.pid), grace=grace)
    assert (ended.ended, ended.sent, ended.memory_after, ended.note) == (True, by, 0, "")
    assert process.wait(60) == -getattr(signal, by) and beside.poll() is None


def test_memory_that_stays_is_told(start: Start, seen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_gpu, "FREED_S", 0.2)
    process = start()
    ended = end(holder(process.pid, lambda: nvml(process.pid)), lambda: ({process.pid: 5 * MIB}, ""))
    assert ended.ended and ended.memory_after == 5 * MIB and "still lists" in ended.note


def test_without_nvml_memory_was_not_looked_at(start: Start, seen: None) -> None:
    process = start()
    found = holder(process.pid, lambda: ({}, "NVML is not there"))
    assert found.memory is None and found.note == "GPU memory was not looked at: NVML is not there"
    ended = end(found, lambda: ({}, "NVML is not there"))
    assert ended.ended and ended.memory_after is None and "not looked at" in ended.note


@pytest.mark.parametrize("without", [True, False])
def test_a_process_that_shows_no_gpu_stays(without: bool, start: Start) -> None:
    process = start()
    with pytest.raises(NotEnded, match="nothing shows that pid" if without else "NVML lists no GPU memory"):
        holder(process.pid, lambda: ({}, "NVML is not there" if without else ""))


def test_no_process_of_a_run_and_none_that_started_the_command(start: Start, seen: None) -> None:
    ours = start(TAME, LIVERL_RUN_DIR="/runs/p/n")
    with pytest.raises(NotEnded, match="liverl-tui stop --run /runs/p/n"):
        holder(ours.pid, lambda: nvml(ours.pid))
    for pid in (os.getpid(), os.getppid(), 1):
        with pytest.raises(NotEnded, match="this command, or one"):
            holder(pid, lambda: nvml(os.getpid(), os.getppid(), 1))
    ours.kill()
    with pytest.raises(NotEnded, match=f"no process has pid {ours.pid}"):
        wait_until(lambda: not procfs.alive(ours.pid, None), what="its end")
        holder(ours.pid, lambda: nvml(ours.pid))


def test_another_process_that_got_the_pid_stays(start: Start, seen: None) -> None:
    process = start()
    stale = msgspec.structs.replace(holder(process.pid, lambda: nvml(process.pid)), tick=1)
    end(stale, lambda: nvml(process.pid))
    assert process.poll() is None


def test_a_secret_in_its_command_is_hidden(start: Start, seen: None) -> None:
    process = start(TAME, "--api-key", "abcdefgh12345678")
    assert "abcdefgh12345678" not in holder(process.pid, lambda: nvml(process.pid)).command


def called(*args: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(["clean", *map(str, args)])
    return code, out.getvalue(), err.getvalue()


def test_the_command_needs_both(start: Start, seen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start()
    monkeypatch.setattr(holder, "__defaults__", (lambda: nvml(process.pid),))
    monkeypatch.setattr(end, "__defaults__", (lambda: nvml(process.pid),))
    for value in ("", "0", "yes"):
        monkeypatch.setenv("RL_CLEAN_FORCE_GPU_KILL", value)
        code, _, err = called("--pid", process.pid, "--yes")
        assert code == ExitCode.USAGE and "RL_CLEAN_FORCE_GPU_KILL=1" in err and process.poll() is None
    monkeypatch.setenv("RL_CLEAN_FORCE_GPU_KILL", "1")
    code, out, _ = called("--pid", process.pid)
    assert code == 0 and process.poll() is None and "there is no terminal to ask" in out
    assert f"to be ended: pid {process.pid} of " in out and "300M of GPU memory" in out
    code, out, _ = called("--pid", process.pid, "--json")
    assert code == 0 and process.poll() is None and json.loads(out)["gpu"][0]["pid"] == process.pid
    code, out, _ = called("--pid", process.pid, "--yes", "--json")
    report = json.loads(out)
    assert list(problems(report, contract.output("clean --json"))) == []
    assert code == 0 and report["gpu"][0]["ended"] and report["gpu"][0]["memory_after"] == 0
    assert report["rows"] == [], "with --pid alone no run is cleaned"
    assert process.wait(60) == -signal.SIGTERM
    code, _, err = called("--pid", process.pid, "--yes")
    assert code == ExitCode.FAILED and f"no process has pid {process.pid}; nothing was done" in err
