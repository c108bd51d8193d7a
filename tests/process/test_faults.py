"""Kills at named points, lost keepers, deaf and stopped processes, ports of others: over toy services."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kit.injected import StopClock
from kit.processes import states, stop_process
from kit.runs import WEB, ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.plan.spec import PortSpec, Probe, Probes, RestartPolicy, ServiceSpec, StopStage
from liverl.procs import procfs

Make = Callable[..., ToyRun]
NEVER = RestartPolicy(mode="never")
INSIDE = Path(__file__).with_name("faults_inside.py")

# Deaf to SIGTERM, once it says so.
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf now", flush=True)
while True: time.sleep(60)
"""
# Ready once a file says so.
LATE = """
import os, time
while not os.path.exists(os.path.join(os.environ["LIVERL_RUN_DIR"], "go")): time.sleep(0.02)
print("now ready", flush=True)
while True: time.sleep(60)
"""


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *services, folder="", **options: ending(make_run(tmp_path / folder, services, **options))


def script(name: str, text: str, *argv: str, **changes: object) -> ServiceSpec:
    from msgspec.structs import replace

    return replace(toy(name, **changes), argv=(sys.executable, "-c", text, *argv))


def web() -> ServiceSpec:
    probes = Probes(startup=Probe("http", port="http", interval=0.1))
    return script("web", WEB, ports=(PortSpec("http", held=True),), probes=probes)


def leaders(run: ToyRun) -> list[str]:
    """The tags of the processes that lead a session: one for each living service."""
    tags = run.tagged()
    table = procfs.scan()
    led = [tag for pid, tag in tags.items() if (proc := table.get(pid)) and proc.session == pid]
    return sorted(tag for tag in led if not tag.endswith("/0"))


def keeper_of(run: ToyRun) -> int:
    pid = run.snapshot().backend.keeper_pid
    assert pid is not None
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not procfs.alive(pid, None), what=f"the end of {pid}")


def new_keeper(run: ToyRun, old: int) -> int:
    return wait_until(
        lambda: (k := keeper_of(run)) != old and procfs.alive(k, None) and k, what="a new keeper"
    )


def complaints(run: ToyRun) -> list[str]:
    return [e.text for e in run.events() if e.kind == "internal"]


def get(port: int, timeout: float = 60.0) -> int:
    """The pid that answers."""
    with socket.create_connection(("127.0.0.1", port), timeout) as sock:
        return answer(sock)


def answer(sock: socket.socket) -> int:
    sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
    data = b""
    while chunk := sock.recv(4096):
        data += chunk
    return int(data.rpartition(b"\r\n\r\n")[2])


# --- the backend, at named points -------------------------------------------------------------------------


def test_killed_while_a_service_starts(make: Make) -> None:
    run = make(
        script("late", LATE, probes=Probes(startup=Probe("log_line", pattern="now ready", interval=0.1)))
    )
    run.start()
    pid = run.until("late", "starting").pid
    for _ in range(3):
        run.kill_backend()
        run.start()
        assert (run.service("late").state, run.service("late").pid) == ("starting", pid)
    (run.run_dir / "go").touch()
    status = run.until("late", "ready")
    assert (status.pid, status.generation, status.restarts) == (pid, 1, 0)


@pytest.mark.parametrize("leader", [pytest.param("", marks=pytest.mark.slow), "deaf-leader"])
def test_killed_in_the_middle_of_a_stop(make: Make, leader: str) -> None:
    run = make(toy("tree", "tree", *([leader] if leader else [])), toy("other", "sleep"))
    backend = run.start(env={"LIVERL_CRASH_AT": "stopping:tree"})
    members = set(run.until("tree", lambda s: len(s.members) == 4).members)
    try:
        run.command("stop")
    except Exception:
        pass  # the backend may die before it answers
    wait_until(lambda: not procfs.alive(backend, None), what="the drill's kill")
    assert any(procfs.alive(pid, None) for pid in members)
    run.start()
    result = run.result()
    assert (result.state, result.exit_code) == ("stopped", 0)
    assert [pid for pid in members if procfs.alive(pid, None)] == []
    assert leaders(run) == []


