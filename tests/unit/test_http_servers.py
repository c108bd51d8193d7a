"""The table of our servers and of the rules that hold for each: no empty cell, and no server that is not in it."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import logging
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import aiohttp
import pytest
from kit.screens import snapshot

import liverl
import liverl_tui
from liverl.embedded import modeldir
from liverl.embedded.engine.args import build_parser
from liverl.embedded.engine.cache import Scheduler
from liverl.embedded.engine.core import Core
from liverl.embedded.engine.http import EngineServer
from liverl.embedded.engine.metrics import EngineMetrics
from liverl.embedded.policy import Policy
from liverl.exposition.server import MetricsServer
from liverl.sessions import service
from liverl.sessions.relay import Relay
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.server import AgentRoutes, TrainerRoutes
from liverl.sessions.store import Store
from liverl.util import http_limits, http_server
from liverl.util.http_limits import HTTP, limits_for
from liverl.util.socket_path import usable_address
from liverl.util.token_guard import Token
from liverl.verl_runtime.worker_sessions import HostSettings, WorkerSessions
from liverl_tui.web.server import WebServer

PACKAGES = (Path(liverl.__file__).parent, Path(liverl_tui.__file__).parent)
TESTS = Path(__file__).parents[1]
KEY = "sk-liverl-right"


@dataclass
class Target:
    """A server that runs. ``post``: a route that takes a JSON body; ``mine``: each client has a key of its own;
    ``refusal``: the status of a body with a key that no route can use; 405: none takes a body."""

    port: int
    post: str
    key: str
    mine: bool = False
    context: int | None = None
    refusal: int = 400

    def head(self, length: int, *more: str, key: str | None = None) -> bytes:
        lines = [f"POST {self.post} HTTP/1.1", "Host: x", f"Authorization: Bearer {key or self.key}"]
        return "\r\n".join([*lines, f"Content-Length: {length}", *more, "", ""]).encode()

    async def connect(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        return reader, writer

    async def answer(self, sent: bytes) -> tuple[int, str]:
        """The status and the rest of what comes back until the server closes the connection, or says how long it is."""
        reader, writer = await self.connect(sent)
        try:
            async with asyncio.timeout(60):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                body = await reader.readexactly(int(length[0].partition(":")[2])) if length else b""
            return int(head.split()[1]), head + body.decode()
        finally:
            writer.close()

    async def ask(self, body: bytes) -> tuple[int, str]:
        return await self.answer(self.head(len(body)) + body)


SMALL: dict[str, Any] = {"connections": 12, "unproven": 8, "per_peer": 4, "per_key": 3}
QUICK = {"head_timeout": 0.6, "body_timeout": 0.6}  # seconds
LIMITS: dict[str, dict[str, Any]] = {  # of the rules that are not about time
    "without_key_of_address": SMALL,
    "without_key": {**SMALL, "unproven": 100, "per_peer": 100},
    "of_key": SMALL,
}


Start = Callable[[Path], Any]


class _NoReplicas(ReplicaList):
    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]


def _store(folder: Path) -> Store:
    (folder / "trials" / "one").mkdir(parents=True)
    return Store(folder / "sessions", (folder / "trials",), _NoReplicas())


@asynccontextmanager
async def agents(folder: Path) -> AsyncIterator[Target]:
    store = _store(folder)
    session = store.open("one", str(folder / "trials" / "one"), service_limits())
    routes = AgentRoutes(store, ("m",))
    server = service.http_server(routes.app(1 << 20), routes.gate, 1 << 20)
    port = await server.listen("127.0.0.1")
    try:
        yield Target(port, "/sess/one/v1/chat/completions", session.opened.key, mine=True)
    finally:
        await server.close()
        await store.close()


def service_limits() -> Any:
    from liverl.sessions.sampling import Limits as Asked

    return Asked()


@asynccontextmanager
async def trainer(folder: Path) -> AsyncIterator[Target]:
    store = _store(folder)
    routes = TrainerRoutes(store, store.replicas, KEY, lambda: "http://x")  # type: ignore[arg-type]
    server = service.http_server(routes.app(), routes.gate, 1 << 20)
    port = await server.listen("127.0.0.1")  # in a run on a Unix socket
    try:
        yield Target(port, "/sessions", KEY)
    finally:
        await server.close()
        await store.close()


@asynccontextmanager
async def front(folder: Path) -> AsyncIterator[Target]:
    """The trainer's part of several processes, of which this test has one."""
    store = _store(folder)
    routes = TrainerRoutes(store, store.replicas, KEY, lambda: "http://x")  # type: ignore[arg-type]
    behind = service.http_server(routes.app(), routes.gate, 1 << 20)
    with usable_address(folder / "behind.sock") as address:
        await behind.start(service.control_socket(folder / "behind.sock"))
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(address)) as http:
            relay = Relay({0: http}, KEY, lambda: False, lambda _, facts: facts)
            server = service.http_server(relay.app(), relay.gate, 1 << 20)
            port = await server.listen("127.0.0.1")  # in a run on a Unix socket
            try:
                yield Target(port, "/sessions", KEY)
            finally:
                await server.close()
                await behind.close()
                await store.close()


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator[Target]:
    (folder / "trials" / "one").mkdir(parents=True)
    (folder / "sessions").mkdir()
    settings = HostSettings(str(folder), "attempt_001", "w1", "127.0.0.1", max_body_bytes=1 << 20)
    host = WorkerSessions(settings, _NoReplicas())  # type: ignore[arg-type]
    await host.start()
    try:
        opened = await host.open("one", folder / "trials" / "one", service_limits())
        port = int(host.address.rpartition(":")[2])
        yield Target(port, "/sess/one/v1/chat/completions", opened.key, mine=True)
    finally:
        await host.close()


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Target]:
    args = build_parser().parse_args(["--model", "builtin:qwen3_coder", "--tool-call-parser", "qwen3_coder"])
    core = Core(args, modeldir.read_config(modeldir.find(args.model)), Policy())
    engine = EngineServer(args, core, Scheduler(4, 100, caching=True), EngineMetrics("m"), ["m"], Token(KEY))
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.setblocking(False)
    stop = asyncio.Event()
    running = asyncio.ensure_future(engine.run(sock, stop))
    port = sock.getsockname()[1]
    await _reachable(port)
    try:
        yield Target(port, "/v1/chat/completions/render", KEY, context=core.max_model_len)
    finally:
        stop.set()
        await running


