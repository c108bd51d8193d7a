"""Runs that an earlier version started: this one adopts, shows and stops them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.older_runs import VERSIONS, OldKeeper, Restored
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.model import SCHEMA
from liverl.procs import procfs
from liverl.rundir.layout import RunDir
from liverl_tui.cli import main as cli

# Of the recorded run: each was started by the version before, and lives.
LIVING = ("replica-0.2", "replica-1.2", "replica-2.1", "door.1", "tree.1", "late.1", "trainer.1")

each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", cli.__name__, *map(str, args)]


def told(*args: object, code: int = 0) -> str:
    """What a command line prints; ``code`` is its exit code."""
    done = subprocess.run(
        command(*args), check=False, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def status(run: ToyRun) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told("status", "--json", run.run_dir))
    assert found["schema"] == SCHEMA
    return found


def services(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {service["name"]: service for service in state["services"]}


# --- runs that have ended -----------------------------------------------------------------------------


@each_version
@pytest.mark.parametrize(("name", "exit_code"), [("done", 0), ("failed", 1)])
def test_a_run_that_has_ended_is_shown_as_it_ended(
    version: Path, name: str, exit_code: int, tmp_path: Path
) -> None:
    run = Restored(version / name, tmp_path, same_boot=False).write()
    recorded = json.loads((version / name / "result.json").read_text())
    now = status(run)
    assert (now["live"], now["state"], now["run"]) == (False, name, RunDir(run.run_dir).name)
    cause = recorded["cause"] and (
        now["result"]["cause"] | recorded["cause"]
    )  # newer versions tell more of it
    assert now["result"] == now["result"] | recorded | {"cause": cause}
    told_then = json.loads((version / name / "snapshot.json").read_text())
    for service in told_then["services"]:
        assert services(now)[service["name"]]["exit"] == service["exit"]
        # nothing uses an environment of a run that has ended
        unused = service["kind"] == "environment" and service["state"] == "ready"
        assert services(now)[service["name"]]["state"] == ("stopped" if unused else service["state"])
    shown = told("attach", "--plain", "--run", run.run_dir, code=exit_code)
    assert f"has ended: {name}, exit code {exit_code}" in shown
    events = [json.loads(line) for line in told("events", "--json", run.run_dir).splitlines()]
    lines = (run.run_dir / "events.jsonl").read_text().splitlines()
    assert events == [json.loads(line) for line in lines]
    told("plan", "--json", "--run", run.run_dir)
    told("wait", "--for", "done", run.run_dir, code=exit_code)
    assert recorded["summary"] in told("status", run.run_dir)


@each_version
def test_a_run_that_has_ended_keeps_its_steps_and_trials(version: Path, tmp_path: Path) -> None:
    run = Restored(version / "done", tmp_path, same_boot=False).write()
    now = status(run)
    assert (now["step"], now["total_steps"], now["metrics"]["step"]) == (1, 1, 1)
    assert (now["trials"]["total"], now["trials"]["finished"]) == (2, 2)
    assert [replica["name"] for replica in now["replicas"]["items"]] == ["replica-0"]
    assert now["proxy"]["generation"] == 1


@each_version
def test_the_next_attempt_of_a_run_that_has_ended(
    version: Path, tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    run = ending(Restored(version / "failed", tmp_path, same_boot=False).write())
    run.start(resume=True)
    result = run.result()
    assert (result.attempt, result.state, result.exit_code) == (2, "failed", 1)
    assert result.cause is not None and "ValueError: the toy cannot go on" in result.cause.text
    assert run.events()[-1].kind == "run_ended"


# --- a run whose backend was killed -------------------------------------------------------------------


class Killed:
    """Its old keeper lives, and so do its services."""

    def __init__(self, version: Path, folder: Path, ending: Callable[[ToyRun], ToyRun]) -> None:
        self.restored = Restored(version / "killed", folder)
        self.run = ending(ToyRun(self.restored.run_dir))
        self.keeper = OldKeeper(self.restored)
        self.keeper.workers(self.restored, "tree", 3)
        assert {*LIVING, "keeper"} == {key for key in self.restored.processes if "/" not in key}
        self.restored.write()

    def pid(self, key: str) -> int:
        return self.restored.processes[key][0]

    @property
    def leaders(self) -> dict[str, int]:
        """The recorded leader of each service, by its name."""
        return {key.rpartition(".")[0]: self.pid(key) for key in LIVING}

    def end_late(self) -> None:
        """One of the services ends, with exit code 3, while no backend lives."""
        (self.run.run_dir / "late-ends").touch()
        wait_until((self.run.run_dir / "exits" / "late.1.json").exists, what="the exit status of late")

    def leading(self) -> dict[str, int]:
        """The processes that lead a session with the tag of a service: two of one service were a double."""
        table = procfs.scan()
        found: dict[str, int] = {}
        for pid, tag in self.run.tagged().items():
            if pid in table and table[pid].session == pid and not tag.endswith("/0"):
                service = tag.split("/")[2]
                # A worker with a session of its own inherits its leader's tag.
                if table[pid].ppid != found.get(service):
                    assert service not in found, f"{service}: pids {found[service]} and {pid}"
                    found[service] = pid
        return found


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def killed(
    request: pytest.FixtureRequest, tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> Iterator[Killed]:
    made = Killed(request.param, tmp_path, ending)
    yield made
    for pid, tick in made.restored.processes.values():
        if procfs.alive(pid, tick):  # the test has failed, and nobody else may know it
            os.kill(pid, signal.SIGKILL)


def test_without_a_backend_its_services_are_shown_by_their_files(killed: Killed) -> None:
    killed.end_late()
    now = status(killed.run)
    assert (now["live"], now["state"], now["result"]) == (False, "unsupervised", None)
    alive = {name: pid for name, pid in killed.leaders.items() if name != "late"}
    assert {s["name"]: s["pid"] for s in now["services"] if s["pid"] is not None} == alive
    found = services(now)
    assert {found[name]["why"] for name in alive} == {"still running; the backend is not running"}
    assert found["late"]["exit"]["code"] == 3
    assert found["over"]["exit"]["code"] == 0
    assert len(found["tree"]["members"]) == 4
    assert [r["generation"] for r in now["replicas"]["items"]] == [2, 2, 1]


def test_it_is_adopted_shown_and_stopped(killed: Killed) -> None:
    run = killed.run
    killed.end_late()
    told("up", "--detach", "--run", run.run_dir)
    now = run.snapshot()
    run.backends.append(now.backend.pid)
    assert now.backend.keeper_pid == killed.keeper.process.pid, "the old keeper goes on"
    run.until("late", "failed")
    assert killed.leading() == {name: pid for name, pid in killed.leaders.items() if name != "late"}

    state = status(run)
    assert (state["live"], state["attempt"], state["result"]) == (True, 1, None)
    assert state["state"] in ("starting", "running")
    found = services(state)
    for key in LIVING:
        name, _, generation = key.rpartition(".")
        expected = ("failed", None) if name == "late" else ("ready", killed.pid(key))
        assert (found[name]["state"], found[name]["pid"]) == expected
        assert (found[name]["generation"], found[name]["restarts"]) == (int(generation), int(generation) - 1)
    assert found["late"]["exit"]["code"] == 3 and found["over"]["exit"]["code"] == 0
    assert set(found["tree"]["members"]) == {
        pid for key, (pid, _) in killed.restored.processes.items() if key.startswith("tree.1")
    }
    assert found["door"]["ports"]["http"] == killed.restored.ports["door.http"]
    before = (killed.restored.recorded / "events.jsonl").read_text().count("\n")
    assert [event.seq for event in run.events()] == list(range(1, run.events()[-1].seq + 1))
    assert run.events()[before].kind == "adopting"

    with subprocess.Popen(
        command("attach", "--plain", run.run_dir), stdout=subprocess.PIPE, text=True
    ) as attached:
        try:
            assert attached.stdout is not None
            shown = attached.stdout.readline()
            assert f"attached to run {RunDir(run.run_dir).name}" in shown
            told("stop", "--run", run.run_dir)
            shown += attached.stdout.read()
            assert attached.wait(60) == 5, shown
        finally:
            attached.kill()
    assert f"adopted pid {killed.pid('door.1')} (ready)" in shown
    check_end(killed)


def check_end(killed: Killed) -> None:
    """Its result says how, nothing is left, and each exit status is a real one."""
    result = killed.run.result()
    assert (result.state, result.exit_code, result.attempt, result.schema) == ("stopped", 5, 1, SCHEMA)
    assert killed.keeper.process.wait(60) == 0, "the old keeper has gone"
    for key, (pid, tick) in killed.restored.processes.items():
        assert not procfs.alive(pid, tick), key
    found = services(status(killed.run))
    assert {name: next(iter(service["exit"].values())) for name, service in found.items()} == {
        "over": 0,
        "late": 3,
        **dict.fromkeys(killed.leaders.keys() - {"late"}, 15),  # the number of SIGTERM
    }
    assert not killed.run.tagged()


def test_its_services_are_restarted_through_the_old_keeper(killed: Killed) -> None:
    run = killed.run
    run.start()
    port = killed.restored.ports["door.http"]
    assert answering(port) == killed.pid("door.1")
    told("restart", "door", "--run", run.run_dir)
    door = run.service("door")
    assert (door.generation, door.ports["http"]) == (2, port), (
        "it serves on the socket that the old keeper holds"
    )
    assert answering(port) == door.pid
    table = procfs.scan()
    assert door.pid is not None and table[door.pid].ppid == killed.keeper.process.pid
    told("restart", "replica-2", "--run", run.run_dir)
    assert run.service("replica-2").generation == 2
    (run.run_dir / "go").touch()  # its trainer completes, which ends the run
    result = run.result()
    assert (result.state, result.exit_code) == ("done", 0)
    assert killed.keeper.process.wait(60) == 0


def test_it_is_stopped_without_being_started_again(killed: Killed) -> None:
    killed.end_late()
    told("stop", "--run", killed.run.run_dir)
    check_end(killed)
    started = [event.service for event in killed.run.events() if event.text == "process started"]
    recorded = (killed.restored.recorded / "events.jsonl").read_text()
    assert len(started) == recorded.count('"process started"'), "this version has started nothing"


def test_a_stop_that_the_version_before_had_begun_is_finished(killed: Killed) -> None:
    run = killed.run
    cause = {"service": None, "text": "stopped by somebody", "at": 1.0, "log": None, "offset": None}
    verdict = {"state": "stopped", "exit_code": 5, "cause": cause}
    with (run.run_dir / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"at": 1.0, "k": "stop", "now": False, "verdict": verdict}) + "\n")
    run.start()
    result = run.result()
    assert (result.state, result.exit_code, result.summary) == ("stopped", 5, "stopped by somebody")
    assert killed.keeper.process.wait(60) == 0
    assert not any(procfs.alive(pid, tick) for pid, tick in killed.restored.processes.values())


def test_with_its_keeper_killed_too_it_is_adopted_by_the_numbers_of_its_processes(killed: Killed) -> None:
    run = killed.run
    killed.keeper.process.kill()
    killed.keeper.process.wait()
    run.start()
    now = run.snapshot()
    assert now.backend.keeper_pid != killed.keeper.process.pid
    assert {s.name: s.pid for s in now.services if s.pid is not None} == killed.leaders
    assert answering(killed.restored.ports["door.http"]) == killed.pid("door.1")
    run.command("stop")
    assert run.result().exit_code == 5
    assert not any(procfs.alive(pid, tick) for pid, tick in killed.restored.processes.values())


def test_workers_that_only_the_recorded_trees_know_are_ended(killed: Killed) -> None:
    """Neither descent nor tag tells whose they are: their leader and the keeper are dead, and some have no tag."""
    run = killed.run
    workers = [member for key, member in killed.restored.processes.items() if key.startswith("tree.1/")]
    killed.keeper.process.kill()
    killed.keeper.process.wait()
    os.kill(killed.pid("tree.1"), signal.SIGKILL)
    wait_until(lambda: not procfs.alive(*killed.restored.processes["tree.1"]), what="the end of the leader")
    run.start()
    run.until("tree", lambda s: s.generation == 2)
    assert not any(procfs.alive(*worker) for worker in workers)


def answering(port: int) -> int:
    """The pid that answers on a port."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with sock.makefile("rb") as answer:
            return int(answer.read().rpartition(b"\r\n\r\n")[2])
