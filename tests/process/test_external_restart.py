"""Ending exactly the holders of a port, on real processes; the server is a toy with uvicorn's shape (simulated)."""

from __future__ import annotations

import asyncio
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

from liverl.external import litellm, port_holders, restart
from liverl.external.litellm import NotLiteLLM
from liverl.external.port_holders import PortHolders
from liverl.procs import procfs

TOY = Path(__file__).with_name("uvicorn_toy.py")
Start = Callable[..., tuple[subprocess.Popen[bytes], int]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[tuple[subprocess.Popen[bytes], int]] = []

    def begin(*more: str) -> tuple[subprocess.Popen[bytes], int]:
        port = free_port()
        folder = tmp_path / str(port)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, str(TOY), str(port), str(folder), *more])
        made.append((process, port))
        wait_until(lambda: len(list(folder.glob("worker.*"))) == 2, what="both workers")
        return process, port

    yield begin
    for process, port in made:
        left = port_holders.look(port)
        for one in (*(left.holders if left else ()),):
            os.kill(one.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def whole(port: int) -> PortHolders:
    found = port_holders.look(port)
    assert found is not None and len(found.holders) == 3
    return found


async def test_parent_and_workers_end_and_the_same_program_elsewhere_goes_on(start: Start) -> None:
    process, port = start()
    other, elsewhere = start()
    held, beside = whole(port), whole(elsewhere)
    assert [root.pid for root in held.roots] == [process.pid]
    assert restart.refusal(held) is None
    ended = await restart.end(held)
    assert ended == sorted(p.pid for p in held.holders)
    process.wait(60)
    assert await restart.until_free(port) is None
    assert not any(procfs.alive(*p.member) for p in held.holders)
    assert other.poll() is None and whole(elsewhere).holders == beside.holders


async def test_the_deaf_are_killed_and_orphans_are_found_by_the_socket(start: Start) -> None:
    process, port = start("deaf")
    held = whole(port)
    began = time.monotonic()
    await restart.end(held, grace=1.0)
    assert time.monotonic() - began >= 1.0
    assert not any(procfs.alive(*p.member) for p in held.holders)
    assert await restart.until_free(port) is None  # the kernel closes what the dead have left a moment later

    process, port = start()
    process.kill()
    process.wait()
    orphans = port_holders.look(port)
    assert orphans is not None and len(orphans.roots) == len(orphans.holders) == 2
    with pytest.raises(NotLiteLLM, match="which are not LiteLLM processes"):
        litellm.capture(orphans, port)
    await restart.end(orphans)
    assert await restart.until_free(port) is None


async def test_workers_that_close_the_socket_and_do_not_end_are_killed_as_well(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = start("drains")
    held = whole(port)
    passed = [0.0]  # seconds that nobody has to wait for
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(restart, "time", clock)
    ending = asyncio.create_task(restart.end(held, grace=600.0))
    folder = tmp_path / str(port)
    await asyncio.to_thread(wait_until, lambda: len(list(folder.glob("drains.*"))) == 2, what="their drain")
    assert not ending.done(), "they have their time"
    passed[0] = 600.0
    assert await ending == sorted(p.pid for p in held.holders)
    assert not any(procfs.alive(*p.member) for p in held.holders)


async def test_a_port_that_is_taken_at_once_names_who_took_it(start: Start) -> None:
    _, port = start()
    held = whole(port)
    await restart.end(held)
    assert await restart.until_free(port) is None  # the kernel closes what the dead have left a moment later
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        assert await restart.until_free(port) is None  # bound, but nobody listens
        sock.listen()
        # the very sockets that were ended stay ended, whoever listens there now
        assert port_holders.look_again(held) is None
        assert await restart.end(held) == sorted(p.pid for p in held.holders)
        taken = port_holders.look(port)
        assert taken is not None and [p.pid for p in taken.holders] == [os.getpid()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_another_users_listener_is_refused(tmp_path: Path) -> None:
    port = free_port()
    code = f"import socket,time; s=socket.create_server(('127.0.0.1',{port})); time.sleep(600)"
    process = subprocess.Popen(["/usr/bin/env", "python3", "-c", code], user=65534, cwd="/")
    try:
        held = wait_until(lambda: port_holders.look(port), what="the listener")
        assert held is not None
        why = restart.refusal(held)
        assert why is not None and f"pid {process.pid} (user nobody, " in why and "another user" in why
    finally:
        process.kill()
        process.wait()


async def test_what_does_not_come_up_is_quoted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of the one before\n")
    start = log.stat().st_size
    with log.open("ab") as out:
        code = "print('ValueError: bad key sk-0123456789abcdef'); raise SystemExit(1)"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=out)
    member = (process.pid, procfs.start_tick(process.pid) or 0)
    await process.wait()

    async def silent() -> str | None:
        return "nothing listens"

    with pytest.raises(
        restart.RestartProblem, match=r"has exited; last lines of .*log:\nValueError: bad key \*\*\*$"
    ):
        await restart.until_up(member, silent, log, start)

    other = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    member = (other.pid, procfs.start_tick(other.pid) or 0)
    with pytest.raises(restart.RestartProblem, match=r"has not responded within 0\.2 s \(nothing listens\)"):
        await restart.until_up(member, silent, log, log.stat().st_size, 0.2)
    await restart.end_tree(member, 60.0)
    assert await other.wait() == -signal.SIGTERM


def test_only_pid_files_that_are_there_are_written(tmp_path: Path) -> None:
    there, link, missing = (tmp_path / name for name in ("a.pid", "b.pid", "c.pid"))
    there.write_text("1")
    there.chmod(0o600)
    link.symlink_to(there)
    assert restart.write_pid((there, link, missing, there), 42) == [there]
    assert there.read_text() == "42\n" and there.stat().st_mode & 0o777 == 0o600 and not missing.exists()