async def _reachable(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


@asynccontextmanager
async def cpu(folder: Path) -> AsyncIterator[Target]:
    """Its HTTP server is real; the model behind it, which needs torch, is simulated."""
    room = "liverl.verl_runtime.cpuengine"
    simulated = {f"{room}.{name}": MagicMock() for name in ("core", "engine", "replies", "request")}
    simulated[f"{room}.engine"].EngineDeadError = RuntimeError
    with patch.dict(sys.modules, simulated):
        Api = importlib.import_module(f"{room}.http").Api
    settings = SimpleNamespace(tool_parser="hermes", served=("m",), max_model_len=1000, model="m")
    metrics = SimpleNamespace(count_response=lambda *_: None)
    api = Api(SimpleNamespace(settings=settings, metrics=metrics), Token(KEY))
    port = await api.listen("127.0.0.1")
    try:
        yield Target(port, "/v1/chat/completions/render", KEY, context=1000)
    finally:
        await api.close()


@asynccontextmanager
async def metrics(folder: Path) -> AsyncIterator[Target]:
    server = MetricsServer(snapshot, lambda *_: None)
    port = await server.listen(0, Token(KEY), folder / "token")
    try:
        yield Target(port, "/metrics", KEY, refusal=405)
    finally:
        await server.close()


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Target]:
    server = WebServer(["/bin/true"], "x", folder)
    port = await server.listen(0, Token(KEY))
    try:
        yield Target(port, "/any/", KEY, refusal=405)
    finally:
        await server.close()


# -- rules


def half(target: Target) -> bytes:
    return f"POST {target.post} HTTP/1.1\r\nHost: x\r\nX-A: ".encode()


