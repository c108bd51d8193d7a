"""The control socket between real processes: long paths, stale sockets, slow, stopped and hostile clients."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kit.processes import stop_process
from msgspec.structs import asdict

import liverl
from liverl.control import blocking, paths
from liverl.control.blocking import Connection
from liverl.control.messages import (
    PROTOCOL,
    BackendDead,
    BackendElsewhere,
    BackendSilent,
    CommandError,
    Cursor,
)
from liverl.rundir.layout import RunDir, read_backend, write_atomic

_spec = importlib.util.spec_from_file_location("control_toy", Path(__file__).with_name("control_toy.py"))
toy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(toy)


@pytest.fixture(autouse=True)
def _state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def start(tmp_path):
    started = []

    def go(run_dir=None, **kwargs):
        run_dir = run_dir or tmp_path / "p" / "r"
        started.append(toy.spawn(run_dir, **kwargs))
        return run_dir, started[-1]

    yield go
    for process in started:
        toy.end(process)


def raw(run_dir):
    """A connection without a client: (socket, reader of lines)."""
    sock = paths.connect_path(RunDir(run_dir).socket, 10.0)
    return sock, sock.makefile("rb")


def test_snapshot_and_commands(start):
    run_dir, process = start()
    assert liverl.snapshot(run_dir).backend.pid == process.pid
    answer = liverl.command(run_dir, "restart", service="proxy")
    assert answer["text"] == f"proxy restarted for pid {os.getpid()}"
    with pytest.raises(CommandError) as refused:
        liverl.command(run_dir, "restart", service="proxi")
    assert (refused.value.code, refused.value.did_you_mean) == ("unknown_service", "proxy")
    with pytest.raises(CommandError, match="RuntimeError: a bug in the handler"):
        liverl.command(run_dir, "break")
    assert "a bug in the handler" in (run_dir / "backend.log").read_text()  # with its traceback, for us
    assert liverl.snapshot(run_dir).state == "running"


def test_the_wire_is_what_it_says(start):
    run_dir, process = start()
    assert stat.S_IMODE(os.stat(run_dir / "control.sock").st_mode) == 0o600
    sock, lines = raw(run_dir)
    with sock, lines:
        hello = json.loads(lines.readline())["hello"]
        assert (hello["protocol"], hello["run"], hello["pid"]) == (PROTOCOL, "p/r", process.pid)
        sock.sendall(b'{"id":3,"do":"command","name":"slow","args":{"seconds":60},"wait":false}\n')
        assert json.loads(lines.readline()) == {"id": 3, "ok": {"accepted": True}}
        sock.sendall(b'{"id":4,"do":"command","name":"restart","args":{"service":"x"},"client":"me"}\n')
        error = json.loads(lines.readline())
        assert error["id"] == 4
        assert error["error"] == {
            "code": "unknown_service",
            "message": "no service x",
            "did_you_mean": "proxy",
        }
        sock.sendall(b'{"id":5,"do":"subscribe","from_seq":0,"snapshots":true,"interval":0.1}\n')
        assert json.loads(lines.readline()) == {"id": 5, "ok": {}}
        assert json.loads(lines.readline())["event"]["seq"] == 1
        assert json.loads(lines.readline())["snapshot"]["seq"] == 1


@pytest.mark.parametrize(
    "line", [b"not json\n", b"{}\n", b'{"id":1,"do":"dance"}\n', b"\xff\xfe\n", b"\n", b"[1]\n"]
)
def test_garbage_gets_an_error_and_the_door(start, line):
    run_dir, _ = start()
    sock, lines = raw(run_dir)
    with sock, lines:
        lines.readline()
        sock.sendall(line)
        assert json.loads(lines.readline())["error"]["code"] == "bad_request"
        assert lines.readline() == b""
    assert liverl.snapshot(run_dir).state == "running"


def test_an_overlong_line_gets_an_error_and_bounded_memory(start):
    run_dir, _ = start()
    before = liverl.command(run_dir, "rss")["bytes"]
    sock, lines = raw(run_dir)
    with sock, lines:
        lines.readline()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(64):
                sock.sendall(b"x" * (1 << 20))
        with contextlib.suppress(ConnectionResetError):
            answer = lines.readline()
            assert not answer or json.loads(answer)["error"]["code"] == "bad_request"
    assert liverl.command(run_dir, "rss")["bytes"] - before < 60 << 20  # two buffers of the 16 MiB limit


def test_a_path_of_over_107_bytes(start, tmp_path):
    long = tmp_path / ("d" * 100) / ("e" * 100)
    run_dir, process = start(long)
    assert len(str(long / "control.sock")) > 200
    assert liverl.snapshot(run_dir).backend.pid == process.pid
    assert (long / "control.sock").is_socket()
    open_files = len(os.listdir("/proc/self/fd"))
    liverl.snapshot(run_dir)
    assert len(os.listdir("/proc/self/fd")) == open_files

    async def go():
        async with liverl.connect(run_dir) as client:
            return (await client.snapshot()).run

    assert asyncio.run(go()).endswith("e" * 100)


def test_a_killed_backend_is_told_as_dead_and_its_socket_is_replaced(start):
    run_dir, process = start()
    with Connection(run_dir) as connection:
        connection.subscribe(0)
        process.kill()
        with pytest.raises(BackendDead):
            while connection.read(60.0) is not None:
                pass
    process.wait()
    assert (run_dir / "control.sock").exists()
    began = time.monotonic()
    with pytest.raises(BackendDead, match="p/r is not running"):
        blocking.snapshot(run_dir)
    assert liverl.snapshot(run_dir).state == "dead"
    with pytest.raises(BackendDead):
        asyncio.run(_enter(run_dir))
    assert time.monotonic() - began < 8.0
    _, second = start(run_dir)
    assert liverl.snapshot(run_dir).backend.pid == second.pid


async def _enter(run_dir):
    async with liverl.connect(run_dir) as client:
        return await client.snapshot()


def test_there_never_was_a_backend(tmp_path):
    with pytest.raises(BackendDead):
        liverl.snapshot(tmp_path)


def test_a_second_server_is_refused(start):
    run_dir, process = start()
    with pytest.raises(paths.SocketInUse):
        paths.bind_control(run_dir)
    assert liverl.snapshot(run_dir).backend.pid == process.pid


def test_an_orderly_end_says_bye_and_removes_the_socket(start):
    run_dir, process = start()
    with Connection(run_dir) as connection:
        connection.subscribe(0, snapshots=True, interval=30.0)
        liverl.command(run_dir, "finish", state="done", exit_code=0)
        seen = [connection.read(60.0)]
        while seen[-1].bye is None:
            seen.append(connection.read(60.0))
    assert [m.event.text for m in seen if m.event][-1] == "run done"
    assert [m.snapshot.state for m in seen if m.snapshot][
        -1
    ] == "done"  # the last state is not throttled away
    assert process.wait(60) == 0
    assert not (run_dir / "control.sock").exists()


def test_a_stopped_backend_is_silent_not_a_hang(start):
    run_dir, process = start()
    stop_process(process.pid)
    try:
        with pytest.raises(BackendSilent, match=str(process.pid)):
            Connection(run_dir, timeout=0.3)
    finally:
        process.send_signal(signal.SIGCONT)


def test_a_client_that_does_not_read_costs_bounded_memory_and_delays_nobody(start):
    """50,000 events of 2 KiB (100 MB) while one subscriber is stopped; it is then told to resync and gets all."""
    run_dir, _ = start()
    code = (
        "import sys,liverl.control.blocking as b, pathlib\n"
        "from liverl.control.messages import Cursor\n"
        "c=b.Connection(pathlib.Path(sys.argv[1])); c.subscribe(0); print('on',flush=True)\n"
        "cur=Cursor(0); resyncs=0; texts=0\n"
        "while cur.seq < int(sys.argv[2]):\n"
        "    m=c.read(30)\n"
        "    new=list(cur.new([m.event])) if m.event else []\n"
        "    if m.resync: resyncs+=1; new=list(c.events_after(cur))\n"
        "    texts+=len(new)\n"
        "print(resyncs,texts,flush=True)\n"
    )
    count = 50_000
    slow = subprocess.Popen(
        [sys.executable, "-c", code, str(run_dir), str(count + 1)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert slow.stdout.readline() == "on\n"
        stop_process(slow.pid)
        before = liverl.command(run_dir, "rss")["bytes"]
        seen = Cursor(0)
        with Connection(run_dir) as other:
            other.subscribe(0)
            done = threading.Thread(target=lambda: liverl.command(run_dir, "emit", count=count, size=2048))
            done.start()
            while seen.seq < count + 1:
                message = other.read(30.0)
                if message.resync is not None:
                    list(other.events_after(seen))
                elif message.event is not None:
                    list(seen.new([message.event]))
            done.join()
        grown = liverl.command(run_dir, "rss")["bytes"] - before
        kept = count * 2048 * 1.3  # the toy keeps every event for events_since
        assert grown < kept + (16 << 20), f"{grown >> 20} MiB"
        slow.send_signal(signal.SIGCONT)
        resyncs, texts = slow.communicate(timeout=120)[0].split()
        assert int(resyncs) >= 1
        assert int(texts) == count + 1
    finally:
        slow.kill()
        slow.wait()


def test_a_stopped_client_does_not_hold_up_the_end(start):
    run_dir, process = start()
    sock, lines = raw(run_dir)
    with sock, lines:
        lines.readline()
        sock.sendall(b'{"id":1,"do":"subscribe"}\n')
        lines.readline()
        liverl.command(run_dir, "emit", count=2000, size=2048)
        liverl.command(run_dir, "finish", state="done", exit_code=0)
        assert process.wait(60) == 0


def test_pipelined_requests_of_a_client_that_does_not_read_are_bounded(start):
    run_dir, _ = start()
    liverl.command(run_dir, "emit", count=100, size=2048)
    before = liverl.command(run_dir, "rss")["bytes"]
    sock, lines = raw(run_dir)
    with sock, lines:
        lines.readline()
        sock.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            for i in range(20_000):  # each answer has 200 KB: 4 GB if nobody counted
                sock.sendall(b'{"id":%d,"do":"events"}\n' % i)
        assert liverl.command(run_dir, "rss")["bytes"] - before < 16 << 20


def test_an_event_brings_the_state_that_it_tells_of(start):
    run_dir, _ = start()
    with Connection(run_dir) as connection:
        connection.subscribe(10**9, snapshots=True, interval=0.1)
        before = connection.read(60.0).snapshot
        liverl.command(run_dir, "emit", count=1)
        while (message := connection.read(60.0)).snapshot is None:
            assert message.event is not None
        assert message.snapshot.seq == before.seq + 1


def test_snapshots_are_throttled(start):
    run_dir, _ = start()
    began = time.monotonic()
    with Connection(run_dir) as connection:
        connection.subscribe(10**9, snapshots=True, interval=0.4)
        assert connection.read(60.0).snapshot is not None
        for _ in range(50):
            liverl.command(run_dir, "state", state="running")
        assert connection.read(60.0).snapshot is not None
        liverl.command(run_dir, "finish", state="done", exit_code=0)
        seen = 1
        while (message := connection.read(60.0)).bye is None:
            seen += message.snapshot is not None
    # One in each interval that has passed since the first, and the one that comes with the end.
    assert seen <= (time.monotonic() - began) / 0.4 + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_is_refused(start, tmp_path):
    """The socket file is opened up on purpose: the peer check has to hold by itself."""
    run_dir, _ = start()
    os.chmod(run_dir / "control.sock", 0o666)
    parents = [p for p in (run_dir, *run_dir.parents) if p.stat().st_uid == 0 and p != Path("/")]
    modes = [(p, stat.S_IMODE(p.stat().st_mode)) for p in parents]
    for path, mode in modes:
        os.chmod(path, mode | 0o755)
    try:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setgid(65534)
            os.setuid(65534)
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(60)
            try:
                sock.connect(str(run_dir / "control.sock"))
                os.write(write, sock.makefile("rb").readline())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as file:
            answer = json.loads(file.read())
        os.waitpid(pid, 0)
        assert answer["error"]["code"] == "forbidden"
    finally:
        for path, mode in modes:
            os.chmod(path, mode)


def test_a_file_system_that_refuses_sockets(start, tmp_path, monkeypatch):
    """An immutable directory refuses them as such file systems do; the short private place takes over."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    real = paths._bind

    def refuse(path):
        if path.name == "control.sock":
            raise PermissionError(1, "Operation not permitted")
        return real(path)

    run_dir = tmp_path / "p" / "r"
    run_dir.mkdir(parents=True)
    monkeypatch.setattr(paths, "_bind", refuse)
    sock, where = paths.bind_control(run_dir)
    with sock:
        assert where.parent == runtime / "liverl"
        assert stat.S_IMODE(where.parent.stat().st_mode) == 0o700
        from liverl.rundir import layout

        layout.write_backend(run_dir, layout.own_record(where, "0"))
        paths.connect_control(run_dir, 2.0).close()
    shutil.rmtree(runtime / "liverl")
    (runtime / "liverl").mkdir(mode=0o755)
    with pytest.raises(paths.ControlError, match="is not a private directory"):
        paths.bind_control(run_dir)


