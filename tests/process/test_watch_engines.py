"""Replicas that a trainer has started, found by their processes. Simulated: the processes, with the titles of vLLM's
and Ray's; no Ray runs, and no dashboard."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.ports import free_port
from kit.waiting import wait_until
from kit.watched import Started

from liverl.watch.target import Target, WatchError
from liverl.watch.watcher import Watcher

WAITS = "import time\nprint('step:1 - actor/loss:0.1', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    one = Started(tmp_path / "run7")
    one.folder.mkdir()
    yield one
    one.stop()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[Target], Watcher]]:
    opened: list[Watcher] = []

    def go(target: Target) -> Watcher:
        opened.append(Watcher(target, Path(tempfile.mkdtemp(dir=tmp_path))))
        opened[-1].start()
        return opened[-1]

    yield go
    for one in opened:
        one.close()


def found(watcher: Watcher) -> dict[str, str]:
    return {one.name: one.state for one in watcher.poll().replicas.items}


def test_the_servers_of_a_trainer_and_none_of_anybody_else(
    started: Started, watch: Callable[[Target], Watcher]
) -> None:
    first, second, other = free_port(), free_port(), free_port()
    started.verl(started.folder / "train.log", first, second)
    started.server(other)
    started.vllm(free_port(), cwd=started.pids)  # its engine, and it, belong to nobody here
    mine = {f"vllm-{started.pids_of(port)[0]}": f"http://127.0.0.1:{port}" for port in (first, second)}
    started.pids_of(other)
    watcher = watch(Target(started.folder))
    wait_until(lambda: found(watcher) == dict.fromkeys(mine, "ready"), what="both replicas, and no other")
    seen = watcher.poll()
    assert {one.name: one.address for one in seen.replicas.items} == mine
    assert seen.replicas.ready == 2 and not seen.symptoms
    bare = watch(Target())  # whatever this user runs here
    wait_until(lambda: {*mine, f"vllm-{started.pids_of(other)[0]}"} <= found(bare).keys(), what="all of them")


def test_an_engine_that_is_killed(started: Started, watch: Callable[[Target], Watcher]) -> None:
    port = free_port()
    started.verl(started.folder / "train.log", port, program=WAITS)
    server, engine = started.pids_of(port)
    watcher = watch(Target(started.folder))
    wait_until(lambda: found(watcher) == {f"vllm-{server}": "ready"}, what="the replica")
    os.kill(engine, signal.SIGKILL)
    wait_until(lambda: found(watcher) == {f"vllm-{server}": "failed"}, what="its end")
    seen = watcher.poll()
    assert [one.id for one in seen.symptoms] == [f"replica_ended:vllm-{server}"]
    assert f"its engine (pid {engine}) has exited" in seen.symptoms[0].cause
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: "has exited" in watcher.poll().replicas.items[0].why)
    assert found(watcher) == {f"vllm-{server}": "failed"}, "it stays, so that it is seen"
    started.processes[0].kill()
    started.processes[0].wait()
    ids = lambda: [one.id for one in watcher.poll().symptoms]  # noqa: E731
    wait_until(lambda: ids() == ["process_ended:trainer"], what="a trainer that has ended needs no replica")


def test_the_servers_of_its_ray_session(started: Started, watch: Callable[[Target], Watcher]) -> None:
    """``ray start --head`` has made a daemon of the raylet: its workers are below no trainer."""
    session = started.folder.parent / "ray/session_2026-11-27_11-57-01_123456_42"
    (session / "logs").mkdir(parents=True)
    driver = f"log = open({str(session / 'logs/python-core-driver-1.log')!r}, 'w')\n"
    started.trainer(started.folder / "train.log", driver + WAITS)
    raylet = started.program("raylet")
    shutil.copy(sys.executable, raylet)
    ports = (free_port(), free_port())
    for port, name in zip(ports, (session, session.parent / "session_2026-11-20_01-01-01_1_7"), strict=True):
        start = f"import subprocess, time\nsubprocess.Popen({started.actor(port)!r}, executable={sys.executable!r})\n"
        words = [raylet, "-c", f"{start}time.sleep(600)", f"--raylet_socket_name={name}/sockets/raylet"]
        env = {**os.environ, "PYTHONHOME": sys.base_prefix}
        started.processes.append(
            subprocess.Popen([str(word) for word in words], env=env, start_new_session=True)
        )
    server = started.pids_of(ports[0])[0]
    started.pids_of(ports[1])
    watcher = watch(Target(started.folder))
    wait_until(lambda: found(watcher) == {f"vllm-{server}": "ready"}, what="the one of its session")


def test_the_servers_that_its_log_names(started: Started, watch: Callable[[Target], Watcher]) -> None:
    """The trainer runs where its processes are not seen; its log names those that run here."""
    mine, other = free_port(), free_port()
    started.server(mine, start_new_session=True)
    started.server(other, start_new_session=True)
    server, engine = started.pids_of(mine)
    elsewhere, _ = started.pids_of(other)
    (started.folder / "train.log").write_text(
        "(TaskRunner pid=3) step:1 - actor/loss:0.1\n"
        f"\x1b[36m(vLLMHttpServer pid=1)\x1b[0m (EngineCore pid={engine}) INFO It took 0.1 seconds to wake up\n"
        f"(vLLMHttpServer pid={elsewhere}, ip=192.0.2.7) INFO of another host\n"
    )
    watcher = watch(Target(started.folder))
    wait_until(lambda: found(watcher) == {f"vllm-{server}": "ready"}, what="the one that is named")


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user")
def test_another_users_engine_is_none(started: Started, watch: Callable[[Target], Watcher]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        program = folder / "VLLM::EngineCore"
        shutil.copy("/bin/sleep", program)
        process = subprocess.Popen([program.name, "600"], executable=program, user=65534)
        started.processes.append(process)
        (started.folder / "train.log").write_text(f"(EngineCore pid={process.pid}) step:1 - actor/loss:0.1\n")
        assert not found(watch(Target(started.folder)))
        with contextlib.suppress(WatchError):  # nothing at all runs here
            assert f"vllm-{os.getpid()}" not in found(watch(Target())), "its parent is no server of this user"
    finally:
        shutil.rmtree(folder)