async def closes(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        return await reader.read()


async def head_timeout(target: Target) -> None:
    reader, writer = await target.connect(half(target))
    assert await closes(reader) == b""
    writer.close()


async def body_timeout(target: Target) -> None:
    status, text = await target.answer(target.head(100) + b'{"model":')
    if target.refusal == 405:
        assert status == 405, "it is not waited for"
        return
    assert status == 408 and "body did not arrive" in text


async def without_key_of_address(target: Target) -> None:
    known = [await target.connect() for _ in range(3)]
    for _, writer in known:
        writer.write(
            f"GET /nothing HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.key}\r\n\r\n".encode()
        )
    open_ = [await target.connect(half(target)) for _ in range(7)]
    for reader, _ in open_[:3]:
        assert await closes(reader) == b""
    assert not any(reader.at_eof() for reader, _ in [*known, *open_[3:]]), (
        "the oldest go, those with a key stay"
    )
    status, _ = await target.ask(b"{}")
    assert status == target.refusal, "a client with a key is served"
    for _, writer in [*known, *open_]:
        writer.close()


async def without_key_first(target: Target) -> None:
    """More than all connections at once: the oldest without a key go, and a client with one is served."""
    open_ = []
    for _ in range(30):
        open_.append(await target.connect(half(target)))
    status, _ = await target.ask(b"{}")
    assert status == target.refusal
    assert await closes(open_[0][0]) == b""
    for _, writer in open_:
        writer.close()


async def of_key(target: Target) -> None:
    """Each waits with a body that is not there yet; behind the most of one key the next one is refused. A key that all
    have is not counted."""
    pending = [await target.connect(target.head(10)) for _ in range(3)]
    await asyncio.sleep(0)
    status, text = await target.ask(b"{}")
    assert status == (503 if target.mine else target.refusal), text
    for _, writer in pending:
        writer.close()


async def old_versions(target: Target) -> None:
    for sent in (
        f"GET {target.post}\r\n\r\n".encode(),
        f"POST {target.post} HTTP/0.9\r\nHost: x\r\nAuthorization: Bearer {target.key}\r\n\r\n".encode(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        status, _ = await target.answer(sent)
        assert status in (400, 505), sent


async def key_before_continue(target: Target) -> None:
    body = b"{}"
    wrong = target.head(len(body), "Expect: 100-continue", key="wrong")
    status, text = await target.answer(wrong)
    assert status == 401 and "100" not in text.splitlines()[0]
    nowhere = b"POST /no/route HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    status, text = await target.answer(nowhere)
    assert status in (401, 404, 417) and "100" not in text.splitlines()[0]
    reader, writer = await target.connect(target.head(len(body), "Expect: 100-continue"))
    if target.refusal == 405:
        writer.close()
        return  # nothing is read behind the head
    async with asyncio.timeout(60):
        assert b" 100 " in await reader.readline()
    writer.close()


async def body_bytes(target: Target) -> None:
    status, text = await target.answer(target.head(1 << 40))
    assert status == 413, text


async def depth(target: Target) -> None:
    status, text = await target.ask(b'{"model":"m","messages":' + b"[" * 5000 + b"]" * 5000 + b"}")
    if target.refusal == 405:
        assert status == 413, "longer than any body may be there"
        return
    assert status == 400 and "nested deeper than 100 levels" in text


async def numbers(target: Target) -> None:
    for number in (b"1e999", b"9" * 5000):
        status, text = await target.ask(b'{"model":"m","messages":[],"seed":' + number + b"}")
        if target.refusal == 405:
            assert status in (405, 413), "its body is not read"
            continue
        assert status == 400 and "has a number" in text


async def letters(target: Target) -> None:
    if target.context is None:
        return  # a session learns the context from its replicas: test_sessions_fairness
    text = "x" * (target.context * (HTTP.letters_per_token + 1))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    status, said = await target.ask(body)
    assert status == 400 and "prompt is too long" in said


async def paths_in_logs(target: Target) -> None:
    path = "/x%0aFORGED%1b[31m"
    await target.answer(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())


Probe = Callable[[Target], Awaitable[None]]
RULES: dict[str, Probe] = {
    "head_timeout": head_timeout,
    "body_timeout": body_timeout,
    "without_key_of_address": without_key_of_address,
    "without_key": without_key_first,
    "of_key": of_key,
    "versions": old_versions,
    "key_before_continue": key_before_continue,
    "body": body_bytes,
    "depth": depth,
    "numbers": numbers,
    "letters": letters,
    "paths_in_logs": paths_in_logs,
}

_ABUSE = "stack/test_proxy_abuse.py::"
_LIMITS = "unit/test_proxy_limits.py::"
LITELLM = {
    "head_timeout": _ABUSE + "test_a_request_that_does_not_come_is_not_waited_for",
    "body_timeout": _ABUSE + "test_a_body_that_does_not_come_is_answered_with_408",
    "without_key_of_address": _ABUSE + "test_half_open_connections_leave_the_others_served",
    "without_key": _LIMITS + "test_the_oldest_without_a_key_goes_when_there_are_too_many",
    "of_key": _LIMITS + "test_one_key_cannot_take_all_connections",
    "versions": _ABUSE + "test_only_http_1_is_served",
    "key_before_continue": _ABUSE + "test_a_key_is_asked_for_before_a_body",
    "body": _ABUSE + "test_a_body_above_the_limit_is_answered_with_413",
    "depth": _ABUSE + "test_a_body_that_litellm_cannot_take_is_answered_with_400",
    "numbers": "unit/test_proxy_bodies.py::test_what_is_wrong_is_named_in_one_short_line",
    "letters": "its replicas count them: the proxy does not know their context",
    "paths_in_logs": _ABUSE + "test_connections_without_a_key_are_closed_with_their_answer",
}
# The sockets of a run for its own user are no HTTP: lines of JSON, with limits of their own.
_NOT_HTTP = (
    "unix socket for the user of the run, no HTTP: limits in control/front.py (clients, lines, commands)"
)

SERVERS: dict[str, Start | dict[str, str]] = {
    "sessions: agents": agents,
    "sessions: trainer": trainer,
    "sessions: trainer, several processes": front,
    "sessions in a worker of verl": worker,
    "embedded replica": embedded,
    "CPU replica of verl": cpu,
    "metrics for Prometheus": metrics,
    "interface in a browser": browser,
    "LiteLLM's runner": LITELLM,
    "control socket": dict.fromkeys(RULES, _NOT_HTTP),
}
# Where a server is made -> the servers of the table.
PLACES = {
    ("sessions/service.py", "HttpServer"): (
        "sessions: agents",
        "sessions: trainer",
        "sessions: trainer, several processes",
    ),
    ("verl_runtime/worker_sessions.py", "HttpServer"): ("sessions in a worker of verl",),
    ("embedded/engine/http.py", "HttpServer"): ("embedded replica",),
    ("verl_runtime/cpuengine/http.py", "HttpServer"): ("CPU replica of verl",),
    ("exposition/server.py", "HttpServer"): ("metrics for Prometheus",),
    ("web/server.py", "HttpServer"): ("interface in a browser",),
    ("proxy/runtime/server.py", "Config"): ("LiteLLM's runner",),
    ("control/front.py", "start_unix_server"): ("control socket",),
}
_GUARD = "util/http_server.py"  # what it makes is what the others use
NO_PORT = {("cli/mcp.py", "make_server")}  # a function of ours: it answers on stdin and stdout
MAKERS = {
    *(
        "TCPSite",
        "SockSite",
        "UnixSite",
        "NamedPipeSite",
        "AppRunner",
        "ServerRunner",
        "run_app",
        "HttpServer",
    ),
    *("start_server", "start_unix_server", "create_server", "create_unix_server", "connect_accepted_socket"),
    *(
        "HTTPServer",
        "ThreadingHTTPServer",
        "TCPServer",
        "ThreadingTCPServer",
        "UnixStreamServer",
        "make_server",
    ),
    *("BaseHTTPRequestHandler", "SimpleXMLRPCServer", "serve_forever"),
}
_OF_MODULES = {("uvicorn", "Config"), ("uvicorn", "run"), ("hypercorn", "Config"), ("web", "Server")}


_MAKES = (*MAKERS, *(rf"{module}\.{name}" for module, name in _OF_MODULES))
_NAMED = re.compile(rf"\b(?:{'|'.join(sorted(_MAKES))})\b")


def made(source: str) -> set[str]:
    """The calls and base classes in a module that make a server. One that names none is not parsed."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)) if _NAMED.search(source) else ():
        named = [node.func] if isinstance(node, ast.Call) else []
        named += node.bases if isinstance(node, ast.ClassDef) else []
        for each in named:
            if isinstance(each, ast.Attribute):
                of = each.value.id if isinstance(each.value, ast.Name) else ""
                if each.attr in MAKERS or (of, each.attr) in _OF_MODULES:
                    found.add(each.attr)
            elif isinstance(each, ast.Name) and each.id in MAKERS:
                found.add(each.id)
    return found


def places() -> set[tuple[str, str]]:
    found = set()
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            name = path.relative_to(package).as_posix()
            found |= {(name, maker) for maker in made(path.read_text()) if name != _GUARD}
    return found


def test_every_server_of_ours_is_in_the_table() -> None:
    assert places() - NO_PORT == PLACES.keys(), (
        "a new server needs the guard (util/http_server.py), and a row in SERVERS"
    )
    assert places() >= NO_PORT
    assert {server for several in PLACES.values() for server in several} == SERVERS.keys()


@pytest.mark.parametrize(
    "code",
    [
        "web.TCPSite(runner, '0.0.0.0', 0)",
        "web.AppRunner(app)",
        "web.run_app(app)",
        "uvicorn.Config(app)",
        "uvicorn.run(app)",
        "async def f():\n    await asyncio.start_server(f, '', 0)",
        "class H(http.server.BaseHTTPRequestHandler): pass",
        "http.server.ThreadingHTTPServer(('', 0), H)",
        "loop.create_server(f)",
        "HttpServer(app, gate, max_body=1)",
    ],
)
def test_a_new_server_is_found(code: str) -> None:
    assert made(code)


def test_no_cell_of_the_table_is_empty() -> None:
    for server, cells in SERVERS.items():
        if isinstance(cells, dict):
            assert cells.keys() == RULES.keys(), server
            for rule, cell in cells.items():
                path, found, test = cell.partition("::")
                assert cell and (not found or f"def {test}(" in (TESTS / path).read_text()), (server, rule)


RUNNING = {name: start for name, start in SERVERS.items() if not isinstance(start, dict)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("server", RUNNING)
async def test_every_rule_holds_for_every_server(
    server: str, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(http_server, "TICK_S", 0.05)
    monkeypatch.setattr(http_limits, "YOUNG_OF_ADDRESS", 0.05)
    changes = LIMITS.get(rule, QUICK)
    monkeypatch.setattr(
        http_server, "limits_for", lambda files, most: replace(limits_for(files, most), **changes)
    )
    async with RUNNING[server](tmp_path) as target:
        await RULES[rule](target)
    logged = caplog.text
    assert "Traceback" not in logged and "\x1b" not in logged
    if rule == "paths_in_logs":
        assert not any(line.startswith("FORGED") for line in logged.splitlines())


def test_the_servers_of_a_run_have_the_numbers_of_the_table() -> None:
    limits = limits_for(1 << 16, HTTP.body)
    assert (limits.head_timeout, limits.per_peer) == (10.0, 64)
    assert (limits.body_timeout, limits.write_timeout) == (HTTP.body_timeout, HTTP.write_timeout)


async def test_agents_behind_one_address_are_served_all_at_once(tmp_path: Path) -> None:
    """512 agents behind a NAT, each with its key and a connection that it keeps."""
    store = _store(tmp_path)
    keys = {}
    for number in range(512):
        folder = tmp_path / "trials" / f"t{number}"
        folder.mkdir()
        keys[f"t{number}"] = store.open(f"t{number}", str(folder), service_limits()).opened.key
    routes = AgentRoutes(store)
    server = service.http_server(routes.app(1 << 20), routes.gate, 1 << 20)
    port = await server.listen("127.0.0.1")
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

            async def ask(name: str, key: str) -> int:
                url = f"http://127.0.0.1:{port}/sess/{name}/v1/models"
                async with http.get(url, headers={"Authorization": f"Bearer {key}"}) as answer:
                    return answer.status

            for _ in range(2):
                assert set(await asyncio.gather(*(ask(*each) for each in keys.items()))) == {200}
            assert server.facts()["without_key"] == 0 and not server.facts()["dropped"]
    finally:
        await server.close()
        await store.close()
