"""What must not end the keeper, or keep it from recording exits."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.keeper_talk import PROGRAM, Talk
from kit.waiting import wait_until

from liverl.procs import procfs
from liverl.supervise.keeper.process.liverl_keeper.connections import MAX_CLIENTS, MAX_OF_PROCESS

sys.path.append(str(Path(__file__).parents[1] / "bench"))
from fuzz_keeper import Fuzz

DEEP = 100_000
# A process that says hello to the keeper of its argument, and prints the answer.
HELLO = """
import os, socket, sys
os.chdir(sys.argv[1])
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(30)
sock.connect("keeper.sock")
sock.sendall(b'{"id":1,"do":"hello"}\\n')
print(sock.recv(1 << 16))
"""


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    made = Talk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Enough descriptors in this process for the connections of a test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    if wanted < 3000:
        pytest.skip(f"only {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(talk: Talk) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(60)
    wait_until(
        lambda: sock.connect_ex(os.path.relpath(talk.run_dir / "keeper.sock")) == 0, what="a connection"
    )
    return sock


def answer_on(sock: socket.socket) -> dict[str, Any]:
    """The next answer, past the exits that every client is told."""
    with sock.makefile() as lines:
        return next(told for line in lines if "id" in (told := json.loads(line)))


def limit_files(talk: Talk, beyond: int) -> None:
    """Let the keeper open only so many more descriptors."""
    count = len(os.listdir(f"/proc/{talk.process.pid}/fd"))
    resource.prlimit(talk.process.pid, resource.RLIMIT_NOFILE, (count + beyond, count + beyond))


def works(talk: Talk) -> None:
    """It is the same process; it starts services, and records how they exit."""
    hello = talk.ask("hello")
    assert hello["pid"] == talk.process.pid
    token = f"works.{len(talk.children)}"
    talk.spawn(token, [sys.executable, "-c", "raise SystemExit(7)"])
    wait_until(lambda: talk.written(token), what="the exit on disk")
    assert json.loads((talk.run_dir / "exits" / f"{token}.json").read_text())["exit"]["code"] == 7
    for pid in talk.children[:-1]:
        assert procfs.alive(pid, None) or any(
            child["pid"] == pid and child["exit"] for child in talk.ask("hello")["children"]
        )


def spawn_request(**changed: Any) -> dict[str, Any]:
    return {"token": "odd.1", "argv": ["true"], "env": {}, "cwd": "/", "log": "log", **changed}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b'"text"',
        b"1",
        b"null",
        b"{",
        b"\xff\xfe\x00",
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b'{"id":' + b"[" * 900 + b"]" * 900 + b',"do":"hello"}',
        b'{"do":"listen","name":"x","host":"127.0.0.1","port":99999999}',
        b'{"do":"listen","name":"x","host":"127.0.0.1","port":-1}',
        b'{"do":"listen","name":["x"],"host":"127.0.0.1","port":0}',
        b'{"do":"listen","name":"x","host":"no.such.host.invalid","port":0}',
        b'{"do":["hello"]}',
        b'{"do":"adopt_fd","name":"x"}',
        b'{"do":"forget","token":{}}',
        b'{"do":"get_fd","name":"\\ud800"}',
        b'{"do":"close","name":1' + b"0" * 5000 + b"}",
        *(
            json.dumps({"do": "spawn", **spawn_request(**changed)}).encode()
            for changed in (
                {"env": []},
                {"env": {"a": 1}},
                {"env": {"\0": "x"}},
                {"fds": ["x"]},
                {"fds": {"X": "missing"}},
                {"argv": []},
                {"argv": [1]},
                {"argv": "true"},
                {"argv": ["\ud800"]},
                {"argv": ["/no/such/\0program"]},
                {"cwd": None},
                {"log": 1},
                {"log": "/"},
                {"token": "../../escaped"},
                {"token": "\ud800"},
                {"token": ""},
                {"token": "x" * 5000},
                {"token": 1},
            )
        ),
    ],
    ids=lambda line: line[:40].decode("ascii", "backslashreplace"),
)
def test_a_request_that_makes_no_sense_is_answered(talk: Talk, line: bytes) -> None:
    talk.spawn("a.1")
    talk.socket.settimeout(60)
    talk.socket.sendall(line + b"\n")
    answer = json.loads(talk.lines.readline())
    assert answer.get("error") or line.startswith(b'{"id":[[')  # a valid request with an odd number
    assert answer["id"] is None
    works(talk)


def test_a_log_that_is_a_fifo_blocks_nothing(talk: Talk) -> None:
    talk.spawn("a.1")
    os.mkfifo(talk.run_dir / "fifo")
    (talk.run_dir / "link").symlink_to("fifo")
    (talk.run_dir / "elsewhere").symlink_to(talk.run_dir / "log")
    talk.socket.settimeout(60)
    for log in ("fifo", "link", "elsewhere", "/dev/full", "keeper.sock"):
        assert "regular file" in talk.ask("spawn", **spawn_request(log=str(log)))["error"], log
    reader = os.open(talk.run_dir / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    assert "regular file" in talk.ask("spawn", **spawn_request(log="fifo"))["error"]
    os.close(reader)
    works(talk)


def test_a_log_is_written_by_blocking_writes(talk: Talk) -> None:
    """A service must not get EAGAIN from its standard output."""
    script = "import os, sys; sys.exit(0 if os.get_blocking(1) and os.get_blocking(2) else 1)"
    talk.spawn("a.1", [sys.executable, "-c", script])
    wait_until(lambda: talk.written("a.1"), what="the exit on disk")
    assert json.loads((talk.run_dir / "exits" / "a.1.json").read_text())["exit"]["code"] == 0


@pytest.mark.parametrize("beyond", [0, 1, 2])
def test_without_descriptors_it_starts_services_and_records_their_exits(talk: Talk, beyond: int) -> None:
    talk.spawn("a.1")
    limit_files(talk, beyond)
    silent = [connected(talk) for _ in range(20)]
    works(talk)
    talk.socket.settimeout(60)
    assert talk.ask("listen", name="p.http", host="127.0.0.1", port=0)["port"]
    other = connected(talk)
    other.sendall(b'{"id":1,"do":"hello"}\n')
    assert answer_on(other)["pid"] == talk.process.pid
    for sock in (*silent, other):
        sock.close()


def test_two_thousand_silent_connections_keep_nobody_out(talk: Talk, many_files: None) -> None:
    talk.spawn("a.1")
    silent = [connected(talk) for _ in range(2000)]
    works(talk)
    other = connected(talk)
    other.sendall(b'{"id":1,"do":"hello"}\n')
    assert answer_on(other)["pid"] == talk.process.pid
    assert len(os.listdir(f"/proc/{talk.process.pid}/fd")) < 2 * MAX_CLIENTS
    for sock in (*silent, other):
        sock.close()


def test_a_process_with_many_good_connections_keeps_nobody_out(talk: Talk) -> None:
    """They had made valid requests, so that none was dropped for a newer one."""
    many = []
    for _ in range(MAX_CLIENTS + 20):
        many.append(connected(talk))
        many[-1].sendall(b'{"id":1,"do":"hello"}\n')
        assert answer_on(many[-1])["pid"] == talk.process.pid
    asked = subprocess.run(
        [sys.executable, "-c", HELLO, str(talk.run_dir)], capture_output=True, text=True, check=True
    )
    assert f'"pid":{talk.process.pid}' in asked.stdout.replace(" ", ""), asked.stdout
    for sock in many:
        sock.close()


# Starts a keeper that cannot see the pids of its clients: they are outside of its pid namespace.
APART = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Talk]:
    if subprocess.run([*APART, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("pid namespaces are refused here")
    made = Talk(tmp_path, before=APART)
    yield made
    made.close()


def many_that_ask(talk: Talk, count: int) -> list[socket.socket]:
    """Connections on each of which a valid request was answered."""
    many = []
    for _ in range(count):
        many.append(connected(talk))
        many[-1].sendall(b'{"id":1,"do":"hello"}\n')
        assert answer_on(many[-1])["pid"] == 1, "of its own namespace"
    return many


def test_processes_of_another_pid_namespace_do_not_share_the_limit_of_one(apart: Talk) -> None:
    """The oldest was dropped for the 17th, as if all were of one process."""
    assert apart.ask("hello")["pid"] == 1
    many = many_that_ask(apart, MAX_OF_PROCESS + 4)
    assert apart.ask("hello")["pid"] == 1
    for sock in many:
        sock.close()


def test_processes_of_another_pid_namespace_leave_room_for_others(apart: Talk) -> None:
    many = many_that_ask(apart, MAX_CLIENTS + 20)
    # Of the keeper's namespace is its service. Its pid means nothing here, so it does not go through ``spawn``.
    log = apart.run_dir / "log"
    script = [sys.executable, "-c", HELLO, str(apart.run_dir)]
    request = spawn_request(token="a.1", argv=script, log=str(log), env=dict(os.environ))
    many[-1].sendall(json.dumps({"id": 1, "do": "spawn", **request}).encode() + b"\n")
    assert "error" not in answer_on(many[-1])
    wait_until(lambda: apart.written("a.1"), what="the exit on disk")
    assert '"pid":1,' in log.read_text().replace(" ", ""), log.read_text()
    for sock in many:
        sock.close()


def test_a_keeper_whose_files_are_replaced_goes_on(tmp_path: Path) -> None:
    """As when another version is installed over it: nothing is imported any more."""
    program, run_dir = tmp_path / "program", tmp_path / "run"
    shutil.copytree(PROGRAM, program, ignore=shutil.ignore_patterns("__pycache__"))
    run_dir.mkdir()
    talk = Talk(run_dir, str(program), str(run_dir))
    try:
        for path in program.rglob("*.py"):
            path.write_text("raise SystemExit('imported')\n")
        for path in program.rglob("__pycache__"):
            shutil.rmtree(path)
        assert "not valid" not in talk.ask("unknown")["error"]
        listening = socket.create_server(("127.0.0.1", 0))
        socket.send_fds(talk.socket, [b'{"id":1,"do":"adopt_fd","name":"a"}\n'], [listening.fileno()])
        assert json.loads(talk.lines.readline())["port"] == listening.getsockname()[1]
        listening.close()
        assert talk.ask("listen", name="b", host="127.0.0.1", port=0)["port"]
        assert talk.ask("get_fd", name="b")["name"] == "b"
        assert "error" not in talk.ask("close", name="b")
        assert "cannot execute" in talk.ask("spawn", **spawn_request(argv=["/no/such"]))["error"]
        works(talk)
        assert "error" not in talk.ask("forget", token="works.0")
        assert talk.ask("exit") == {"id": 1}
        assert talk.process.wait(60) == 0
    finally:
        talk.close()


def test_half_a_request_keeps_nobody_waiting(talk: Talk) -> None:
    half = connected(talk)
    half.sendall(b'{"id":1,"do":')
    works(talk)
    half.sendall(b'"hello"}\n')
    assert answer_on(half)["pid"] == talk.process.pid
    half.close()


def test_a_request_without_end_is_dropped(talk: Talk) -> None:
    long = connected(talk)
    with pytest.raises(OSError):
        for _ in range(200):
            long.sendall(b"x" * (1 << 16))
    long.close()
    works(talk)


def test_a_client_that_reads_nothing_keeps_nobody_waiting(talk: Talk) -> None:
    """Its answers are kept up to a limit; then its requests wait, and the exits of others end its connection."""
    deaf = connected(talk)
    deaf.setblocking(False)
    sent = 0
    while sent < 64 << 20 and select.select([], [deaf], [], 2.0)[1]:
        sent += deaf.send(b'{"id":1,"do":"hello"}\n' * 1000)
    assert sent < 64 << 20, "the keeper took requests without end"
    works(talk)
    deaf.close()
    works(talk)


def test_many_requests_of_one_client_do_not_keep_another_waiting(talk: Talk) -> None:
    busy = connected(talk)
    busy.sendall(b"\n" * 60_000)
    works(talk)
    busy.close()


def test_many_requests_at_once_are_all_answered(talk: Talk) -> None:
    """More than are answered at a turn, and nothing else wakes the keeper."""
    talk.socket.settimeout(60)
    talk.socket.sendall(b'{"id":1,"do":"ends"}\n' * 100)
    assert [json.loads(talk.lines.readline()) for _ in range(100)] == [{"id": 1}] * 100


def test_descriptors_of_wrong_kinds_are_refused(talk: Talk) -> None:
    reading, writing = os.pipe()
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(talk.run_dir / "other.sock"))
    unix.listen()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    deaf = socket.socket(socket.AF_INET)
    talk.ask("hello")  # it has accepted the connection
    before = len(os.listdir(f"/proc/{talk.process.pid}/fd"))
    for fd in (reading, writing, unix.fileno(), udp.fileno(), deaf.fileno()):
        socket.send_fds(talk.socket, [b'{"id":1,"do":"adopt_fd","name":"x"}\n'], [fd])
        assert "not a listening TCP socket" in json.loads(talk.lines.readline())["error"]
    socket.send_fds(talk.socket, [b'{"id":1,"do":"hello"}\n'], [reading] * 4)  # they belong to no request
    assert json.loads(talk.lines.readline())["listeners"] == {}
    assert talk.ask("ends") == {"id": 1}
    assert len(os.listdir(f"/proc/{talk.process.pid}/fd")) == before
    for sock in (unix, udp, deaf):
        sock.close()
    os.close(reading)
    os.close(writing)
    works(talk)


def test_an_exit_status_that_cannot_be_written_is_written_later(talk: Talk) -> None:
    blocking = talk.run_dir / "exits" / "a.1.json.tmp"
    blocking.mkdir()
    talk.spawn("a.1", [sys.executable, "-c", "raise SystemExit(3)"])
    wait_until(lambda: talk.ask("hello")["children"][0]["exit"], what="the exit, reported")
    assert not talk.written("a.1")
    blocking.rmdir()
    wait_until(lambda: talk.written("a.1"), what="the exit on disk")


def test_a_fifo_in_place_of_an_exit_file_blocks_nothing(talk: Talk) -> None:
    os.mkfifo(talk.run_dir / "exits" / "a.1.json.tmp")
    talk.spawn("a.1", [sys.executable, "-c", "raise SystemExit(3)"])
    wait_until(lambda: talk.written("a.1"), what="the exit on disk")
    works(talk)


def test_a_silent_connection_does_not_keep_a_dismissed_keeper(talk: Talk) -> None:
    silent = connected(talk)
    child = talk.spawn("a.1")
    assert "error" in talk.ask("exit")
    talk.leave()
    talk.end(child)
    assert talk.process.wait(60) == 0
    silent.close()


def test_random_requests_and_connections_end_nothing(tmp_path: Path) -> None:
    """A short part of tests/bench/fuzz_keeper.py, which also runs for hours."""
    fuzz = Fuzz(tmp_path, seed=20)
    try:
        report = fuzz.run(seconds=60.0, steps=200)
        assert report.checks and report.exits
    finally:
        fuzz.close()