@pytest.mark.parametrize("point", ["before_spawn", "after_spawn"])
def test_killed_while_a_service_is_restarted(make: Make, point: str) -> None:
    """The second generation's start; the first one's exit is journalled already."""
    run = make(toy("a", "sleep"), toy("b", "sleep"))
    run.start()
    first, other = run.until("a", "ready").pid, run.until("b", "ready").pid
    run.kill_backend()
    assert first is not None
    kill(first)
    run.start_to_crash(f"{point}:a")
    assert leaders(run) == sorted(["tests/toy/b/1", *(["tests/toy/a/2"] if point == "after_spawn" else [])])
    run.start()
    status = run.until("a", "ready")
    assert leaders(run) == sorted(["tests/toy/b/1", f"tests/toy/a/{status.generation}"])
    assert status.generation in (2, 3) and run.service("b").pid == other
    assert status.exit is None
    ends = [e.text for e in run.events() if e.service == "a" and "SIGKILL" in e.text]
    assert ends, "the real exit of the first generation is told"


def test_killed_when_it_hears_of_an_exit_again_and_again(make: Make) -> None:
    run = make(toy("steady", "sleep"), toy("task", "exit", "7", "0.2", ends_run=True, restart=NEVER))
    run.start_to_crash("leader_exited:task")
    run.start_to_crash("leader_exited:task")
    run.start()
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1)
    assert any("exit 7" in e.text for e in run.events() if e.service == "task")


# --- the keeper -------------------------------------------------------------------------------------------


def test_a_keeper_killed_twice_is_replaced_twice(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("b", "sleep"), web())
    run.start()
    before = {n: run.until(n, "ready").pid for n in ("a", "b", "web")}
    port = run.service("web").ports["http"]
    first = keeper_of(run)
    kill(first)
    second = new_keeper(run, first)
    kill(second)
    new_keeper(run, second)
    assert {n: run.service(n).pid for n in before} == before
    pid = before["a"]
    assert pid is not None
    kill(pid)
    again = run.until("a", lambda s: s.state == "ready" and s.generation == 2)
    # Its parent had died: the kernel tells (6.15 and later), or nobody knows. Never 0.
    exits = [e.text for e in run.events() if e.service == "a" and "its main process exited" in e.text]
    assert exits and ("SIGKILL" in exits[0] or "unknown" in exits[0]), exits
    kill(again.pid or 0)
    run.until("a", lambda s: s.state == "ready" and s.generation == 3)
    exits = [e.text for e in run.events() if e.service == "a" and "its main process exited" in e.text]
    assert "SIGKILL" in exits[-1], "a child of the new keeper has a real exit"
    assert get(port) == before["web"]
    assert complaints(run) == []
    run.command("stop")
    assert run.result().exit_code == 0
    wait_until(lambda: run.tagged() == {}, what="the last process")


def test_keepers_killed_as_fast_as_they_come(make: Make) -> None:
    run = make(toy("a", "sleep"), web())
    run.start()
    before = {n: run.until(n, "ready").pid for n in ("a", "web")}
    for _ in range(8):
        found = [p for p, tag in run.tagged().items() if tag.endswith("/keeper/0")]
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_until(
            lambda old=set(found): {p for p, t in run.tagged().items() if t.endswith("/keeper/0")} - old
        )
    done = run.command("restart", service="a")
    assert done["generation"] == 2
    done = run.command("restart", service="web")
    assert get(run.service("web").ports["http"]) == done["pid"] != before["web"]
    assert complaints(run) == []
    assert leaders(run) == ["tests/toy/a/2", "tests/toy/web/2"]


