"""Two things at once, and a keeper that is slow or hangs: real processes; that the keeper waits for a file system that
does not answer is simulated by ptrace."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit.frozen import Frozen
from kit.runs import WEB, ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.control.messages import CommandError, ControlError
from liverl.plan.spec import Dependency, PortSpec, Probe, Probes, RestartPolicy, Settings
from liverl.procs import procfs
from liverl.rundir.layout import RunDir

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


def keeper_of(run: ToyRun) -> int:
    """The pid of the run's keeper."""
    return next(pid for pid, tag in run.tagged().items() if "/keeper/" in tag)


def begins(run: ToyRun, name: str, command: str, **args: Any) -> threading.Thread:
    """Send a command that starts a service, in a thread, and wait until its process is asked for."""

    def send() -> None:
        with contextlib.suppress(CommandError, ControlError):
            run.command(command, **args)

    thread = threading.Thread(target=send)
    thread.start()

    def begun() -> bool:
        service = run.snapshot().service(name)
        asked = service is not None and (service.state, service.why) == ("preparing", "starting the process")
        return asked or (service is not None and service.state == "starting")

    wait_until(begun, what=f"the start of {name}")
    return thread


def with_b_down(make: Make, **options: Any) -> ToyRun:
    """A run of the services ``a``, which is ready, and ``b``, which was stopped."""
    run = make(toy("a", "sleep"), toy("b", "sleep", fatal=False), **options)
    run.start()
    for name in ("a", "b"):
        run.until(name, "ready")
    run.command("stop_service", service="b")
    run.until("b", "stopped")
    return run


def killed(run: ToyRun, name: str) -> float:
    """Kill a service's leader; returns when, by the backend's clock."""
    pid = run.service(name).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return run.snapshot().at


def test_an_exit_is_asked_for_when_the_keeper_waits_for_its_disk(make: Make) -> None:
    run = make(*(toy(name, "sleep", fatal=False, restart=NEVER) for name in ("a", "b")))
    run.start()
    for name in ("a", "b"):
        run.until(name, "ready")
    keeper = Frozen(keeper_of(run))
    at = killed(run, "b")  # nobody reaps it, so that nobody knows how it ended
    wait_until(lambda: run.snapshot().at > at + 6, what="longer than the keeper's word is waited for")
    assert run.service("b").state != "failed"
    keeper.let_go()
    ended = run.until("b", "failed")
    assert ended.exit is not None and ended.exit.signal == 9


def test_a_start_that_hangs_does_not_hold_up_the_end(make: Make) -> None:
    settings = Settings(scan_interval=0.3, stuck_after=1.0)
    run = with_b_down(make, settings=settings)
    keeper = Frozen(keeper_of(run))
    starting = begins(run, "b", "start_service", service="b")
    run.command("stop", now=True)
    wait_until(lambda: RunDir(run.run_dir).read_result(), what="result.json")
    keeper.bury()
    starting.join(60)
    result = run.result()
    assert result.exit_code == 75 and "b: its start has not finished" in result.summary
    assert "the keeper does not respond; killing it" in [e.text.partition(" (pid")[0] for e in run.events()]
    assert not run.tagged()


def scalable(make: Make, **options: Any) -> ToyRun:
    return make(replica=toy("replica-{index}", "sleep", kind="replica"), replicas=1, **options)


def test_a_replica_that_is_stopped_while_it_is_being_started_ends_once_it_is_there(make: Make) -> None:
    run = scalable(make)
    run.start()
    run.until("replica-0", "ready")
    refused: list[CommandError] = []

    def scale() -> None:
        try:
            run.command("scale", delta=1)
        except CommandError as error:
            refused.append(error)

    keeper = Frozen(keeper_of(run))
    adding = threading.Thread(target=scale)
    adding.start()
    wait_until(lambda: run.snapshot().service("replica-1"), what="the start of replica-1")
    run.command("stop_service", service="replica-1")
    run.until("replica-1", "stopped")
    assert not refused, "what is being started may be there yet"
    keeper.let_go()
    adding.join(60)
    assert len(refused) == 1 and "not added: replica-1" in str(refused[0])
    assert run.snapshot().service("replica-1") is None
    assert not [tag for tag in run.tagged().values() if "/replica-1/" in tag]


def test_what_was_stopped_while_it_was_being_started_ends_under_the_next_backend(make: Make) -> None:
    run = with_b_down(make)
    run.kill_backend()
    run.start(env={"LIVERL_CRASH_AT": "after_spawn:b"})
    run.until("a", "ready")
    keeper = Frozen(keeper_of(run))
    starting = begins(run, "b", "start_service", service="b")
    run.command("stop_service", service="b")
    run.until("b", "stopped")
    backend = run.backends[-1]
    keeper.let_go()
    wait_until(lambda: not procfs.alive(backend, None), what="the backend's crash")
    os.waitpid(backend, 0)
    starting.join(60)
    run.start()
    wait_until(
        lambda: not [t for t in run.tagged().values() if "/b/" in t], what="the end of what was started"
    )
    assert run.until("b", "stopped").pid is None
    run.until("a", "ready")


