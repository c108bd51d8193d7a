"""Two things at once, and a keeper that is slow or hangs: real processes; a file system that does not answer is a pipe
that nobody reads (simulated)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.control.messages import CommandError
from liverl.plan.spec import Dependency, PortSpec, Probe, Probes, RestartPolicy, Settings
from liverl.procs import procfs

Make = Callable[..., ToyRun]
NEVER = RestartPolicy(mode="never")
IN_A_CHILD = """
import http.server, os, signal, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
fd = int(os.environ["LIVERL_LISTEN_FD"])
if os.fork():
    os.close(fd)
    signal.pause()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=fd)
server.serve_forever()
"""


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *services, **options: ending(make_run(tmp_path, services, **options))


class Stuck:
    """A path on which whoever opens it for writing hangs, until it is let go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)

    def let_go(self) -> None:
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)


def hangs(run: ToyRun) -> bool:
    """Whether the run's keeper waits for somebody at the other end of a pipe."""
    keeper = next(pid for pid, tag in run.tagged().items() if "/keeper/" in tag)
    return Path(f"/proc/{keeper}/wchan").read_text() == "wait_for_partner"


def killed(run: ToyRun, name: str) -> float:
    """Kill a service's leader; returns when, by the backend's clock."""
    pid = run.service(name).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return run.snapshot().at


def test_an_exit_is_told_before_it_is_written_and_asked_for_when_the_disk_is_slow(make: Make) -> None:
    run = make(*(toy(name, "sleep", fatal=False, restart=NEVER) for name in ("a", "b", "c")))
    run.start()
    for name in ("a", "b", "c"):
        run.until(name, "ready")
    disk = Stuck(run.run_dir / "exits" / "a.1.json.tmp")
    killed(run, "a")
    ended = run.until("a", "failed")
    assert ended.exit is not None and ended.exit.signal == 9
    wait_until(lambda: hangs(run), what="the keeper at its disk")
    at = killed(run, "b")  # nobody reaps it, so that nobody knows how it ended
    wait_until(lambda: run.snapshot().at > at + 6, what="longer than the keeper's word is waited for")
    assert run.service("b").state != "failed"
    disk.let_go()
    ended = run.until("b", "failed")
    assert ended.exit is not None and ended.exit.signal == 9


def test_a_start_that_hangs_does_not_hold_up_the_end(make: Make) -> None:
    settings = Settings(scan_interval=0.3, stuck_after=1.0)
    run = make(toy("a", "sleep"), toy("b", "sleep"), settings=settings)
    Stuck(run.run_dir / "attempt_001" / "logs" / "b.1.log")
    run.start()
    run.until("a", "ready")
    wait_until(lambda: hangs(run), what="the keeper in the middle of a start")
    run.command("stop", now=True)
    result = run.result()
    assert result.exit_code == 75 and "b: its start has not finished" in result.summary
    assert "the keeper does not respond; killing it" in [e.text.partition(" (pid")[0] for e in run.events()]
    assert not run.tagged()


def scalable(make: Make, **options: Any) -> ToyRun:
    return make(replica=toy("replica-{index}", "sleep", kind="replica"), replicas=1, **options)


def test_a_replica_that_is_stopped_while_it_is_being_started_ends_once_it_is_there(make: Make) -> None:
    run = scalable(make)
    disk = Stuck(run.run_dir / "attempt_001" / "logs" / "replica-1.1.log")
    run.start()
    run.until("replica-0", "ready")
    refused: list[CommandError] = []

    def scale() -> None:
        try:
            run.command("scale", delta=1)
        except CommandError as error:
            refused.append(error)

    adding = threading.Thread(target=scale)
    adding.start()
    wait_until(lambda: hangs(run), what="the keeper in the middle of a start")
    run.command("stop_service", service="replica-1")
    run.until("replica-1", "stopped")
    assert not refused, "what is being started may be there yet"
    disk.let_go()
    adding.join(60)
    assert len(refused) == 1 and "not added: replica-1" in str(refused[0])
    assert run.snapshot().service("replica-1") is None
    assert not [tag for tag in run.tagged().values() if "/replica-1/" in tag]


def test_what_was_stopped_while_it_was_being_started_ends_under_the_next_backend(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("b", "sleep", fatal=False))
    disk = Stuck(run.run_dir / "attempt_001" / "logs" / "b.1.log")
    run.start(env={"LIVERL_CRASH_AT": "after_spawn:b"})
    run.until("a", "ready")
    wait_until(lambda: hangs(run), what="the keeper in the middle of a start")
    run.command("stop_service", service="b")
    run.until("b", "stopped")
    backend = run.backends[-1]
    disk.let_go()
    wait_until(lambda: not procfs.alive(backend, None), what="the backend's crash")
    os.waitpid(backend, 0)
    run.start()
    wait_until(
        lambda: not [t for t in run.tagged().values() if "/b/" in t], what="the end of what was started"
    )
    assert run.until("b", "stopped").pid is None
    run.until("a", "ready")


def test_a_service_that_has_the_port_itself_goes_on_when_keeper_and_backend_were_killed(make: Make) -> None:
    """Its own socket cannot be had from it: a child of it holds it, or the kernel does not let us."""
    served = toy(
        "served",
        argv=(sys.executable, "-c", IN_A_CHILD),
        ports=(PortSpec("http", held=True),),
        probes=Probes(startup=Probe("http", port="http", interval=0.1)),
        fatal=False,
    )
    client = toy("client", "sleep", depends_on=(Dependency("listening", "served.http"),))
    run = make(served, client)
    run.start()
    before = {name: run.until(name, "ready").pid for name in ("served", "client")}
    keeper = next(pid for pid, tag in run.tagged().items() if "/keeper/" in tag)
    os.kill(keeper, signal.SIGKILL)
    run.kill_backend()
    run.start()
    assert {name: run.until(name, "ready").pid for name in before} == before
    said = [e.text for e in run.events() if e.kind == "socket"]
    assert len(said) == 1 and "could not take over its listening socket" in said[0]
    assert not [e for e in run.events() if e.kind == "run_failed"]
