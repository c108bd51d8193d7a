"""Floods and hostile HTTP at every port of a real run, without a key; and greedy agents with one.

Every port must go on to answer, no answer may hold a key, nothing may be done without one, the run must go on, and no
line of a log may be the attacker's own.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from kit.real import real_run
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica
from kit.waiting import until, wait_until
from second_user import secrets_of, tcp_ports

from fault_cases.base import Outcome, Part, Shared
from fault_cases.hosted import hosted, part
from fault_cases.toys import stopped
from liverl.sessions.session import BESIDE
from liverl.util.plural import quantity

ANSWER_S = 10.0  # seconds in which a port has to answer while it is attacked
READ_S = 1.5  # seconds for which an attacker reads
MANY = 200  # connections of a flood
ROWS = 64  # of a trial that are trained: session_proxy.rows_per_trial
FORGED = "FORGED-BY-AN-ATTACKER"

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n"
JSON = b'{"model":"policy","messages":[{"role":"user","content":"x"}]}'
BOMB = gzip.compress(bytes(32 << 20))
HELLO = bytes.fromhex("160301002f0100002b0303") + bytes(38)  # the begin of a TLS handshake


def _body(data: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return POST + lines + b"Content-Length: %d\r\n\r\n" % len(data) + data


# What one connection sends. Nothing of it has a key: no answer may be a success, but for the health routes.
REQUESTS: dict[str, bytes] = {
    "a header without end": GET + b"X: " + b"a" * (1 << 20),
    "10,000 headers": GET + b"".join(b"X-%d: a\r\n" % n for n in range(10_000)) + b"\r\n",
    "a header without colon": GET + b"nothing\r\n\r\n",
    "a zero in a header": GET + b"X: a\0b\r\n\r\n",
    "a folded header": GET + b"X: a\r\n b\r\n\r\n",
    "lines that end with LF": b"GET /v1/models HTTP/1.1\nHost: x\n\n",
    "a bare CR": b"GET /v1/models HTTP/1.1\rHost: x\r\n\r\n",
    "HTTP/0.9": b"GET /v1/models\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64),
    "HTTP/9.9": b"GET /v1/models HTTP/9.9\r\nHost: x\r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: y\r\n\r\n",
    "a TLS handshake": HELLO,
    "bytes": bytes(range(256)) * 40,
    "empty lines": b"\r\n" * 10_000,
    "a method of 1 MB": b"G" * (1 << 20) + b" / HTTP/1.1\r\n\r\n",
    "an unknown method": b"BREW /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path of 1 MB": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path with dots": b"GET /sess/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path with an encoded line break": (
        b"GET /sess/x%0a" + FORGED.encode() + b"%20CRITICAL%1b[31m/v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    ),
    "a path with an encoded carriage return": (
        b"GET /x%0d%0a" + FORGED.encode() + b"%e2%80%a8y HTTP/1.1\r\nHost: x\r\n\r\n"
    ),
    "an agent's name with a line break": GET + b"User-Agent: x%0a" + FORGED.encode() + b"\r\n\r\n",
    "an absolute path": b"GET http://127.0.0.1:22/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n",
    "OPTIONS *": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length and chunks": POST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a length of 10^30": POST + b"Content-Length: 1" + b"0" * 30 + b"\r\n\r\nx",
    "a length with a sign": POST + b"Content-Length: +5\r\n\r\nhello",
    "a chunk of 2^64": POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\nx",
    "a chunk that is no number": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
    "a chunk's extension of 1 MB": POST
    + b"Transfer-Encoding: chunked\r\n\r\n1;"
    + b"e" * (1 << 20)
    + b"\r\nx",
    "an unknown encoding": POST + b"Transfer-Encoding: chunked, identity, x\r\n\r\n0\r\n\r\n",
    "trailers": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer x\r\n\r\n",
    "a body without a key": _body(JSON),
    "a body of 20 MB": _body(bytes(20 << 20)),
    "a body that unpacks to 32 MB": _body(BOMB, b"Content-Encoding: gzip"),
    "a body nested 100,000 deep": _body(b"[" * 100_000, b"Content-Type: application/json"),
    "100-continue without a key": POST + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n",
    "a websocket": GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n",
    "1,000 requests at once": (GET + b"\r\n") * 1000,
    "a key in the query": b"GET /v1/models?api_key=sk-x&key=sk-x HTTP/1.1\r\nHost: x\r\n\r\n",
    "two keys": GET + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "a key of 1 MB": GET + b"Authorization: Bearer " + b"k" * (1 << 20) + b"\r\n\r\n",
    "a key that is no text": GET + b"Authorization: Bearer \xff\xfe\r\n\r\n",
    "an overlong range": GET + b"Range: bytes=0-,0-,0-" + b",0-" * 1000 + b"\r\n\r\n",
}


def _half(port: int) -> None:
    _hold(port, GET + b"X-A: ")


def _half_body(port: int) -> None:
    _hold(port, POST + b"Content-Length: 100000\r\n\r\n{")


def _silent(port: int) -> None:
    _hold(port, b"")


def _idle(port: int) -> None:
    _hold(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")


def _hold(port: int, data: bytes) -> None:
    """``MANY`` connections that send this and wait."""
    held = []
    try:
        for _ in range(MANY):
            sock = socket.create_connection(("127.0.0.1", port), 3)
            held.append(sock)
            sock.sendall(data)
        _answers(port)
    finally:
        for sock in held:
            sock.close()


def _resets(port: int) -> None:
    """``MANY`` connections that are reset in their request."""
    for _ in range(MANY):
        with socket.create_connection(("127.0.0.1", port), 3) as sock:
            sock.sendall(_body(JSON)[:-5])
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _deaf(port: int) -> None:
    """Twenty clients that ask much and read nothing."""
    held = []
    try:
        for _ in range(20):
            sock = socket.create_connection(("127.0.0.1", port), 3)
            sock.settimeout(0.2)
            held.append(sock)
            try:
                sock.sendall((GET + b"\r\n") * 2000)
            except OSError:
                continue
        _answers(port)
    finally:
        for sock in held:
            sock.close()


def _dribble(port: int) -> None:
    """Fifty clients that send a byte now and then."""
    held = [socket.create_connection(("127.0.0.1", port), 3) for _ in range(50)]
    try:
        for byte in GET[:12]:
            for sock in held:
                try:
                    sock.send(bytes([byte]))
                except OSError:
                    continue
        _answers(port)
    finally:
        for sock in held:
            sock.close()


FLOODS: dict[str, Callable[[int], None]] = {
    f"{MANY} half requests": _half,
    f"{MANY} half bodies": _half_body,
    f"{MANY} silent connections": _silent,
    f"{MANY} idle connections": _idle,
    f"{MANY} resets": _resets,
    "20 clients that do not read": _deaf,
    "50 clients that send a byte now and then": _dribble,
}
LEAST_PORTS = 3  # sessions and two replicas; LiteLLM where it runs


def cases() -> Iterator[Shared]:
    """Everything at every port of one run; greedy agents."""
    yield Shared("hostile clients without a key", _all, LEAST_PORTS * (len(REQUESTS) + len(FLOODS)) + 2)
    yield Shared("greedy agents", _greedy, len(GREED))


def _answers(port: int) -> None:
    """The port answers somebody who only asks whether it lives.

    Raises:
        AssertionError: not within ``ANSWER_S``.
    """
    began = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            sock.settimeout(ANSWER_S)
            assert sock.recv(100).startswith(b"HTTP/1.1 "), "no answer"
    except OSError as error:
        raise AssertionError(
            f"port does not answer: {error} after {time.monotonic() - began:.1f} s"
        ) from None


def _sends(data: bytes, port: int) -> bytes:
    """What a connection gets that sends this."""
    got = b""
    with closing(socket.create_connection(("127.0.0.1", port), 3)) as sock:
        sock.settimeout(READ_S)
        try:
            sock.sendall(data)
        except OSError:
            pass  # it was closed before all was sent: what it said can be read
        give_up = time.monotonic() + READ_S
        try:
            while time.monotonic() < give_up and (more := sock.recv(1 << 16)):
                got += more
                if len(got) > 1 << 20:
                    break
        except OSError:
            pass
    return got


def _refused(got: bytes, words: list[str]) -> Outcome:
    leaked = sum(word.encode() in got for word in words)
    lines = [line for line in got.split(b"\r\n") if line.startswith(b"HTTP/")]
    done = [line for line in lines if line.split(b" ")[1:2] and line.split(b" ")[1][:1] in (b"1", b"2")]
    assert not done, f"answered {done[0].decode('latin-1')}"
    assert b"Traceback" not in got
    return Outcome(leaked=leaked, note="a key is in the answer" if leaked else "")


def _all(folder: Path) -> list[Part]:
    run = real_run(
        folder,
        *("training.total_steps=5000", "proxy.trials_through=sessions", "embedded.turn_latency=0.05"),
    )
    try:
        run.start()
        wait_until(lambda: all(s.state == "ready" for s in run.snapshot().services), 150, "the services")
        ports, words = tcp_ports(run), secrets_of(run)
        before = {s.name: s.pid for s in run.snapshot().services}
        named = {port: _name(run, port) for port in ports}
        found: list[Part] = []

        def one(title: str, work: Callable[[int], Outcome], port: int) -> Part:
            try:
                outcome = work(port)
                _answers(port)
                return Part(f"{named[port]}: {title}", outcome)
            except (AssertionError, OSError) as error:
                return Part(f"{named[port]}: {title}", problem=str(error)[:200])

        with ThreadPoolExecutor(len(ports)) as pool:
            for title, data in REQUESTS.items():

                def ask(port: int, what: bytes = data) -> Outcome:
                    return _refused(_sends(what, port), words)

                found += pool.map(one, [title] * len(ports), [ask] * len(ports), ports)
        for title, flood in FLOODS.items():
            for port in ports:

                def pour(port: int, how: Callable[[int], None] = flood) -> Outcome:
                    how(port)
                    return Outcome()

                found.append(one(title, pour, port))
        steps = _steps(run)
        wait_until(lambda: _steps(run) > steps, 60, "the next step")
        after = {s.name: s.pid for s in run.snapshot().services}
        lost = sum(after.get(name) != pid for name, pid in before.items() if pid is not None)
        found.append(Part("the run goes on, with the same processes", Outcome(lost=lost)))
        forged = [
            path.name
            for path in run.run_dir.rglob("*.log")
            if any(line.lstrip().startswith(FORGED.encode()) for line in path.read_bytes().splitlines())
        ]
        found.append(
            Part("no line of a log is the attacker's", Outcome(leaked=len(forged), note=", ".join(forged)))
        )
        last = found[-1]
        end = stopped(run, Outcome(), now=True)
        if not end.survived:
            found[-1] = Part(last.name, last.outcome, f"the run could not be stopped: {end.note}")
        return found
    finally:
        run.end()


def _name(run, port: int) -> str:  # type: ignore[no-untyped-def]
    for service in run.snapshot().services:
        if port in service.ports.values():
            return str(service.name)
    return f"port {port}"


def _steps(run) -> int:  # type: ignore[no-untyped-def]
    lines = (run.run_dir / "metrics.jsonl").read_bytes().splitlines()
    return int(json.loads(lines[-1])["step"]) if lines else 0


# -- with a key


async def _max_turns(host: SessionHost, replica: TokenReplica) -> Outcome:
    """300 different requests at once of a session that may have 8 turns: they are samples beside its first one, of
    which there are at most ``BESIDE`` for each turn, and at most 64 rows are trained."""
    opened = await host.open("task-00000001", max_turns=8)
    asked = [host.chat(opened, {"role": "user", "content": f"q{n}"}) for n in range(300)]
    done = sum(status == 200 for status, _ in await asyncio.gather(*asked))
    rows = await host.finish("task-00000001")
    too_many = max(done - BESIDE * 8, 0) + max(len(rows) - ROWS, 0)
    return Outcome(leaked=too_many, note=f"{done} replies, {quantity(len(rows), 'row')} to train on")


async def _same(host: SessionHost, replica: TokenReplica) -> Outcome:
    """300 retries of one request at once, marked as the vendors' libraries mark them, are one sample."""
    before = len(replica.replies)
    opened = await host.open("task-00000002")
    headers = {"Authorization": f"Bearer {opened['key']}", "x-stainless-retry-count": "1"}
    body = {"model": "m", "messages": [{"role": "user", "content": "same"}]}
    replica.gate.clear()

    async def again() -> int:
        url = f"{opened['openai_url']}/chat/completions"
        async with host.http.post(url, json=body, headers=headers) as response:
            await response.read()
            return response.status

    asked = [asyncio.create_task(again()) for _ in range(300)]
    await replica.begun.wait()
    await until(lambda: host.store.session(opened["id"]).counters.num_joined == 299)
    replica.gate.set()
    refused = sum(status != 200 for status in await asyncio.gather(*asked))
    return Outcome(doubled=len(replica.replies) - before - 1, lost=refused)