def test_a_file_in_the_way_is_not_removed(tmp_path):
    (tmp_path / "control.sock").write_text("precious")
    with pytest.raises(paths.ControlError, match="is not a socket"):
        paths.bind_control(tmp_path)
    assert (tmp_path / "control.sock").read_text() == "precious"


def test_on_another_host(start):
    run_dir, process = start()
    process.kill()
    process.wait()
    record = read_backend(run_dir)
    write_atomic(run_dir / "backend.json", {**asdict(record), "host": "n17"})
    with pytest.raises(BackendElsewhere, match="ssh -t n17 'liverl-tui attach") as away:
        liverl.snapshot(run_dir)
    assert away.value.host == "n17"
    old = time.time() - 200
    os.utime(run_dir / "backend.json", (old, old))
    with pytest.raises(BackendDead):
        blocking.snapshot(run_dir)
    assert liverl.snapshot(run_dir).phase.startswith("on host n17: no heartbeat")


async def test_async_client(start):
    run_dir, process = start()
    async with liverl.connect(run_dir, name="test") as client:
        assert client.hello.pid == process.pid
        slow = asyncio.create_task(client.command("slow", seconds=600))
        assert (await client.snapshot()).step == 7  # answered while the slow one is under way
        assert not slow.done()
        await client.command("hurry")
        assert (await slow)["text"] == "slow is done"
        assert await client.command("slow", wait=False, seconds=30) == {"accepted": True}
        await client.command("emit", count=10)
        texts = [e.text async for e in client.events(1, follow=False)]
        assert texts == [str(i) for i in range(10)]
        assert await client.wait_for("ready") == "running"
        done = asyncio.create_task(client.wait_for("done"))
        seqs = []
        follower = asyncio.create_task(_collect(client, seqs))
        await client.command("emit", count=3000, size=2000)
        # It is still at them, or told to resync and about to ask for them, when the backend goes; and a busy machine
        # may read so late that the answer, which waits behind them, is cut off.
        with contextlib.suppress(BackendDead):
            await client.command("finish", wait=False, state="failed", exit_code=1)
        assert await done == "failed"
        await follower
        assert seqs == list(range(1, 1 + 10 + 3000 + 1 + 1))
    with pytest.raises(liverl.ControlError):
        await client.snapshot()


