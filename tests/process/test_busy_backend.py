"""A backend whose main loop is held up: its control socket answers, says so, and kills the run past it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kit.cli import run_cli
from kit.processes import stop_process
from kit.runs import ToyRun, make_run, toy
from kit.waiting import PATIENCE_S, wait_until

import liverl
from liverl.control import front
from liverl.control.blocking import Connection
from liverl.control.client import connect
from liverl.control.front import MAX_COMMANDS
from liverl.control.messages import BUSY, BackendBusy, BackendSilent
from liverl.control.paths import connect_control
from liverl.control.server import ControlServer
from liverl.procs import procfs
from liverl.rundir.journal import read_journal
from liverl.rundir.layout import RunDir
from liverl_tui.data import source

PLACE = "liverl.supervise.services.failpoints.blockpoint"


@dataclass
class Blocked:
    """A run whose backend's main loop stands while ``file`` exists."""

    run: ToyRun
    file: Path
    pids: set[int]

    @property
    def pid(self) -> int:
        return self.run.backends[-1]

    @property
    def holds(self) -> bool:
        """Whether the loop has not gone on since."""
        return self.file.exists() and Path(f"{self.file}.blocked").exists()

    def block(self) -> None:
        self.file.touch()
        wait_until(lambda: self.holds, what="the loop's stop")

    def release(self) -> None:
        self.file.unlink(missing_ok=True)
        wait_until(lambda: not Path(f"{self.file}.blocked").exists(), what="the loop goes on")

    def services_live(self) -> list[int]:
        return [pid for pid in self.pids if procfs.alive(pid, None)]