def test_a_restart_during_a_start_that_was_stopped_returns(make: Make) -> None:
    """The process that was being started serves the restart, which waited for a later one for ever."""
    run = with_b_down(make)
    keeper = Frozen(keeper_of(run))
    starting = begins(run, "b", "start_service", service="b")
    run.command("stop_service", service="b")
    run.until("b", "stopped")
    with ThreadPoolExecutor(1) as pool:
        restarting = pool.submit(run.command, "restart", service="b")
        run.until("b", "waiting")
        keeper.let_go()
        try:
            answer = restarting.result(60)
        finally:
            run.kill_backend()  # ends a command that does not return
    starting.join(60)
    assert answer["pid"] in [pid for pid, tag in run.tagged().items() if "/b/" in tag]


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


@pytest.mark.parametrize("taken", [False, True])
def test_a_free_port_is_the_same_when_all_that_held_it_were_killed(make: Make, taken: bool) -> None:
    """The clients of the service know its address, and have no other way to it."""
    served = toy(
        "served",
        argv=(sys.executable, "-c", WEB),
        ports=(PortSpec("http", held=True),),
        probes=Probes(startup=Probe("http", port="http", interval=0.1)),
    )
    client = toy("client", "sleep", depends_on=(Dependency("listening", "served.http"),))
    run = make(served, client)
    run.start()
    before = run.until("served", "ready")
    keeper = next(pid for pid, tag in run.tagged().items() if "/keeper/" in tag)
    run.kill_backend()
    held = (keeper, *before.members)
    for pid in held:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(procfs.alive(pid, None) for pid in held), what="their end")
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if taken:
            other.bind(("127.0.0.1", before.ports["http"]))
            other.listen()
        run.start()
        after = run.until("served", lambda s: s.state == "ready" and s.generation > before.generation)
    finally:
        other.close()
    assert (after.ports != before.ports) == taken
    words = f"its port {before.ports['http']} was taken while neither backend nor keeper ran"
    assert len([e for e in run.events() if words in e.text]) == taken


# Its first process is ready at once, a later one when a file says so.
LATE_AGAIN = """
import os, pathlib, time
run, generation = pathlib.Path(os.environ["LIVERL_RUN_DIR"]), os.environ["LIVERL_GENERATION"]
(run / "starts").mkdir(exist_ok=True)
(run / "starts" / generation).touch()
while generation != "1" and not (run / "go").exists(): time.sleep(0.02)
print("ready", flush=True)
time.sleep(600)
"""


def test_ten_restarts_at_once_restart_once(make: Make) -> None:
    slow = toy(
        "slow",
        argv=(sys.executable, "-c", LATE_AGAIN),
        probes=Probes(startup=Probe("log_line", pattern="ready", interval=0.1)),
    )
    run = make(slow)
    run.start()
    run.until("slow", "ready")

    def restart(number: int) -> dict[str, Any]:
        if number >= 5:  # the new process exists, and is not ready yet
            run.until("slow", lambda status: status.generation > 1 and status.state == "starting")
        return run.command("restart", service="slow")

    def asked() -> int:
        return len([e for e in run.events() if e.kind == "command" and e.text.endswith("restart slow")])

    with ThreadPoolExecutor(10) as pool:
        answering = pool.map(restart, range(10))
        try:
            wait_until(lambda: asked() == 10, what="all commands")
        finally:
            (run.run_dir / "go").touch()
        answers = list(answering)
    assert {answer["generation"] for answer in answers} == {2}
    assert len({answer["pid"] for answer in answers}) == 1
    assert sorted(os.listdir(run.run_dir / "starts")) == ["1", "2"]
    assert run.command("restart", service="slow")["generation"] == 3, "a later one restarts it again"