async def _collect(client, seqs):
    async for event in client.events(0):
        seqs.append(event.seq)
        if len(seqs) % 500 == 0:
            await asyncio.sleep(0.05)  # slower than the flood, so that it is told to resync


async def test_async_client_when_the_backend_is_killed(start):
    run_dir, process = start()
    async with liverl.connect(run_dir) as client:
        slow = asyncio.create_task(client.command("slow", seconds=600))
        await client.snapshot()
        process.kill()
        with pytest.raises(BackendDead):
            await slow
        with pytest.raises(BackendDead):
            await client.snapshot()
        with pytest.raises(BackendDead):
            await client.wait_for("done")


async def test_a_backend_that_goes_while_it_is_asked_is_told_as_dead(start):
    """A connection that breaks under a request: the reading side gets what the writing side met."""
    run_dir, process = start()
    async with liverl.connect(run_dir) as client:
        link = client._link
        process.kill()
        process.wait()
        link.reader.set_exception(BrokenPipeError(32, "Broken pipe"))
        with pytest.raises(BackendDead):
            await link.read()


def test_import_is_light():
    code = "import sys, liverl; print(*sorted(m for m in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "msgspec", "yaml", "aiohttp", "textual", "rich", "ray", "litellm"} & set(loaded)
    code = "import sys, liverl; liverl.snapshot, liverl.command; print(*sorted(m for m in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "yaml", "aiohttp", "textual", "rich"} & set(loaded)
