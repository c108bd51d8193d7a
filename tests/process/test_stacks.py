"""Stacks of processes that hang: real Python processes, real py-spy, faulthandler on a signal, real kills."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.daemon import stack_saver
from liverl.offline.archive import archive
from liverl.offline.doctor.examine import examine
from liverl.plan.spec import Probe, Probes, RestartPolicy, ServiceSpec, StopStage
from liverl.procs import procfs, stacks
from liverl.procs.stack_text import MAGIC, parse
from liverl.rundir.layout import RunDir
from liverl.util.stack_signal import ON_SIGNAL, VARIABLE

PY_SPY = stacks.find_py_spy(())
needs_py_spy = pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed (the extra `stacks`)")
HANG = """
import sys, threading, time
{register}
def grade(): print("up", flush=True); time.sleep(1e6)
def reward(api_key="sk-marked0123456789"): grade()
reward()
"""
REGISTER = "from liverl.util import stack_signal; stack_signal.register()"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def one(code: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
        )
        begun.append(process)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process

    yield one
    for process in begun:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def member(process: subprocess.Popen[str]) -> tuple[int, int]:
    return process.pid, procfs.start_tick(process.pid) or 0


@needs_py_spy
def test_py_spy_shows_where_a_process_hangs_and_no_local_variable(start: Start) -> None:
    process = start(HANG.format(register=""))
    taken = stacks.take(member(process), PY_SPY)
    assert taken.by == "py-spy" and "grade (<string>:4)" in taken.text
    assert "sk-marked" not in taken.text
    assert process.poll() is None


def test_faulthandler_shows_it_where_py_spy_is_absent(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "stacks" / ON_SIGNAL
    process = start(HANG.format(register=REGISTER), **{VARIABLE: str(folder)})
    for _ in range(2):  # each time only what is new
        taken = stacks.take(member(process), None, folder)
        assert taken.by == "faulthandler" and taken.text.count("in grade") == 1
    assert process.poll() is None
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_process_that_did_not_register_gets_no_signal(start: Start, tmp_path: Path) -> None:
    """SIGUSR2 would end it."""
    process = start(HANG.format(register=""), **{VARIABLE: str(tmp_path)})
    pid, tick = member(process)
    assert stacks.take((pid, tick), None, tmp_path).problem == "py-spy is not installed"
    (tmp_path / f"{pid}.{tick}").touch()  # a file of its name alone is no proof
    assert stacks.take((pid, tick), None, tmp_path).text == ""
    assert process.poll() is None


ENDS = """import glob, os, signal
def end(*_): os.unlink(glob.glob(f"{os.environ['FOLDER']}/{os.getpid()}.*")[0]); os._exit(0)
signal.signal(signal.SIGUSR2, end)"""


def test_a_process_that_ends_at_the_signal_has_no_stacks(start: Start, tmp_path: Path) -> None:
    """It removes its file, as one does that has registered and exits."""
    process = start(HANG.format(register=ENDS), FOLDER=str(tmp_path))
    pid, tick = member(process)
    (tmp_path / f"{pid}.{tick}").touch()
    taken = stacks.take((pid, tick), None, tmp_path)
    assert (taken.text, taken.problem) == ("", stacks.ENDED)


def test_a_process_that_has_this_pid_by_now_is_not_looked_at(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    process = start(HANG.format(register=REGISTER), **{VARIABLE: str(folder)})
    pid, tick = member(process)
    taken = stacks.take((pid, tick + 1), PY_SPY, folder)
    assert (taken.text, taken.problem) == ("", "it has ended")


def test_rank_0_comes_first_and_other_programs_than_python_are_left_out(start: Start) -> None:
    second, driver, first = (
        start(HANG.format(register=""), **env) for env in ({"RANK": "1"}, {}, {"RANK": "0"})
    )
    other = subprocess.Popen(["sleep", "100"])
    try:
        members = [(other.pid, procfs.start_tick(other.pid) or 0), *map(member, (second, driver, first))]
        assert stacks.in_order(members, {}) == [member(first), member(second), member(driver)]
        served = dict.fromkeys((first.pid, second.pid), "python -m ray.scripts.scripts start --head")
        assert stacks.in_order(members, served) == [member(driver), member(first), member(second)]
        titles = {
            driver.pid: "ray::TaskRunner.run",
            first.pid: "ray::WorkerDict.x",
            second.pid: "ray::WorkerDict.x",
        }
        assert stacks.in_order(members, titles) == [member(driver), member(first), member(second)]
    finally:
        other.kill()
        other.wait()


def test_at_most_20_processes_are_looked_at_those_of_the_first_services_first(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, engine = start(HANG.format(register="")), start(HANG.format(register=""))
    members = {"trainer.1": {member(trainer)}, "engine.1": {member(engine)}}
    chosen = stack_saver._choose(members, frozenset())
    assert [(key, process) for key, process, _ in chosen] == [
        *(("trainer.1", member(trainer)), ("engine.1", member(engine))),
    ]
    assert [key for key, _, _ in stack_saver._choose(members, frozenset({trainer.pid}))] == ["engine.1"]
    assert stack_saver.MOST == 20
    monkeypatch.setattr(stack_saver, "MOST", 1)
    assert [key for key, _, _ in stack_saver._choose(members, frozenset())] == ["trainer.1"]


def test_outside_of_a_run_nothing_is_registered(start: Start) -> None:
    process = start(HANG.format(register=REGISTER), **{VARIABLE: ""})
    assert not stacks._catches(process.pid)


@needs_py_spy
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
def test_a_refusal_is_said_with_what_refuses(start: Start, tmp_path: Path) -> None:
    """py-spy as a user without privileges, on a process of root."""
    process = start(HANG.format(register=""))
    assert PY_SPY is not None
    copy = tmp_path / "py-spy"
    copy.write_text(
        f'#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups "{PY_SPY.resolve()}" "$@"\n'
    )
    copy.chmod(0o755)
    reachable = subprocess.run([str(copy), "--version"], capture_output=True, check=False)
    if reachable.returncode:
        pytest.skip("another user cannot execute py-spy here")
    taken = stacks.take(member(process), copy)
    assert taken.text == "" and "SYS_PTRACE" in taken.problem


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Callable[..., ToyRun]:
    return lambda *services, **options: ending(make_run(tmp_path, services, **options))


def hanging(tmp_path: Path, ignores: bool) -> tuple[str, ...]:
    script = tmp_path / "hanging.py"
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores else ""
    script.write_text(HANG.format(register=f"{REGISTER}\n{ignore}"))
    return (sys.executable, str(script))


def stack_files(run: ToyRun) -> list[Path]:
    return sorted((run.run_dir / "attempt_001/stacks").glob("*.txt"))


def stack_event(run: ToyRun) -> str:
    found = wait_until(
        lambda: [e for e in run.events() if e.kind == "stacks"], what="the event of the stacks"
    )
    assert len(found) == 1 and found[0].level == "warning"
    return found[0].text


def as_service(argv: tuple[str, ...], **more: Any) -> ServiceSpec:
    return msgspec.structs.replace(toy("trainer", "sleep", kind="trainer", ends_run=True, **more), argv=argv)


def test_what_is_not_ready_in_time_leaves_its_stacks_before_it_is_killed(
    make: Callable[..., ToyRun], tmp_path: Path
) -> None:
    never = Probe("log_line", pattern="is never printed", interval=0.1)
    service = as_service(
        hanging(tmp_path, False), probes=Probes(never, startup_deadline=4.0), restart=RestartPolicy("never")
    )
    run = make(service)
    run.start()
    assert run.result(60).state == "failed"
    text = stack_event(run)
    assert "not ready after 4 s" in text and "hangs in grade (hanging.py:" in text
    (file,) = stack_files(run)
    saved = parse(file.read_text())
    assert saved is not None and saved.service == "trainer.1" and saved.why == "not ready after 4 s"
    assert file.read_text().startswith(MAGIC) and file.stat().st_mode & 0o777 == 0o600
    report = wait_until(lambda: _text(RunDir(run.run_dir).report(1)), what="the report")
    assert (
        "## Where it hung" in report
        and "      grade (hanging.py:" in report
        and "      reward (hanging.py:" in report
    )
    found = next(one for one in examine([run.run_dir]).verdict.symptoms if one.id == "hung")
    assert found.title.startswith("trainer hung in grade (hanging.py:")
    assert found.evidence[0].log == str(file) and found.evidence[0].offset
    copy = archive(RunDir(run.run_dir), tmp_path / "kept").folder / "stacks" / file.name
    assert "reward" in copy.read_text()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_what_does_not_end_in_time_leaves_its_stacks_before_it_is_killed(
    make: Callable[..., ToyRun], tmp_path: Path
) -> None:
    stages = (StopStage("TERM", "leader", 1.0), StopStage("KILL", "tree", 5.0))
    run = make(as_service(hanging(tmp_path, True), stop=stages))
    run.start()
    log = run.run_dir / "attempt_001/logs/trainer.1.log"
    wait_until(lambda: "up" in _text(log), what="the hang")
    run.command("stop")
    assert "has not ended 1 s after SIGTERM" in stack_event(run)
    assert run.result(60).state == "stopped"
    assert len(stack_files(run)) == 1


def test_what_ends_in_time_leaves_none(make: Callable[..., ToyRun], tmp_path: Path) -> None:
    stages = (StopStage("TERM", "leader", 600.0), StopStage("KILL", "tree", 5.0))
    run = make(as_service(hanging(tmp_path, False), stop=stages))
    run.start()
    log = run.run_dir / "attempt_001/logs/trainer.1.log"
    wait_until(lambda: "up" in _text(log), what="the hang")
    run.command("stop")
    assert run.result(60).state == "stopped"
    assert not stack_files(run) and not [e for e in run.events() if e.kind == "stacks"]
