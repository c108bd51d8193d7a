"""What is read of processes that are not ours: their sockets, how they were started, and Ray by its dashboard."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.ports import free_port
from kit.waiting import wait_until

from liverl.external import litellm, port_holders, ray_cluster, restart
from liverl.external.litellm import NotLiteLLM
from liverl.external.port_holders import HolderProcess, PortHolders
from liverl.procs import procfs

Spawn = Callable[..., subprocess.Popen[bytes]]
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts processes that are killed when the test is over."""
    made: list[subprocess.Popen[bytes]] = []

    def begin(*argv: str, **more: object) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(argv, **more))  # type: ignore[call-overload]
        return made[-1]

    yield begin
    for process in made:
        process.kill()
        process.wait()


def member(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    return process.pid, procfs.start_tick(process.pid) or 0


def held_by(*processes: subprocess.Popen[bytes], argv: tuple[str, ...] | None = None) -> PortHolders:
    found = tuple(
        HolderProcess(
            *member(p), os.getpid(), os.geteuid(), procfs.arguments(p.pid) if argv is None else argv
        )
        for p in processes
    )
    return PortHolders(frozenset({1}), "127.0.0.1", found, found)


# --- sockets --------------------------------------------------------------------------------------------


def test_a_listening_socket_and_who_has_it() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
        assert port_holders.look(port) is None, "bound, and nobody listens"
        sock.listen()
        inode = os.fstat(sock.fileno()).st_ino
        found = port_holders.look(port)
        assert found is not None
        assert (found.inodes, found.address, found.unseen) == (frozenset({inode}), "127.0.0.1", ())
        (me,) = found.holders
        assert (me.pid, me.ppid, me.uid) == (os.getpid(), os.getppid(), os.geteuid())
        assert me.tick == procfs.start_tick(os.getpid()) and me.argv == procfs.arguments(os.getpid())
        assert inode in port_holders.sockets_of(os.getpid())
        again = port_holders.look_again(found)
        assert again is not None and (again.holders, again.inodes) == (found.holders, found.inodes)
    assert inode not in port_holders.sockets_of(os.getpid())
    assert port_holders.look(port) is None and port_holders.look_again(found) is None


def test_who_has_gone_has_no_sockets(spawn: Spawn) -> None:
    process = spawn(sys.executable, "-c", "")
    wait_until(lambda: (p := procfs.read_proc(process.pid)) is not None and p.zombie, what="its end")
    assert port_holders.read(process.pid) is None, "a zombie holds nothing"
    process.wait()
    assert port_holders.read(process.pid) is None and port_holders.sockets_of(process.pid) == set()


def test_the_addresses_of_this_host() -> None:
    own = port_holders.own_addresses()
    assert "127.0.0.1" in own
    assert "127.255.255.255" not in own and "127.0.0.0" not in own, "a broadcast and a network"
    if Path("/proc/net/if_inet6").exists():
        listed = {line.split()[0] for line in Path("/proc/net/if_inet6").read_text().splitlines()}
        assert {socket.inet_pton(socket.AF_INET6, a).hex() for a in own if ":" in a} == listed


# --- how it was started ---------------------------------------------------------------------------------


@pytest.fixture
def proxy(tmp_path: Path, spawn: Spawn) -> Callable[..., subprocess.Popen[bytes]]:
    """A process with LiteLLM's command line (simulated)."""
    (tmp_path / "litellm").write_text(SLEEP)
    (tmp_path / "cc.yaml").write_text("model_list: []")

    def begin(*options: str, **more: object) -> subprocess.Popen[bytes]:
        values = {"cwd": tmp_path, "env": {"NAME": "value"}, "stdout": subprocess.DEVNULL} | more
        process = spawn(sys.executable, str(tmp_path / "litellm"), *options, **values)
        wait_until(lambda: len(procfs.arguments(process.pid)) == 2 + len(options), what="its command line")
        return process

    return begin


def test_everything_that_starts_it_again(proxy: Spawn, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as out:
        process = proxy("--config", "cc.yaml", stdout=out)
    found, launch = litellm.capture(held_by(process), 8002)
    assert (found.pid, found.tick) == member(process)
    assert launch.argv == (sys.executable, str(tmp_path / "litellm"), "--config", "cc.yaml")
    assert (launch.cwd, launch.config, launch.log) == (str(tmp_path), tmp_path / "cc.yaml", log)
    assert launch.env["NAME"] == "value"


def test_output_that_goes_to_no_file_has_no_log(proxy: Spawn, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as out:
        gone = proxy("-c", str(tmp_path / "cc.yaml"), stdout=out)
    log.rename(tmp_path / "log.1")
    log.touch()
    for process in (
        proxy("-c", "cc.yaml"),
        proxy("-c", "cc.yaml", stdout=subprocess.PIPE),
    ):
        assert litellm.capture(held_by(process), 8002)[1].log is None
    moved = litellm.capture(held_by(gone), 8002)[1]
    assert moved.log == tmp_path / "log.1" and moved.config == tmp_path / "cc.yaml"
    (tmp_path / "log.1").unlink()
    assert litellm.capture(held_by(gone), 8002)[1].log is None, "that file is no more"


def test_what_cannot_be_started_again_as_it_was(proxy: Spawn, tmp_path: Path) -> None:
    with pytest.raises(
        NotLiteLLM, match=rf"^the configuration {tmp_path}/none.yaml of pid .* does not exist$"
    ):
        litellm.capture(held_by(proxy("-c", "none.yaml")), 8002)
    with pytest.raises(
        NotLiteLLM, match=r"^the configuration /tmp/litellm_cc_1.yaml of pid .* does not exist$"
    ):
        litellm.capture(held_by(proxy()), 1)
    with pytest.raises(NotLiteLLM, match=r"^cannot read the environment of pid .*$"):
        litellm.capture(held_by(proxy("-c", "cc.yaml", env={})), 8002)
    one = held_by(proxy("-c", "cc.yaml"))
    (root,) = one.roots
    other = HolderProcess(root.pid, root.tick + 1, root.ppid, root.uid, root.argv)
    with pytest.raises(NotLiteLLM, match=rf"^pid {root.pid} has just exited; try again$"):
        litellm.capture(PortHolders(one.inodes, one.address, (other,), (other,)), 8002)


def test_a_worker_without_its_parent_needs_the_command_beside_its_python(
    proxy: Spawn, tmp_path: Path
) -> None:
    env = {"WORKER_CONFIG": json.dumps({"config": "cc.yaml"})}
    worker = proxy(env=env)
    python = tmp_path / "bin" / "python"
    argv = (str(python), "-c", "from multiprocessing.spawn import spawn_main")
    with pytest.raises(
        NotLiteLLM,
        match=rf"^the parent of pid {worker.pid} .* has exited, and {tmp_path}/bin/litellm, which ",
    ):
        litellm.capture(held_by(worker, argv=argv), 8002)
    python.parent.mkdir()
    (python.parent / "litellm").touch()
    _, launch = litellm.capture(held_by(worker, argv=argv), 8002)
    assert launch.argv[:2] == (str(python), str(python.parent / "litellm"))
    assert launch.argv[-2:] == ("--num_workers", "1")


# --- Ray by its dashboard -------------------------------------------------------------------------------

DASHBOARD = """
import socket, sys, time
taken = [socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[1].split(",") if port]
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def dashboard(tmp_path: Path, spawn: Spawn) -> Callable[..., int]:
    """Starts a process with the command line of Ray's dashboard (simulated), which listens on ``ports``."""
    script = tmp_path / "ray" / "dashboard" / "dashboard.py"
    script.parent.mkdir(parents=True)
    script.write_text(DASHBOARD)

    def begin(ports: str, *options: str, **env: str) -> int:
        argv = (sys.executable, str(script), ports, f"--gcs-address=127.0.0.1:{tmp_path.name}", *options)
        process = spawn(*argv, env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        return process.pid

    return begin


def of(tmp_path: Path, ours: Callable[[int], bool] = lambda pid: False) -> list[ray_cluster.RayCluster]:
    """The clusters that this test has started."""
    return [c for c in ray_cluster.running(ours) if c.gcs == f"127.0.0.1:{tmp_path.name}"]


def free_pair() -> int:
    """A port that is free and whose next one is free as well."""
    for _ in range(100):
        port = free_port()
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports")


def test_ray_is_found_by_the_process_of_its_dashboard(dashboard: Callable[..., int], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch()
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    first = dashboard("", "--port=8265", "--host=0.0.0.0", "--modules-to-load=Usage", **secret, OTHER="x")
    second = dashboard("", "--port=9", "--host=10.0.0.9")
    found = {c.pid: c for c in of(tmp_path, lambda pid: pid == second)}
    assert set(found) == {first, second}
    one, two = found[first], found[second]
    assert (one.api, one.token_file, dict(one.env)) == ("127.0.0.1:8265", str(token), secret)
    assert (one.served, one.ours, one.python) == (False, False, sys.executable)
    assert one.tick == procfs.start_tick(first)
    assert (two.api, two.token_file, dict(two.env), two.served, two.ours) == (
        "10.0.0.9:9",
        "",
        {},
        True,
        True,
    )
    ticks = [c.tick for c in of(tmp_path)]
    assert ticks == sorted(ticks, reverse=True), "the newest first"


def test_the_port_that_a_dashboard_has_got(dashboard: Callable[..., int], tmp_path: Path) -> None:
    port = free_pair()
    pid = dashboard(f"{port + 1}", f"--port={port}", "--port-retries=1")
    assert [(c.pid, c.api) for c in of(tmp_path)] == [(pid, f"127.0.0.1:{port + 1}")]
    later = free_pair()
    # somebody else's socket on the first port; none of its own yet: the first is what it will try
    with socket.create_server(("127.0.0.1", later)):
        other = dashboard("", f"--port={later}", "--port-retries=3")
        assert {c.pid: c.api for c in of(tmp_path)}[other] == f"127.0.0.1:{later}"
    beyond = free_pair()
    third = dashboard(f"{beyond + 1}", f"--port={beyond - 1}", "--port-retries=1")
    assert {c.pid: c.api for c in of(tmp_path)}[third] == f"127.0.0.1:{beyond - 1}", (
        "it would not try that one"
    )
    fixed = dashboard(f"{later + 1}", f"--port={later}")
    assert {c.pid: c.api for c in of(tmp_path)}[fixed] == f"127.0.0.1:{later}", "it does not try another"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_another_users_dashboard_names_no_program_for_us(tmp_path: Path, spawn: Spawn) -> None:
    def begin(user: int) -> int:
        line = ("/x/ray/dashboard/dashboard.py", "--port=1", f"--gcs-address=127.0.0.1:{tmp_path.name}")
        process = spawn("/bin/sh", "-c", "read x", *line, stdin=subprocess.PIPE, user=user, cwd="/")
        wait_until(lambda: ray_cluster.parse(procfs.arguments(process.pid)), what="its command line")
        return process.pid

    begin(65534)
    mine = begin(os.geteuid())
    assert [c.pid for c in of(tmp_path)] == [mine]


# --- ending and coming up -------------------------------------------------------------------------------


async def test_only_who_still_is_that_process_is_ended(spawn: Spawn) -> None:
    process = spawn(sys.executable, "-c", SLEEP)
    pid, tick = member(process)
    await restart.end_tree((pid, tick + 1), 5.0)
    assert process.poll() is None
    gone = spawn(sys.executable, "-c", "")
    gone.wait()
    await restart.end_tree((gone.pid, 1), 5.0)
    await restart.end_tree((pid, tick), 30.0)
    assert process.wait() == -signal.SIGTERM


async def test_a_tree_that_is_deaf_is_killed_with_its_children(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    parent = "import signal, subprocess, sys; signal.signal(15, signal.SIG_IGN); "
    parent += f"subprocess.run([sys.executable, '-c', {child!r}])"
    process = spawn(sys.executable, "-c", parent, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    (below,) = [p for p in procfs.scan().values() if p.ppid == process.pid]
    ticking = iter(range(1000))
    monkeypatch.setattr(restart, "time", SimpleNamespace(monotonic=lambda: float(next(ticking))))
    await restart.end_tree(member(process), 3.0)
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not procfs.alive(below.pid, below.tick), what="its child's end")


async def test_what_is_in_flight_has_its_time_to_end(spawn: Spawn) -> None:
    drains = "import signal, sys; "
    drains += "signal.signal(15, lambda *_: (print('drains', flush=True), sys.stdin.read(), sys.exit(7)))"
    process = spawn(
        sys.executable,
        "-c",
        f"{drains}; print('up', flush=True); signal.pause()",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    ending = asyncio.create_task(restart.end_tree(member(process), 600.0))
    assert await asyncio.to_thread(process.stdout.readline) == b"drains\n"
    assert not ending.done()
    process.stdin.close()
    assert await asyncio.to_thread(process.wait, 60) == 7
    await ending


async def test_it_is_up_when_it_answers_and_lives(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(sys.executable, "-c", SLEEP)
    answers = iter(["not yet", "not yet", None])
    asked: list[str | None] = []

    async def healthy() -> str | None:
        asked.append(next(answers))
        return asked[-1]

    await restart.until_up(member(process), healthy, tmp_path / "log", 0, 600.0)
    assert asked == ["not yet", "not yet", None]

    async def answered() -> str | None:
        return None

    # somebody else answers on its port
    (tmp_path / "log").write_text("the last words")
    pid, tick = member(process)
    with pytest.raises(
        restart.RestartProblem,
        match=rf"^the new proxy, pid {pid}, has exited; last lines of .*\nthe last words$",
    ):
        await restart.until_up((pid, tick + 1), answered, tmp_path / "log", 0, 600.0)


async def test_a_port_that_stays_taken_is_told_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 9.9, 10.0, 10.9, 99.0])
    monkeypatch.setattr(restart, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        taken = await restart.until_free(int(sock.getsockname()[1]))
        assert taken is not None and [p.pid for p in taken.holders] == [os.getpid()]
    assert next(seconds) == 10.9, "it was looked for until the ten seconds were over"


async def test_what_cannot_be_killed_is_told_with_who_is_left(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that the kernel does not end (in uninterruptible sleep), simulated: signals that do not arrive."""
    process = spawn(sys.executable, "-c", SLEEP)
    sent: list[signal.Signals] = []
    monkeypatch.setattr(restart, "_send", lambda who, number: sent.append(number))
    passed = iter(range(10_000))
    monkeypatch.setattr(restart, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + next(passed)))
    monkeypatch.setattr(port_holders, "look_again", lambda held: None)
    with pytest.raises(restart.RestartProblem, match=rf"^pid {process.pid} .* could not be killed$"):
        await restart.end(held_by(process), 1.0)
    assert sent[0] is signal.SIGTERM and set(sent[1:]) == {signal.SIGKILL}


async def test_a_signal_that_may_not_be_sent_is_told(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    process = spawn(sys.executable, "-c", SLEEP)
    monkeypatch.setattr(restart.tree, "send_all", lambda members, number: ["pid 1 may not", "pid 2 may not"])
    with pytest.raises(restart.RestartProblem, match=r"^pid 1 may not; pid 2 may not$"):
        await restart.end(held_by(process))


async def test_a_worker_that_came_meanwhile_is_ended_as_well(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = spawn(sys.executable, "-c", SLEEP), spawn(sys.executable, "-c", SLEEP)
    late = held_by(second)
    monkeypatch.setattr(port_holders, "look_again", lambda held: late)
    ended = await restart.end(held_by(first), 0.0)
    assert ended == sorted([first.pid, second.pid])
    assert first.wait() == -signal.SIGTERM and second.wait() == -signal.SIGKILL