@pytest.mark.parametrize("killed", ["keeper", "both"])
def test_a_held_port_stays_ours(make: Make, killed: str) -> None:
    """Nobody serves it for a while: a connection waits and is answered, and a stranger cannot take the port."""
    run = make(web())
    run.start()
    first = run.until("web", "ready")
    port, keeper = first.ports["http"], keeper_of(run)
    if killed == "both":
        run.kill_backend()
    kill(keeper)
    if killed == "both":
        run.start()
    new_keeper(run, keeper)
    run.command("stop_service", service="web")
    stranger = socket.socket()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
    with socket.create_connection(("127.0.0.1", port), 60) as waiting:
        run.command("start_service", service="web")
        second = run.service("web")
        assert answer(waiting) == second.pid != first.pid
    assert second.ports["http"] == port and second.generation == 2


@pytest.mark.parametrize("lives", ["the backend", "the keeper only"])
def test_a_run_whose_directory_was_removed_ends_and_frees_its_port(make: Make, lives: str) -> None:
    run = make(web(), toy("b", "sleep"))
    backend = run.start()
    port, keeper = run.until("web", "ready").ports["http"], keeper_of(run)
    run.until("b", "ready")
    if lives == "the keeper only":
        run.kill_backend()

    def removed() -> bool:  # the backend may put a file in it meanwhile
        shutil.rmtree(run.run_dir, ignore_errors=True)
        return not run.run_dir.exists()

    wait_until(removed, what="the removal")
    wait_until(lambda: run.tagged() == {}, what="the end of the services")
    # A process that is ending shows no tag any more a moment before it has gone.
    wait_until(lambda: not procfs.alive(keeper, None) and not procfs.alive(backend, None), what="their end")
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.bind(("127.0.0.1", port))


def test_a_keeper_that_dies_in_the_middle_of_a_spawn_leaves_no_double(make: Make, tmp_path: Path) -> None:
    """The child exists, and nobody was told: it must be found before another is started."""
    slow = ":".join(f"/{i:x}" for i in range(20000))  # the search for the program takes a moment
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "the-toy").symlink_to(sys.executable)
    from msgspec.structs import replace

    spec = toy("a", "sleep", env={"PATH": f"{slow}:{tmp_path}/bin"})
    spec = replace(spec, argv=("the-toy", *spec.argv[1:]))
    run = make(spec, toy("b", "sleep"))
    run.start()
    run.until("a", "ready", 60)
    b = run.until("b", "ready").pid
    for round_ in range(2):  # the second finds what the first has left
        keeper = keeper_of(run)
        before = run.service("a")
        os.kill(before.pid or 0, signal.SIGKILL)

        def child(keeper: int = keeper, old: int | None = before.pid) -> bool:
            # The fork has no tag of its own before it becomes the service.
            return any(
                p.ppid == keeper and p.pid not in (old, b) and not p.zombie for p in procfs.scan().values()
            )

        wait_until(child, what="the fork")
        os.kill(keeper, signal.SIGKILL)
        new_keeper(run, keeper)
        after = run.until("a", lambda s, g=before.generation: s.state == "ready" and s.generation > g, 60)
        assert leaders(run) == [f"tests/toy/a/{after.generation}", "tests/toy/b/1"], round_
    assert run.service("b").pid == b


# --- processes that will not ------------------------------------------------------------------------------


def test_a_stopped_process_is_killed_in_the_end(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("tree", "tree"))
    run.start()
    pids = {run.until("a", "ready").pid, *run.until("tree", lambda s: len(s.members) == 4).members}
    for pid in pids:
        stop_process(pid or 0)
    run.command("stop")
    assert run.result().exit_code == 0, "75 would say that something did not die"
    assert [pid for pid in pids if procfs.alive(pid or 0, None)] == []