def test_a_restart_that_a_stop_ended_does_not_hold_up_the_next(make: Make) -> None:
    run = make(toy("a", "sleep", fatal=False), toy("b", "sleep"))
    run.start()
    run.until("a", "ready")
    for _ in range(6):
        threads = [
            threading.Thread(target=refused, args=(run, name), kwargs={"service": "a"})
            for name in ("restart", "stop_service", "restart")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    run.command("restart", service="a")
    assert run.service("a").state == "ready"


def refused(run: ToyRun, name: str, **args: Any) -> str | None:
    """Send a command; returns why it was refused, None if it was not."""
    try:
        run.command(name, **args)
    except CommandError as error:
        return str(error)
    return None


REPLICA = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_scaling_from_many_clients_at_once_ends(make: Make, seed: int) -> None:
    """Some commands of clients that scaled at the same time never returned, and left replicas that nobody wanted."""
    replica = toy(
        "replica-{index}",
        argv=(sys.executable, "-c", REPLICA),
        env={"PORT": "{port:http}"},
        kind="replica",
        ports=(PortSpec("http"),),
        probes=Probes(startup=Probe("http", port="http", interval=0.1)),
        fatal=False,
        restart=NEVER,
    )
    run = make(replica=replica, replicas=1)
    run.start()
    run.until("replica-0", "ready")
    chance = random.Random(seed)
    wishes = [
        chance.choice(({"delta": 1}, {"delta": -1}, {"to": 1}, {"to": 3}, {"remove": "replica-1"}))
        for _ in range(24)
    ]
    wishes += [{"delta": 1}, {"to": 1}] * 3

    def scale(wish: dict[str, Any]) -> str | None:
        return refused(run, "scale", **wish)

    pool = ThreadPoolExecutor(6)
    waiting = [pool.submit(scale, wish) for wish in wishes]
    try:
        wait_until(lambda: all(one.done() for one in waiting), 150, "the end of every scale")
    finally:
        open_ = [wish for wish, one in zip(wishes, waiting, strict=True) if not one.done()]
        pool.shutdown(wait=False, cancel_futures=True)
        assert not open_, f"never answered: {open_}"
    run.command("scale", to=2)
    snapshot = run.snapshot()
    assert snapshot.replicas.expected == len(snapshot.replicas.items) == len(snapshot.services) == 2
    leaders = {service.pid for service in snapshot.services}
    assert {pid for pid, tag in run.tagged().items() if "/replica-" in tag} == leaders


def test_commands_that_start_the_same_run_at_once_start_it_once_and_show_it(make: Make) -> None:
    run = make(toy("a", "sleep"))
    argv = [sys.executable, "-m", "liverl_tui", "up", "--detach", "--run", str(run.run_dir)]
    ups = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    said = [up.communicate(timeout=120) for up in ups]
    assert [up.returncode for up in ups] == [0] * 4, said
    assert [out.strip() for out, _ in said] == [str(run.run_dir)] * 4
    run.until("a", "ready")
    starts = [event for event in run.events() if event.kind in ("run_started", "adopting")]
    assert [event.kind for event in starts] == ["run_started"]
    assert len(run.backends_alive()) == 1


def test_commands_that_create_a_run_of_one_name_at_once_create_it_once_and_show_it(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    """Who loses got exit code 2 or 4: the directory existed, or held no run yet. The run fails soon, for want of an
    environment: a command that begins while it stops, or after its end, is told so."""
    argv = [
        sys.executable,
        "-m",
        "liverl_tui",
        "up",
        "--detach",
        "--name",
        "one",
        "--run-root",
        str(tmp_path),
    ]
    argv += ["--set", "infrastructure.litellm_port=0", "--set", "environments.proxy.python=/nothing/here"]
    pipe = subprocess.PIPE
    ups = [subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) for _ in range(3)]
    said = [up.communicate(timeout=120) for up in ups]
    run = ending(ToyRun(tmp_path / "liverl" / "one"))
    words = ("has ended", "is stopping; nothing was started")
    late = [number for number, (_, error) in enumerate(said) if any(text in error for text in words)]
    assert len(late) < 3 and [up.returncode for up in ups] == [2 if n in late else 0 for n in range(3)], said
    assert [out.strip() for out, _ in said] == ["" if n in late else str(run.run_dir) for n in range(3)]
    assert [e.kind for e in run.events() if e.kind in ("run_started", "adopting")] == ["run_started"]
    assert len(run.backends_alive()) <= 1


@pytest.mark.parametrize("how", ["stop", "failure"])
def test_a_run_whose_directory_is_renamed_ends_with_a_result(make: Make, how: str) -> None:
    run = make(toy("a", "sleep", restart=NEVER))
    run.start()
    pid = run.until("a", "ready").pid
    assert pid is not None
    old, run.run_dir = run.run_dir, run.run_dir.with_name("renamed")
    os.rename(old, run.run_dir)
    told = wait_until(
        lambda: [e for e in run.events() if e.kind == "directory"], what="its new path is named"
    )
    assert f"renamed from {old} to {run.run_dir}" in told[0].text and told[0].level == "error"
    if how == "stop":
        run.command("stop")
    else:
        os.kill(pid, signal.SIGKILL)
    result = run.result()
    assert result.state == ("stopped" if how == "stop" else "failed")
    last = RunDir(run.run_dir).read_snapshot()
    assert last is not None and last.result == result
    assert not old.exists()
    run.run_dir = old  # what it has started is tagged with the old path
    wait_until(lambda: not run.tagged(), what="nothing is left")


def test_a_directory_that_is_renamed_back_is_no_fault(make: Make) -> None:
    run = make(toy("a", "sleep"))
    run.start()
    run.until("a", "ready")
    away = run.run_dir.with_name("renamed")
    os.rename(run.run_dir, away)
    events = away / "events.jsonl"
    wait_until(lambda: b"was renamed" in events.read_bytes(), what="its new path is named")
    os.rename(away, run.run_dir)
    wait_until(
        lambda: len([e for e in run.events() if e.kind == "directory"]) == 2, what="its old path is named"
    )
    run.command("restart", service="a")
    run.command("stop")
    assert run.result().exit_code == 0
