"""Processes that are stopped by a signal: the run names them, and ends all the same. Real processes and signals."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.drills import NAMED_S
from kit.processes import stop_process
from kit.runs import QUICK_STOP, ToyRun, make_run, toy
from kit.screens import snapshot
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.diagnose.catalogue import processes
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import Symptom
from liverl.plan.spec import StopStage
from liverl.procs import procfs
from liverl.procs.stats import ProcSampler
from liverl.util.pace import QUIET_AFTER

Make = Callable[..., ToyRun]
# A leader with a child in a session of its own.
WITH_A_WORKER = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("worker", worker.pid, flush=True)
time.sleep(600)
"""

# Waits for its child in state D, as for a disk: clone(2) with CLONE_VFORK and without CLONE_VM.
WAITS_IN_D = """
import ctypes, time
child = ctypes.PyDLL(None).syscall(56, 0x4000 | 17, 0, 0, 0, 0)
if child == 0:
    time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *services, **options: ending(make_run(tmp_path, services, **options))


def symptom(run: ToyRun, name: str) -> Symptom | None:
    return next((s for s in run.snapshot().symptoms if s.id == name), None)


def keeper(run: ToyRun) -> int:
    return next(pid for pid, tag in run.tagged().items() if "/keeper/" in tag)


def test_a_stopped_leader_and_a_stopped_worker_are_named_until_they_go_on(make: Make) -> None:
    argv = (sys.executable, "-c", WITH_A_WORKER)
    run = make(toy("trainer", "sleep", kind="trainer"), toy("other", argv=argv))
    run.start()
    leader = run.until("trainer", "ready").pid
    assert leader is not None
    worker = next(
        pid
        for pid in run.until("other", lambda s: len(s.members) == 2).members
        if pid != run.service("other").pid
    )
    for name, pid in (("trainer", leader), ("other", worker)):
        stop_process(pid)
        found = wait_until(lambda name=name: symptom(run, f"process_stopped:{name}"), what=f"{name} is named")
        assert f"pid {pid} of {name} is stopped (state T)" in found.cause
        assert found.fix == f"kill -CONT {pid}"
        assert [p.pid for p in run.service(name).stalled] == [pid]
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda name=name: not symptom(run, f"process_stopped:{name}"), what=f"{name} goes on")
    said = [(e.data["what"], e.data["id"]) for e in run.events() if e.kind == "symptom"]
    assert said == [
        (what, f"process_stopped:{name}") for name in ("trainer", "other") for what in ("new", "cleared")
    ]


@pytest.mark.slow
def test_a_quiet_run_that_nobody_watches_names_it_as_soon(make: Make) -> None:
    run = make(toy("trainer", "sleep", kind="trainer"))
    run.start()
    leader = run.until("trainer", "ready").pid
    assert leader is not None
    time.sleep(QUIET_AFTER + 5)  # being quiet is what is tested
    stop_process(leader)
    events = run.run_dir / "events.jsonl"
    wait_until(lambda: b"process_stopped:trainer" in events.read_bytes(), NAMED_S, "its name")
    os.kill(leader, signal.SIGCONT)
    wait_until(lambda: b'"cleared"' in events.read_bytes(), what="the end of the alert")


def test_a_stopped_service_is_ended_by_a_stop(make: Make) -> None:
    run = make(toy("trainer", "sleep", kind="trainer"))
    run.start()
    leader = run.until("trainer", "ready").pid
    assert leader is not None
    stop_process(leader)
    run.command("stop")
    assert run.result().exit_code in (0, 20)
    assert not run.tagged()


def test_a_keeper_that_is_stopped_during_the_stop_holds_up_no_end(make: Make) -> None:
    run = make(toy("a", "deaf-until", "over", stop=(StopStage("TERM", "leader", 600.0), *QUICK_STOP[2:])))
    run.start()
    run.until("a", "ready")
    pid = keeper(run)
    run.command("stop")
    stop_process(pid)
    (run.run_dir / "over").touch()
    assert run.result(90).exit_code != 75
    said = [e.text for e in run.events() if e.kind == "keeper"]
    # The service may have gone when it is looked at: then there is nothing left to continue it for.
    assert said in (
        [f"the keeper (pid {pid}) was stopped by a signal; continuing it to end the run"],
        [f"the keeper does not respond; killing it (pid {pid})"],
    )


@pytest.mark.parametrize("now", [False, True])
def test_a_stopped_keeper_is_named_and_holds_up_no_end(make: Make, now: bool) -> None:
    run = make(toy("a", "sleep"), toy("b", "deaf"))
    run.start()
    for name in ("a", "b"):
        run.until(name, "ready")
    pid = keeper(run)
    stop_process(pid)
    found = wait_until(lambda: symptom(run, "process_stopped:keeper"), what="the keeper is named")
    assert found.fix == f"kill -CONT {pid}" and "no service can be started" in found.cause
    run.command("stop", now=now)
    result = run.result(90)
    assert result.state == "stopped" and result.exit_code != 75, result
    wait_until(lambda: not procfs.alive(pid, None), what="the keeper's end, right after the result")
    assert not run.tagged()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of clone(2) is that of x86-64")
def test_a_process_in_state_d_is_named_after_a_minute_without_progress() -> None:
    """The process is real, and so is its state; only the minute is not waited for."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", WAITS_IN_D])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    child = 0
    try:

        def waits() -> bool:
            proc = procfs.read_proc(process.pid)
            return proc is not None and proc.state == "D"

        wait_until(waits, what="state D")
        child = int(children.read_text())
        sampler = ProcSampler()

        def named(at: float) -> list[str]:
            sampler.sample({"r0": [process.pid]}, at)
            base = snapshot(at=at)
            stalled = sampler.stalled.get("r0", ())
            services = tuple(replace(s, stalled=stalled) if s.name == "r0" else s for s in base.services)
            window = Window(replace(base, services=services), None, RunContext())
            return [found.id for found in processes.process_blocked(window) if isinstance(found, Symptom)]

        assert [named(now) for now in (1000.0, 1030.0, 1059.0)] == [[], [], []]
        assert named(1061.0) == ["process_blocked:r0"]
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: not waits(), what="another state")
        assert named(1062.0) == []
    finally:
        process.kill()
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of clone(2) is that of x86-64")
def test_a_service_that_waits_in_the_kernel_is_named_and_ended(make: Make) -> None:
    run = make(toy("trainer", argv=(sys.executable, "-I", "-S", "-c", WAITS_IN_D), kind="trainer"))
    run.start()
    pid = run.until("trainer", "ready").pid
    waited = wait_until(lambda: run.service("trainer").stalled, what="it is seen")
    assert [(p.pid, p.state) for p in waited] == [(pid, "D")]
    found = wait_until(lambda: symptom(run, "process_blocked:trainer"), what="it is named")
    assert run.snapshot().at - waited[0].since >= processes.BLOCKED_S
    assert f"pid {pid}" in found.title
    run.command("stop")
    assert run.result(90).state == "stopped"
    assert not run.tagged()