@pytest.mark.parametrize(
    ("argv", "cwd", "words"),
    [
        (("/no/such/python", "-m", "x"), "{run_dir}", "cannot execute /no/such/python: [Errno 2]"),
        (("{run_dir}/plan.json",), "{run_dir}", "[Errno 13] Permission denied"),
        ((sys.executable,), "/no/such/folder", "cannot enter /no/such/folder"),
        (("{python:nowhere}",), "{run_dir}", "environment 'nowhere' is not ready"),
    ],
)
@pytest.mark.parametrize("mode", ["never", "on_failure"])
def test_a_service_that_cannot_be_executed(
    make: Make, argv: tuple[str, ...], cwd: str, words: str, mode: str
) -> None:
    from msgspec.structs import replace

    policy = RestartPolicy(mode=mode, base=0.05, cap=0.1, max_failures=2)  # type: ignore[arg-type]
    run = make(replace(toy("bad", restart=policy), argv=argv, cwd=cwd), toy("good", "sleep"))
    run.start()
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and result.cause.service == "bad" and words in result.cause.text
    state = "failed" if mode == "never" else "gave_up"
    told = [e for e in run.events() if e.service == "bad" and e.data.get("state") == state]
    assert len(told) == 1 and words in told[0].text and told[0].level == "error"
    wait_until(lambda: run.tagged() == {}, what="the last process")


# --- others -----------------------------------------------------------------------------------------------


def test_a_run_of_the_same_name_elsewhere_is_left_alone(make: Make) -> None:
    mine, theirs = make(toy("tree", "tree"), folder="mine"), make(toy("tree", "tree"), folder="theirs")
    for run in (mine, theirs):
        run.start()
    ours = set(mine.until("tree", lambda s: len(s.members) == 4).members)
    others = set(theirs.until("tree", lambda s: len(s.members) == 4).members)
    mine.kill_backend()
    mine.start()
    mine.until("tree", lambda s: len(s.members) >= 4)
    assert set(mine.service("tree").members) == ours
    mine.command("stop")
    assert mine.result().exit_code == 0
    assert [pid for pid in ours if procfs.alive(pid, None)] == []
    assert all(procfs.alive(pid, None) for pid in others)
    assert theirs.service("tree").state == "ready"


# --- in a world of its own: pids that come again, disks that are full or read-only --------------------------