async def _one_address(host: SessionHost, replica: TokenReplica) -> Outcome:
    """512 agents behind one address, each with its own key: all are answered."""
    opened = [await host.open(f"agent-{n:08}") for n in range(512)]
    asked = [host.chat(one, {"role": "user", "content": "x"}) for one in opened]
    refused = sum(status != 200 for status, _ in await asyncio.gather(*asked))
    return Outcome(lost=refused)


async def _beside(host: SessionHost, replica: TokenReplica) -> Outcome:
    """While one asks for 300 samples at once, another is answered within a second of the replica's own time."""
    greedy, modest = await host.open("task-00000003"), await host.open("task-00000004")
    asked = [asyncio.create_task(host.chat(greedy, {"role": "user", "content": f"g{n}"})) for n in range(300)]
    await asyncio.sleep(0)
    began = time.monotonic()
    status, _ = await host.chat(modest, {"role": "user", "content": "x"})
    took = time.monotonic() - began
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    return Outcome(lost=int(status != 200), note=f"answered after {took:.1f} s")


async def _other_key(host: SessionHost, replica: TokenReplica) -> Outcome:
    """One trial's key opens no other trial, before and after its end."""
    one, other = await host.open("task-00000005"), await host.open("task-00000006")
    stolen = {**other, "key": one["key"]}
    first, _ = await host.chat(stolen, {"role": "user", "content": "x"})
    await host.finish("task-00000005")
    second, _ = await host.chat(stolen, {"role": "user", "content": "x"})
    third, _ = await host.chat(one, {"role": "user", "content": "x"})
    return Outcome(leaked=sum(status == 200 for status in (first, second, third)))


GREED = {
    "300 requests at once, 8 turns allowed": _max_turns,
    "300 retries of one request at once": _same,
    "512 agents behind one address": _one_address,
    "one beside 300 samples of another": _beside,
    "another trial's key": _other_key,
}


def _greedy(folder: Path) -> list[Part]:
    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        return [await part(title, greed(host, replica)) for title, greed in GREED.items()]

    return hosted(folder, work)