@pytest.fixture
def blocked(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Iterator[Blocked]:
    run = ending(make_run(tmp_path, [toy("a", "deaf"), toy("b", "tree")]))
    file = tmp_path / "block"
    run.start(env={"LIVERL_BLOCK_AT": f"scan:{file}"})
    a = run.until("a", "ready").members
    b = run.until("b", lambda s: s.state == "ready" and len(s.members) == 4).members
    yield Blocked(run, file, {*a, *b})
    file.unlink(missing_ok=True)


def busy_words(blocked: Blocked) -> str:
    return f"(pid {blocked.pid}) is busy and does not respond: its main loop has been in {PLACE}, line "


def started(run: ToyRun) -> list[str]:
    return [e.text for e in run.events() if e.kind == "state" and e.data.get("state") == "starting"]


def test_what_needs_the_loop_is_refused_in_words_and_not_done_later(blocked: Blocked) -> None:
    blocked.block()
    status = run_cli("status", "--run", blocked.run.run_dir)
    assert status.returncode != 0 and busy_words(blocked) in status.stderr, status.stderr
    with pytest.raises(BackendBusy, match="restart was not done"):
        liverl.command(blocked.run.run_dir, "restart", service="a")
    with pytest.raises(BackendSilent):  # what callers of earlier versions expect
        liverl.snapshot(blocked.run.run_dir)
    assert blocked.holds, "answered while it stood"
    blocked.release()
    assert run_cli("status", "--run", blocked.run.run_dir).returncode == 0
    assert blocked.run.service("a").restarts == 0
    assert not [e for e in blocked.run.events() if e.kind == "command"]
    assert not [e for e in blocked.run.events() if e.kind == "internal"]


async def test_a_ping_says_for_how_long_and_where(blocked: Blocked) -> None:
    async with connect(blocked.run.run_dir) as client:
        await client.ping()
        blocked.block()
        with connect_control(blocked.run.run_dir, 5.0) as sock, sock.makefile("rb") as lines:
            hello = json.loads(lines.readline())["hello"]
            assert hello["pid"] == blocked.pid and hello["busy"] >= 0

            def asked() -> dict[str, Any] | None:
                sock.sendall(b'{"id":1,"do":"ping"}\n')
                answer: dict[str, Any] = json.loads(lines.readline())["ok"]
                return answer if answer["busy"] >= 2 else None

            answer = wait_until(asked, what="two seconds")
        assert answer["doing"].startswith(PLACE) and busy_words(blocked) in answer["text"]
        with pytest.raises(BackendBusy):  # before a command, which would be carried out much later
            await client.ping()
        assert blocked.holds
        blocked.release()
        wait_until(lambda: Connection(blocked.run.run_dir).snapshot(), what="its state")
        await client.ping()


def test_a_kill_does_not_wait_for_the_loop(blocked: Blocked) -> None:
    run = blocked.run
    blocked.block()
    stopped = run_cli("stop", "--now", "--run", run.run_dir)
    assert blocked.holds, "it was over before the loop went on"
    assert stopped.returncode == 0, stopped.stderr
    assert busy_words(blocked) in stopped.stderr
    assert f"killed {len(blocked.pids)} processes of its services" in stopped.stderr
    assert not blocked.services_live()
    result = run.result()
    assert result.state == "stopped"
    assert "killed by liverl-tui stop (pid " in result.summary
    assert result.summary.endswith("as the backend did not respond")
    stops = [r for r in read_journal(RunDir(run.run_dir).journal).records if r["k"] == "stop"]
    assert stops and all("killed by liverl-tui stop" in str(r["verdict"]) for r in stops)
    assert not read_journal(RunDir(run.run_dir).journal).damaged
    assert len(started(run)) == 2, "nothing was started again"
    log = (run.run_dir / "backend.log").read_text()
    assert "failpoints.py" in log and "Ordered by liverl-tui stop" in log  # where it hung


def test_a_client_of_an_earlier_version_that_leaves_is_enough(blocked: Blocked) -> None:
    blocked.block()
    with connect_control(blocked.run.run_dir, 5.0) as sock, sock.makefile("rb") as lines:
        assert json.loads(lines.readline())["hello"]["protocol"] == 4
        sock.sendall(b'{"id":1,"do":"subscribe","snapshots":true}\n')
        assert json.loads(lines.readline()) == {"id": 1, "ok": {}}
        sock.sendall(
            b'{"id":2,"do":"command","name":"stop","args":{"now":true},"client":"old","wait":false}\n'
        )
    result = blocked.run.result()
    assert blocked.holds
    assert result.summary == "stopped: killed by old, as the backend did not respond"
    assert not blocked.services_live()


@pytest.mark.parametrize("ends", ["goes on", "is killed"])
def test_a_stop_that_is_no_kill_is_recorded_and_holds(blocked: Blocked, ends: str) -> None:
    run = blocked.run
    blocked.block()
    with Connection(run.run_dir) as connection:
        answer = connection.command("stop", {"now": False}, client="me", wait=False, timeout=60)
    assert answer["accepted"] and "(it is recorded)" in answer["text"] and "stop --now" in answer["text"]
    assert busy_words(blocked) in answer["text"]
    assert blocked.holds and len(blocked.services_live()) == len(blocked.pids)
    if ends == "goes on":
        blocked.release()
    else:
        os.kill(blocked.pid, signal.SIGKILL)
        wait_until(lambda: not procfs.alive(blocked.pid, None), what="the backend's end")
        blocked.file.unlink()
        run.start()
    assert run.result().summary == "stopped by me"
    assert not blocked.services_live()


def test_stop_waits_and_says_so(blocked: Blocked, tmp_path: Path) -> None:
    blocked.block()
    told: list[str] = []
    released = threading.Thread(
        target=lambda: (wait_until(lambda: told, what="its words"), blocked.release()), daemon=True
    )
    released.start()
    result = liverl.stop_run(blocked.run.run_dir, client="me", on_note=told.append)
    released.join()
    assert result is not None and result.summary == "stopped by me"
    assert len(told) == 1 and "the run is stopped as soon as it goes on" in told[0]


def test_a_kill_of_a_loop_that_goes_on_is_the_loops(blocked: Blocked) -> None:
    pid = blocked.pid
    result = liverl.stop_run(blocked.run.run_dir, now=True, client="me")
    assert result is not None and result.summary == "stopped by me"
    assert "Ordered by" not in (blocked.run.run_dir / "backend.log").read_text()
    assert not procfs.alive(pid, None) and not blocked.services_live()


@pytest.mark.parametrize("how", ["busy", "stopped by a signal"])
async def test_the_interface_sees_it_and_kills_the_run_without_it(
    blocked: Blocked, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "QUIET_S", 0.2)
    monkeypatch.setattr(source, "ANSWER_S", 5.0 if how == "busy" else 0.3)
    shown = source.RunSource(RunDir(blocked.run.run_dir), interval=0.1)
    told: list[str] = []
    async with aclosing(shown.views()) as views:
        await anext(view async for view in views if view.live)
        if how == "busy":
            blocked.block()
        else:
            stop_process(blocked.pid)
        silent = await anext(view async for view in views if view.silent)
        assert f"(pid {blocked.pid})" in silent.why and (how != "busy" or PLACE in silent.why)
        result = await shown.kill(told.append)
        await anext(view async for view in views if view.link == "ended" and not view.silent)
    assert result.summary == f"stopped: killed by {shown.name}, as the backend did not respond"
    assert f"{len(blocked.pids)} processes of its services" in told[0]
    assert not blocked.services_live()


# --- with a loop that the test holds up -----------------------------------------------------------


@dataclass
class Backend:
    """A handler, and what is called past it. ``hold``: the loop stands until it is set."""

    hold: threading.Event = field(default_factory=threading.Event)
    commands: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    past: list[str] = field(default_factory=list)
    unwritten: str = ""

    def snapshot(self) -> Any:
        raise AssertionError("not asked")

    def events_since(self, seq: int) -> list[Any]:
        return []

    async def command(self, name: str, args: dict[str, Any], client: str) -> dict[str, Any]:
        if name == "hold":
            self.past.append("held")
            self.hold.wait(60)
        self.commands.append((name, args))
        return {"text": name}

    def record(self, *, now: bool, who: str) -> str:
        self.past.append(f"record {now} {who}")
        return self.unwritten

    def let_go(self) -> None:
        """The loop goes on; what is sent from now on is waited for, however long a slow machine takes."""
        front.TAKE_S = PATIENCE_S
        self.hold.set()

    def kill(self, who: str) -> int | None:
        self.past.append("kill")
        return None

    def replace(self, who: str, why: str) -> None:
        self.past.append("replace")
        raise OSError("no memory")


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setattr(front, "TAKE_S", 0.5)
    made, ready, over = Backend(), threading.Event(), []

    async def serve() -> None:
        over.append((asyncio.get_running_loop(), asyncio.Event()))
        server = ControlServer(tmp_path, made, urgent=made)
        await server.start()
        ready.set()
        await over[0][1].wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(60)
    yield made
    made.hold.set()
    over[0][0].call_soon_threadsafe(over[0][1].set)
    thread.join(60)
    assert not thread.is_alive()


class Raw:
    """A client of lines."""

    def __init__(self, folder: Path) -> None:
        self.sock = connect_control(folder, 20.0)
        self.lines = self.sock.makefile("rb")
        assert b"hello" in self.lines.readline()

    def send(self, **request: Any) -> None:
        self.sock.sendall(json.dumps({"id": 1, "do": "command", **request}).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.lines.readline())
        return answer


def held(backend: Backend, folder: Path) -> Raw:
    client = Raw(folder)
    client.send(id=9, name="hold")
    wait_until(lambda: "held" in backend.past, what="the loop's stop")
    return client


def test_where_no_other_can_be_started_the_loop_ends_the_run_itself(backend: Backend, tmp_path: Path) -> None:
    client = held(backend, tmp_path)
    backend.unwritten = "the disk is full"
    client.send(id=2, name="stop", args={"now": True}, client="me")
    answer = client.read()
    assert answer["id"] == 2 and answer["ok"]["killed"] == 0
    assert "its keeper does not answer" in answer["ok"]["text"]
    wait_until(lambda: backend.past[-1] == "replace", what="the attempt")
    assert backend.past == ["held", "record True me", "kill", "replace"]
    backend.let_go()
    assert client.read() == {"id": 9, "ok": {"text": "hold"}}  # and no second answer to the stop
    client.send(id=3, name="x")
    assert client.read()["id"] == 3
    assert backend.commands == [("hold", {}), ("stop", {"now": True}), ("x", {})]


def test_a_stop_is_answered_once_and_done_once(backend: Backend, tmp_path: Path) -> None:
    client = held(backend, tmp_path)
    backend.unwritten = "the disk is full"
    client.send(id=2, name="stop", args={})
    text = client.read()["ok"]["text"]
    assert "(it could not be recorded: the disk is full)" in text
    backend.let_go()
    assert client.read()["id"] == 9
    client.send(id=3, name="x")
    assert client.read()["id"] == 3
    assert [name for name, _ in backend.commands] == ["hold", "stop", "x"]


def test_wrong_arguments_of_a_stop_do_nothing(backend: Backend, tmp_path: Path) -> None:
    client = held(backend, tmp_path)
    client.send(id=2, name="stop", args={"now": "yes"})
    assert client.read()["error"]["code"] == "bad_args"
    assert backend.past == ["held"]


def test_what_waits_for_a_busy_loop_is_bounded(backend: Backend, tmp_path: Path) -> None:
    """Commands are counted, other requests are not read; every one of them is refused, and none is done later."""
    client = held(backend, tmp_path)
    for number in range(100, 100 + MAX_COMMANDS):
        client.send(id=number, name="x")
    answers = [client.read() for _ in range(MAX_COMMANDS)]
    assert answers[0]["error"]["code"] == "busy" and answers[0]["id"] == 100 + MAX_COMMANDS - 1
    assert {a["error"]["code"] for a in answers[1:]} == {BUSY}
    assert sorted(a["id"] for a in answers) == list(range(100, 100 + MAX_COMMANDS))
    for number in range(20):
        client.send(id=number + 1000, do="events")
    assert [client.read()["id"] for _ in range(20)] == list(range(1000, 1020))
    backend.let_go()
    assert client.read()["id"] == 9
    client.send(id=3, name="last")
    assert client.read()["id"] == 3
    assert [name for name, _ in backend.commands] == ["hold", "last"]