def inside(case: str, tmp_path: Path, *namespaces: str) -> None:
    """Run one case of faults_inside.py in new namespaces; its assertions are ours."""
    if os.geteuid() != 0:
        pytest.skip("namespaces need root here")
    argv = ["unshare", *namespaces, sys.executable, str(INSIDE), case, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_a_pid_that_came_again_is_neither_adopted_nor_signalled(tmp_path: Path) -> None:
    inside("pid_reuse", tmp_path, "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.mark.parametrize("case", ["read_only", "full", "full_before_adoption"])
def test_up_on_a_disk_that_takes_nothing(tmp_path: Path, case: str) -> None:
    inside(case, tmp_path, "--mount")


@pytest.mark.parametrize(
    "case", ["fills_up", "fills_up_and_the_backend_dies", "fills_up_and_the_run_ends", "fills_up_for_good"]
)
def test_a_disk_that_fills_up_in_the_middle(tmp_path: Path, case: str) -> None:
    inside(case, tmp_path, "--mount")


# --- the command line over the real backend -----------------------------------------------------------------


def up(*args: object, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "liverl_tui.cli.main", "up", *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **more,  # type: ignore[arg-type]
    )


def finish(process: subprocess.Popen[str], seconds: float = 60.0) -> str:
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_port_of_a_stranger_is_named_before_anything_starts(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen();"
         "print(s.getsockname()[1], flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    try:
        port = holder.stdout.readline().strip()
        root = tmp_path / "runs"
        process = up(
            "--no-ui", "--run-root", root, "--name", "x", "--set", f"infrastructure.litellm_port={port}"
        )
        out = finish(process)
        assert process.returncode == 3, out
        user = procfs.user_of(holder.pid)
        assert f"port {port}" in out and f"pid {holder.pid} (user {user})" in out and "socket.socket()" in out
        assert "nothing was started" in out and "Traceback" not in out
        assert not root.exists() or not any(root.rglob("*.json*"))
        assert holder.poll() is None
    finally:
        holder.communicate("\n")


def test_up_detach_into_a_pipe_returns(make: Make, tmp_path: Path) -> None:
    run = make(toy("a", "sleep"))
    command = f"{sys.executable} -m liverl_tui.cli.main up --detach --run {run.run_dir} | cat"
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.strip() == str(run.run_dir), done
    run.until("a", "ready")


def test_up_detach_adopts_the_only_run_without_a_backend(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("b", "sleep"))
    first = run.start()
    pids = [run.until(name, "ready").pid for name in ("a", "b")]
    run.kill_backend()
    command = [
        sys.executable,
        "-m",
        "liverl_tui.cli.main",
        "up",
        "--detach",
        "--run-root",
        run.run_dir.parent.parent,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout) == (0, f"{run.run_dir}\n"), done
    adopted = "adopted run tests/toy, whose backend had died; its services are still running"
    new = f"liverl-tui up --detach --run-root {run.run_dir.parent.parent} --name NAME"
    assert done.stderr.splitlines()[-1] == f"{adopted} (to start a new run: {new})"
    assert [run.until(name, "ready").pid for name in ("a", "b")] == pids
    run.backends.append(run.snapshot().backend.pid)
    assert run.backends[-1] != first


def test_a_second_up_attaches_and_says_so(make: Make) -> None:
    run = make(toy("a", "sleep"))
    pid = run.start()
    run.until("a", "ready")
    process = up("--no-ui", "--run", run.run_dir)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert f"is already live (backend pid {pid}); attached to it" in line
        service = run.service("a").pid
        process.send_signal(signal.SIGTERM)  # it only looks: the run is not its own
        process.wait(60)
        assert run.service("a").pid == service
    finally:
        finish(process)


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_to_up_stops_in_order_and_ctrl_c_then_at_once(make: Make, signals: int) -> None:
    slow = (StopStage("TERM", "leader", 600.0), StopStage("KILL", "tree", 5.0))
    run = make(toy("deaf", "deaf-until", "over", stop=slow), toy("task", "sleep", ends_run=True))
    process = up("--no-ui", "--run", run.run_dir)
    try:
        deaf = wait_until(lambda: _pid(run, "deaf"))
        wait_until(lambda: _pid(run, "task"))
        run.backends.append(run.snapshot().backend.pid)
        os.kill(process.pid, signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: run.service("deaf").state == "stopping")
        assert procfs.alive(deaf, None), "a stop in order gives it its time"
        if signals == 2:
            process.send_signal(signal.SIGINT)
        else:
            (run.run_dir / "over").touch()
        out = finish(process)  # long before its time is up
        assert process.returncode == 5, out
        assert not procfs.alive(deaf, None)
        assert ("stopping the run immediately" in out) == (signals == 2)
        assert "stopping services in dependency order" in out
        assert run.result().exit_code == 5 and run.tagged() == {}
    finally:
        finish(process)


def term(run: ToyRun, *pids: int) -> None:
    """SIGTERM to each, three times, as Slurm does: one after the other is taken, so that none merges with another. On
    a slow machine that takes longer than such signals are one request: the runs have a ``StopClock``. Returns once
    each has done with them what it does."""
    for pid in pids:
        for _ in range(3):
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda pid=pid: not _pending(pid), what=f"{pid} to take SIGTERM")
        wait_until(lambda pid=pid: states(pid) <= {"S"}, what=f"{pid} to wait for the next one")
    for _ in range(2):
        run.snapshot()  # the main loop has come to it, behind what signals had it do


def _pending(pid: int) -> bool:
    """Whether a SIGTERM waits to be taken."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = (int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))
    return any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)


@pytest.mark.parametrize("by", ["a command", "the training's end"])
def test_signals_to_a_backend_that_stops_already(make: Make, tmp_path: Path, by: str) -> None:
    clock = StopClock(tmp_path / "stops")
    slow = (StopStage("TERM", "leader", 600.0), StopStage("KILL", "tree", 5.0))
    probes = Probes(startup=Probe("log_line", pattern="deaf now", interval=0.1))
    task = toy("task", "exit-when", "0", "trained", ends_run=True)
    run = make(script("deaf", DEAF, stop=slow, probes=probes), task)
    backend = run.start(env=clock.env)
    deaf = wait_until(lambda: _pid(run, "deaf"))
    wait_until(lambda: _pid(run, "task"))
    if by == "a command":
        run.command("stop", now=False)
    else:
        (run.run_dir / "trained").touch()
    wait_until(lambda: run.service("deaf").state == "stopping")
    if by != "a command":
        clock.later()  # what is over is no request: the first one comes now
    term(run, backend)
    clock.later()
    assert procfs.alive(deaf, None)
    os.kill(backend, signal.SIGTERM)
    assert run.result().exit_code == (5 if by == "a command" else 0)
    assert [("killing all" in text) for text in stops(run)] == [False, True]


@pytest.mark.parametrize("first", ["up", "backend"])
def test_sigterms_to_both_at_once_are_one_request_and_a_later_one_is_another(
    make: Make, tmp_path: Path, first: str
) -> None:
    clock = StopClock(tmp_path / "stops")
    slow = (StopStage("TERM", "leader", 600.0), StopStage("KILL", "tree", 5.0))
    probes = Probes(startup=Probe("log_line", pattern="deaf now", interval=0.1))
    run = make(script("deaf", DEAF, stop=slow, probes=probes), toy("task", "sleep", ends_run=True))
    process = up("--no-ui", "--run", run.run_dir, env={**os.environ, **clock.env})
    try:
        deaf = wait_until(lambda: _pid(run, "deaf"))
        wait_until(lambda: _pid(run, "task"))
        backend = run.snapshot().backend.pid
        run.backends.append(backend)
        term(run, *((process.pid, backend) if first == "up" else (backend, process.pid)))
        wait_until(lambda: run.service("deaf").state == "stopping")
        clock.later()
        assert procfs.alive(deaf, None)
        assert all("in dependency order" in text for text in stops(run))
        os.kill(process.pid if first == "up" else backend, signal.SIGTERM)
        out = finish(process)
        assert (process.returncode, run.result().exit_code) == (5, 5), out
        assert "killing all services" in stops(run)[-1] and len(stops(run)) <= 3
    finally:
        finish(process)


def stops(run: ToyRun) -> list[str]:
    return [event.text for event in run.events() if event.kind == "stop"]


def _pid(run: ToyRun, name: str) -> int | None:
    try:
        status = run.service(name)
    except Exception:
        return None
    return status.pid if status.state == "ready" else None


def test_a_hangup_ends_neither_up_nor_the_run(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("task", "exit-when", "0", "go", ends_run=True))
    process = up("--no-ui", "--run", run.run_dir)
    try:
        # A restart of a service that is still being started takes that process: wait for both.
        wait_until(lambda: _pid(run, "a") and _pid(run, "task"))
        backend = run.snapshot().backend.pid
        os.kill(process.pid, signal.SIGHUP)
        os.kill(backend, signal.SIGHUP)
        assert run.command("restart", service="a")["generation"] == 2, "it goes on"
        (run.run_dir / "go").touch()
        out = finish(process)
        assert process.returncode == 0, out
        assert run.result().state == "done"
    finally:
        finish(process)


def test_up_brings_a_killed_backend_back(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("task", "exit-when", "0", "go", ends_run=True))
    process = up("--no-ui", "--run", run.run_dir)
    try:
        pid = wait_until(lambda: _pid(run, "task"))
        backend = run.snapshot().backend.pid
        os.kill(backend, signal.SIGKILL)
        wait_until(lambda: _pid(run, "task") == pid and run.snapshot().backend.pid != backend)
        (run.run_dir / "go").touch()
        out = finish(process)
        assert process.returncode == 0, out
        assert "the backend has died; starting it again" in out
        assert run.result().state == "done"
    finally:
        finish(process)


def test_result_is_written_once_and_whole(make: Make) -> None:
    run = make(toy("task", "exit", "0", ends_run=True))
    run.start()
    assert run.result().state == "done"
    lines = (run.run_dir / "journal.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line)["k"] for line in lines].count("end") == 1
