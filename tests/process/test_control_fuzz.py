"""The control socket of a real backend against malformed, huge and half-open clients."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.control import front
from liverl.control.messages import CommandError, ControlError
from liverl.control.paths import connect_control

HUGE = 10**30


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    made = ending(
        make_run(tmp_path, [toy("a", "sleep", fatal=False)], replica=toy("r{index}", "sleep"), replicas=1)
    )
    made.start()
    made.until("a", "ready")
    return made


def request(**fields: Any) -> bytes:
    return json.dumps({"id": 1, "do": "ping", **fields}).encode() + b"\n"


def answer(run: ToyRun, data: bytes) -> dict[str, Any] | None:
    """What the backend answers to these bytes, after its hello; None if it only ends the connection."""
    with connect_control(run.run_dir, 20.0) as sock, sock.makefile("rb") as lines:
        assert b"hello" in lines.readline()
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was refused before everything was sent
        try:
            line = lines.readline()
        except OSError:
            return None
        return json.loads(line) if line else None


def unharmed(run: ToyRun) -> None:
    assert run.service("a").state == "ready"
    assert not [event for event in run.events() if event.kind == "internal"]
    log = (run.run_dir / "backend.log").read_text()
    assert "Traceback" not in log and "never retrieved" not in log, log


def deep(depth: int) -> bytes:
    return b'{"id":1,"do":"command","name":"stop","args":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}\n"


MALFORMED: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xfe\n", "malformed"),
    (b"[]\n", "object"),
    (b"[" * 200_000 + b"\n", "nested"),
    (deep(100_000), "nested"),
    (request(id=2**100), "$.id"),
    (request(id=1.5), "$.id"),
    (request(do="dance"), "$.do"),
    (request(do="events", from_seq=-1), "$.from_seq"),
    (request(do="events", from_seq=HUGE), "$.from_seq"),
    (request(do="subscribe", interval=-1), "$.interval"),
    (request(do="subscribe", interval=1e300), "$.interval"),
    (request(do="subscribe", interval=float("nan")), "malformed"),
    (request(bogus=1), "bogus"),
    (request(do="command", name="x" * 300), "$.name"),
    (request(do="command", name="scale", client="x" * 300), "$.client"),
    (b"x" * (2 << 20) + b"\n", "longer than"),
)


def test_a_malformed_request_is_answered_by_its_field(run: ToyRun) -> None:
    for data, found in MALFORMED:
        told = answer(run, data)
        named = told is None or (told["error"]["code"] == "bad_request" and found in told["error"]["message"])
        assert named, (data[:80], told)
    unharmed(run)


def test_a_line_of_64_mb_ends_one_connection_only(run: ToyRun) -> None:
    told = answer(run, b"x" * (64 << 20))
    assert told is None or told["error"]["code"] == "bad_request"
    unharmed(run)


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("scale", {"to": HUGE}, "'to'"),
    ("scale", {"to": "2"}, "'to'"),
    ("scale", {"to": 2.5}, "'to'"),
    ("scale", {"to": True}, "'to'"),
    ("scale", {"delta": -HUGE}, "'delta'"),
    ("scale", {"remove": 7}, "'remove'"),
    ("scale", {"two": 7}, "'two'"),
    ("restart", {}, "'service'"),
    ("restart", {"service": ["a"]}, "'service'"),
    ("restart", {"service": "a" * 100_000}, "'service'"),
    ("stop_service", {"service": None}, "'service'"),
    ("start_service", {"service": {"a": 1}}, "'service'"),
    ("inspect", {"service": 1}, "'service'"),
    ("stop", {"now": "yes"}, "'now'"),
    ("stop", {"now": 1}, "'now'"),
)


def test_wrong_arguments_are_named_and_change_nothing(run: ToyRun) -> None:
    for name, args, field in WRONG:
        with pytest.raises(CommandError) as caught:
            run.command(name, **args)
        assert caught.value.code == "bad_args" and field in str(caught.value), (name, args)
        assert len(str(caught.value)) < 400
    unharmed(run)


def lines(chance: random.Random) -> Iterator[bytes]:
    """Valid requests with some bytes changed, cut or repeated."""
    for _ in range(400):
        name = chance.choice(("scale", "restart", "inspect", "nothing"))
        line = bytearray(request(do=chance.choice(("ping", "events", "command", "snapshot")), name=name))
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(line) - 1)
            what = chance.random()
            if what < 0.5:
                line[at] = chance.choice([b for b in range(256) if b != 10])
            elif what < 0.75:
                del line[at]
            else:
                line[at:at] = line[: chance.randrange(40)].replace(b"\n", b"")
        yield bytes(line)


def test_random_lines_harm_nothing(run: ToyRun) -> None:
    for line in lines(random.Random(7)):
        answer(run, line)
    unharmed(run)


def test_connections_that_nobody_uses_do_not_keep_others_out(run: ToyRun) -> None:
    idle = []
    try:
        for _ in range(front.MAX_CLIENTS + 60):
            sock = connect_control(run.run_dir, 20.0)
            sock.sendall(b'{"id":1,')  # the rest never comes
            idle.append(sock)
        unharmed(run)
        backend = run.snapshot().backend.pid
        wait_until(
            lambda: len(list(Path(f"/proc/{backend}/fd").iterdir())) < front.MAX_CLIENTS + 50,
            what="few descriptors",
        )
        with pytest.raises(ControlError, match="unknown command"):
            run.command("dance")
    finally:
        for sock in idle:
            sock.close()
