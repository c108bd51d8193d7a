"""``stop`` on a run whose backend was killed: what still runs is stopped, and nothing is started again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.cli import MAIN, run_cli
from kit.processes import stop_process
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until
from msgspec.structs import asdict

import liverl
from liverl.model import Result
from liverl.plan.spec import Dependency, StopStage
from liverl.procs import procfs
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive, read_backend, write_atomic

Make = Callable[..., ToyRun]
FOR_EVER = (StopStage("TERM", "leader", 600.0), StopStage("KILL", "tree", 5.0))


@pytest.fixture
def make(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield lambda *services, **options: ending(make_run(tmp_path, services, **options))


def background(*args: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*MAIN, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )


def journal(run: ToyRun, kind: str) -> list[dict[str, object]]:
    """The records of this kind."""
    lines = RunDir(run.run_dir).journal.read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["k"] == kind]


def started(run: ToyRun) -> list[str]:
    """Every process that was ever to be started, as ``service.generation``."""
    return [f"{record['svc']}.{record['gen']}" for record in journal(run, "intent")]


def leader(run: ToyRun, name: str) -> int:
    pid = run.until(name, "ready").pid
    assert pid is not None
    return pid


def kill_service(run: ToyRun, name: str, pid: int) -> None:
    """Kill a leader and wait until its keeper has told."""
    os.kill(pid, signal.SIGKILL)
    wait_until((run.run_dir / "exits" / f"{name}.1.json").exists, what="its exit")


def ended(run: ToyRun) -> Result:
    result = RunDir(run.run_dir).read_result()
    assert result is not None
    wait_until(lambda: run.tagged() == {}, what="no process of the run")
    return result


def follows(stop: subprocess.Popen[str], service: str) -> str:
    """What a ``stop`` has said once it says that it waits for the end of this service, and of no other."""
    assert stop.stderr is not None
    said = ""
    while not said.endswith(f"; stopping {service}\n"):
        line = stop.stderr.readline()
        assert line, (said, stop.communicate())
        said += line
    return said


def test_what_lives_is_stopped_in_order_and_what_died_stays_dead(make: Make) -> None:
    """``base`` is dead and ``late`` was never started; ``user`` needs ``base`` and takes its time."""
    base = toy("base", "sleep")
    user = toy("user", "deaf-until", "over", depends_on=(Dependency("ready", "base"),), stop=FOR_EVER)
    late = toy("late", "sleep", depends_on=(Dependency("exited_0", "work"),))
    work = toy("work", "exit-when", "0", "never", ends_run=True)
    run = make(base, user, work, late)
    run.start()
    pid = leader(run, "base")
    leader(run, "user"), leader(run, "work")
    run.kill_backend()
    kill_service(run, "base", pid)
    stop = background("stop", "--run", run.run_dir)
    said = follows(stop, "user")
    (run.run_dir / "over").touch()
    out, rest = stop.communicate(timeout=90)
    result = ended(run)
    assert stop.returncode == 0, (out, said, rest)
    assert (result.state, result.exit_code) == ("stopped", 5)
    assert out == f"run tests/toy: {result.summary}\n"
    assert result.summary.startswith("stopped by liverl-tui stop (pid ")
    assert result.summary.endswith(" after the backend had exited unexpectedly")
    notes = (said + rest).splitlines()
    assert notes[0] == "the backend of tests/toy is not running; starting one to stop the run"
    assert any(note.endswith(" of 4 services have stopped; stopping user") for note in notes), notes
    assert notes[-1] == "4 of 4 services have stopped"
    assert sorted(started(run)) == ["base.1", "user.1", "work.1"]
    ends = {e.service: e.text for e in run.events() if e.kind == "state" and e.data["state"] == "stopped"}
    assert ends["base"].startswith("stopped")
    assert len([e for e in run.events() if e.kind == "run_ended"]) == 1


def test_now_kills_what_takes_its_time(make: Make) -> None:
    run = make(toy("deaf", "deaf", stop=FOR_EVER))
    run.start()
    leader(run, "deaf")
    run.kill_backend()
    out = run_cli("stop", "--run", run.run_dir, "--now")
    assert (out.returncode, ended(run).exit_code) == (0, 0), out
    assert started(run) == ["deaf.1"]


@pytest.mark.parametrize("with_keeper", [True, False])
def test_where_nothing_lives_the_run_gets_its_result(make: Make, with_keeper: bool) -> None:
    run = make(toy("a", "sleep"), toy("work", "sleep", ends_run=True))
    run.start()
    pids = {name: leader(run, name) for name in ("a", "work")}
    keeper = run.snapshot().backend.keeper_pid
    run.kill_backend()
    for name, pid in pids.items():
        kill_service(run, name, pid)
    if not with_keeper:
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: run.tagged() == {}, what="its end")
    out = run_cli("stop", "--run", run.run_dir)
    result = ended(run)
    text = "stopped: the backend had exited unexpectedly; no process was left to stop"
    assert (out.returncode, out.stdout) == (0, f"run tests/toy: {text}\n"), out
    assert (result.state, result.exit_code, result.summary) == ("stopped", 5, text)
    assert sorted(started(run)) == ["a.1", "work.1"]
    again = run_cli("stop", "--run", run.run_dir)
    assert (again.returncode, again.stdout) == (0, f"run tests/toy has ended: {text}\n")
    assert again.stderr == ""


def test_a_run_that_never_began_is_stopped_without_starting_it(make: Make) -> None:
    run = make(toy("a", "sleep"))
    out = run_cli("stop", "--run", run.run_dir)
    assert (out.returncode, ended(run).state) == (0, "stopped"), out
    assert started(run) == []


def test_two_stops_at_once_are_one(make: Make) -> None:
    run = make(toy("deaf", "deaf-until", "over", stop=FOR_EVER), toy("work", "sleep", ends_run=True))
    run.start()
    leader(run, "deaf"), leader(run, "work")
    run.kill_backend()
    stops = [background("stop", "--run", run.run_dir) for _ in range(3)]
    for stop in stops:
        follows(stop, "deaf")
    (run.run_dir / "over").touch()  # not before each of them has met the run alive
    outs = [stop.communicate(timeout=90) for stop in stops]
    result = ended(run)
    assert [stop.returncode for stop in stops] == [0, 0, 0], outs
    assert {out for out, _ in outs} == {f"run tests/toy: {result.summary}\n"}
    assert len(journal(run, "end")) == 1
    assert sorted(started(run)) == ["deaf.1", "work.1"]


def stopping_for_ever(make: Make) -> tuple[ToyRun, subprocess.Popen[str]]:
    """A run without a backend, and the ``stop`` that waits for a service which does not end by TERM."""
    run = make(toy("deaf", "deaf", stop=FOR_EVER))
    run.start()
    leader(run, "deaf")
    run.kill_backend()
    stop = background("stop", "--run", run.run_dir)
    wait_until(lambda: isinstance(backend_alive(run.run_dir), LiveBackend), what="the backend that stops")
    return run, stop


def test_a_second_stop_hurries_the_first(make: Make) -> None:
    run, first = stopping_for_ever(make)
    second = run_cli("stop", "--run", run.run_dir, "--now")
    out = first.communicate(timeout=90)
    assert (first.returncode, second.returncode) == (0, 0), (out, second)
    assert ended(run).state == "stopped"


def test_a_backend_that_comes_up_meanwhile_is_asked(make: Make) -> None:
    """Whoever takes the lock first: the run stops."""
    run = make(toy("a", "sleep"), toy("b", "sleep"))
    run.start()
    leader(run, "a"), leader(run, "b")
    run.kill_backend()
    up = background("up", "--detach", "--run", run.run_dir)
    out = run_cli("stop", "--run", run.run_dir)
    up.communicate(timeout=90)
    assert out.returncode == 0, out
    assert ended(run).state == "stopped"
    assert len(journal(run, "end")) == 1


def test_a_backend_that_dies_while_it_stops_is_replaced(make: Make) -> None:
    run, stop = stopping_for_ever(make)
    follows(stop, "deaf")
    dead = read_backend(run.run_dir)
    assert dead is not None
    os.kill(dead.pid, signal.SIGKILL)
    wait_until(lambda: (b := read_backend(run.run_dir)) and b.pid != dead.pid, what="another backend")
    assert run_cli("stop", "--run", run.run_dir, "--now").returncode == 0
    out = stop.communicate(timeout=90)
    assert stop.returncode == 0, out
    assert started(run) == ["deaf.1"] and ended(run).state == "stopped"


def test_on_another_host_it_is_refused_with_the_command(make: Make) -> None:
    run = make(toy("a", "sleep"))
    run.start()
    pid = leader(run, "a")
    run.kill_backend()
    record = read_backend(run.run_dir)
    assert record is not None
    write_atomic(run.run_dir / "backend.json", {**asdict(record), "host": "n17"})
    there = f"ssh -t n17 'liverl-tui stop --run {run.run_dir}'"
    lives = run_cli("stop", "--run", run.run_dir)
    assert (lives.returncode, lives.stdout) == (4, "") and f"is running on n17; run: {there}" in lives.stderr
    os.utime(run.run_dir / "backend.json", (1.0, 1.0))
    dead = run_cli("stop", "--run", run.run_dir)
    assert (dead.returncode, dead.stdout) == (4, "")
    assert (
        f"ran on n17 and is not running; its services may still be running there; run: {there}" in dead.stderr
    )
    assert procfs.alive(pid, None) and RunDir(run.run_dir).read_result() is None


def test_the_library_stops_and_reads_a_run_without_a_backend(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("work", "sleep", ends_run=True))
    run.start()
    pid = leader(run, "a")
    gone = leader(run, "work")
    live = liverl.snapshot(run.run_dir)
    assert (live.state, live.result) == ("running", None)
    run.kill_backend()
    kill_service(run, "work", gone)
    orphaned = liverl.snapshot(str(run.run_dir))
    assert (orphaned.state, orphaned.result) == ("unsupervised", None)
    services = {s.name: (s.state, s.pid) for s in orphaned.services}
    assert services == {"a": ("ready", pid), "work": ("stopped", None)}
    with pytest.raises(
        liverl.BackendDead, match=r"liverl\.stop_run\('.*/tests/toy'\) to stop its remaining processes"
    ):
        liverl.command(run.run_dir, "stop")
    states: list[str] = []
    result = liverl.stop_run(run.run_dir, on_snapshot=lambda s: states.append(s.state))
    assert result is not None and (result.state, result.exit_code) == ("stopped", 5)
    assert result.summary == f"stopped by pid {os.getpid()} after the backend had exited unexpectedly"
    assert states and set(states) <= {"stopping", "stopped"}
    last = liverl.snapshot(run.run_dir)
    assert (last.state, last.result, last.service("a").pid) == ("stopped", result, None)  # type: ignore[union-attr]
    assert liverl.stop_run(run.run_dir) == result
    wait_until(lambda: run.tagged() == {}, what="the end of the keeper, which writes into the directory")
    shutil.rmtree(run.run_dir)
    with pytest.raises(liverl.BackendDead, match="is not a run directory"):
        liverl.snapshot(run.run_dir)
    with pytest.raises(liverl.BackendDead, match="is not a run directory"):
        liverl.stop_run(run.run_dir)


def test_a_kill_does_not_wait_for_a_backend_that_does_not_respond(make: Make) -> None:
    """It once failed with "sent nothing within 5 s", and the run went on. A process that ignores SIGTERM and was
    stopped itself is killed as well."""
    run = make(toy("a", "deaf"), toy("b", "tree"))
    backend = run.start()
    pids = {*run.until("a", "ready").members, *run.until("b", lambda s: len(s.members) == 4).members}
    stop_process(backend)
    for pid in sorted(pids)[:1]:
        stop_process(pid)
    stopped = run_cli("stop", "--now", "--run", run.run_dir)
    assert stopped.returncode == 0, stopped.stderr
    assert (
        f"(pid {backend}) does not respond; killed it, and {len(pids)} processes of its services"
        in stopped.stderr
    )
    assert not [pid for pid in pids if procfs.alive(pid, None)] and not procfs.alive(backend, None)
    assert run.result().state == "stopped" and len(started(run)) == 2, "nothing was started again"
    assert run.result().summary.endswith("as the backend did not respond"), run.result()


def test_a_stop_that_is_no_kill_leaves_a_backend_that_does_not_respond_alone(make: Make) -> None:
    run = make(toy("a", "sleep"))
    backend = run.start()
    a = run.until("a", "ready").pid
    stop_process(backend)
    try:
        refused = run_cli("stop", "--run", run.run_dir)
        assert refused.returncode != 0 and f"kill -CONT {backend}" in refused.stderr
        assert procfs.alive(backend, None) and procfs.alive(a or 0, None)
    finally:
        os.kill(backend, signal.SIGCONT)
