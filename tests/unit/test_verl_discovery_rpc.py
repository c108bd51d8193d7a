"""The child that asks for addresses, from both sides. Ray and its dashboard are simulated here."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web
from kit.clock import Clock
from msgspec.structs import replace

from liverl.model import Level
from liverl.plan.spec import Probe
from liverl.supervise.services.probes import Http, Target, check
from liverl.verl.discovery.address_client import AddressClient, AddressClientGone, Answer, address_argv
from liverl.verl.discovery.assess import Expectation, Unhealthy
from liverl.verl.discovery.discovery import Discovery, health_problem
from liverl.verl.discovery.names import Engine
from liverl.verl_runtime import addresses

# The form of addresses.py, with what the test wants it to answer.
READY = "import json, sys, os, time\nprint(json.dumps({'ready': '0'}), flush=True)\n"
ANSWERS = (
    READY
    + """
for line in sys.stdin:
    question = json.loads(line)
    told = {name: "127.0.0.1:%s" % os.environ["PORT"] for name in question["names"] if name != "none"}
    errors = {"none": question.get("namespace", "")}
    print(json.dumps({"id": question["id"], "addresses": told, "errors": errors}), flush=True)
"""
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Callable[[str], AddressClient]]:
    made: list[AddressClient] = []

    def start(script: str, clock: Callable[[], float] = time.monotonic) -> AddressClient:
        command = ((sys.executable, "-c", script), {**os.environ, "PORT": "1"})
        made.append(AddressClient(lambda: command, tmp_path / "child.log", clock))
        return made[-1]

    yield start
    for one in made:
        await one.close()


async def test_it_answers_and_ends(client: Any) -> None:
    one = client(ANSWERS)
    assert one.pid is None
    answers = await asyncio.gather(*(one.ask([f"a{i}", "none"], "ns", 5.0) for i in range(5)))
    assert answers[3] == Answer({"a3": "127.0.0.1:1"}, {"none": "ns"})
    pid = one.pid
    assert pid is not None and [p.pid for p in psutil.Process().children() if p.pid == pid] == [pid]
    await one.close()
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            'print(\'{"fatal": "ConnectionError: nobody"}\')',
            r"cannot connect to Ray \(ConnectionError: nobody\); see .*/child.log",
        ),
        (
            "raise SystemExit(3)",
            r"^the process that looks up replica addresses exited \(exit 3\); see .*/child.log",
        ),
        (
            "print('Ray says hello')",
            "the process that looks up replica addresses sent an unexpected reply: Ray says hello",
        ),
        (
            READY + "sys.stdin.readline(); os._exit(5)",
            r"^the process that looks up replica addresses exited \(exit 5\)",
        ),
        (
            READY + "sys.stdin.readline(); print('[]', flush=True); time.sleep(60)",
            "the process that looks up replica addresses sent an unexpected reply",
        ),
        (
            READY + "sys.stdin.readline(); print('{\"id\": 7}', flush=True); time.sleep(60)",
            "the process that looks up replica addresses sent an unexpected reply",
        ),
        (
            READY + "sys.stdin.readline(); time.sleep(60)",
            "the process that looks up replica addresses did not respond within 0.5 s",
        ),
        (
            READY + 'sys.stdin.readline(); print(\'{"id": 1, "addresses": 2}\', flush=True)',
            "the process that looks up replica addresses sent an invalid reply",
        ),
    ],
)
async def test_a_child_that_goes_wrong_is_ended(
    client: Any, script: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "did not respond" in words:  # all others answer or end, however long that takes
        monkeypatch.setattr("liverl.verl.discovery.address_client.FIRST", 0.4)
    monkeypatch.setattr("liverl.verl.discovery.address_client._FAREWELL", 60.0)
    one = client(script)
    with pytest.raises(AddressClientGone, match=words):
        await one.ask(["a"], "", 0.1)


async def test_it_is_not_started_again_at_once(client: Any) -> None:
    clock = Clock()
    one = client("raise SystemExit(3)", clock)
    waits = []
    for _ in range(4):
        with pytest.raises(AddressClientGone, match="the process that looks up replica addresses exited"):
            await one.ask(["a"], "", 0.1)
        with pytest.raises(
            AddressClientGone, match=r"restarting the process that looks up replica addresses in (\d+) s"
        ) as refused:
            await one.ask(["a"], "", 0.1)
        waits.append(int(str(refused.value).rsplit(" ", 2)[1]))
        clock.now += waits[-1]
    assert waits == [1, 2, 5, 10]


async def test_a_cancelled_question_leaves_no_child(client: Any) -> None:
    one = client(READY + "time.sleep(60)")
    task = asyncio.create_task(one.ask(["a"], "", 30.0))
    while one.pid is None:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    pid = one.pid
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.pid is None and not psutil.pid_exists(pid)


async def test_no_such_python(tmp_path: Path) -> None:
    argv = address_argv(str(tmp_path / "python"), "127.0.0.1:6379", "liverl")
    assert argv[1].endswith("/verl_runtime/addresses.py") and Path(argv[1]).is_file()
    assert argv[2:] == ("--address", "127.0.0.1:6379", "--namespace", "liverl")
    with pytest.raises(AddressClientGone, match="failed to start"):
        await AddressClient(lambda: (argv, {}), tmp_path / "log").ask(["a"], "", 1.0)


class FakeRay:
    """Ray's client, as far as the child uses it (simulated). A reference is ``(answer, finished)``."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.actors: dict[str, tuple[str, Any, bool]] = {}

    def get_actor(self, name: str, namespace: str | None) -> Any:
        if name not in self.actors:
            raise ValueError(f"Failed to look up actor with name {name!r}.\nMore text.")
        identity, answer, finished = self.actors[name]
        ray = self

        class Handle:
            class _actor_id:
                hex = staticmethod(lambda: identity)

            class get_server_address:
                @staticmethod
                def remote() -> Any:
                    ray.calls.append(name)
                    return [answer, finished]

        return Handle

    def wait(self, refs: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return [ref for ref in refs if ref[1]], [ref for ref in refs if not ref[1]]

    def get(self, ref: Any, timeout: float) -> Any:
        if isinstance(ref[0], Exception):
            raise ref[0]
        return ref[0]


def test_one_call_at_a_time_for_each_actor() -> None:
    ray = FakeRay()
    ray.actors = {"up": ("1", ("192.0.2.2", 80), True), "busy": ("2", None, False)}
    asker = addresses.Asker(ray)
    for _ in range(3):
        assert asker.ask(["up", "busy", "none", "up"], "ns", 3.0) == (
            {"up": "192.0.2.2:80"},
            {
                "busy": "no response within 3 s",
                "none": "ValueError: Failed to look up actor with name 'none'.",
            },
        )
    assert ray.calls.count("busy") == 1  # the call that is under way is waited for, not made again
    ray.actors["busy"] = ("3", AssertionError("http server is not launched, port is None"), True)
    told = asker.ask(["busy"], "ns", 3.0)
    assert told == ({}, {"busy": "AssertionError: http server is not launched, port is None"})
    assert ray.calls.count("busy") == 2


@pytest.mark.parametrize(
    ("answer", "address"),
    [(("192.0.2.2", 80), "192.0.2.2:80"), (["::1", 80], "[::1]:80"), (("h", 1), "h:1")],
)
def test_an_address(answer: Any, address: str) -> None:
    assert addresses.join(answer) == address


@pytest.mark.parametrize("answer", [None, ("192.0.2.2", None), ("", 80), (), ("a", 0), ("a", "80"), 5])
def test_no_address(answer: Any) -> None:
    with pytest.raises(ValueError, match=r"returned|no port"):
        addresses.join(answer)


async def test_a_whole_discovery(tmp_path: Path) -> None:
    """A dashboard, a child and a server of the test's own."""
    rows: list[dict[str, Any]] = []
    broken = False

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/health":
            return web.Response()
        if broken:
            return web.Response(status=503, text="busy")
        if request.path == "/logical/actors":
            found = {row["actor_id"]: {"startTime": 110_000} for row in rows}
            return web.json_response({"data": {"actors": found}})
        return web.json_response({"data": {"result": {"result": rows}}})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    http, clock = Http(), Clock()
    story: list[tuple[str, Level, int | None]] = []
    api: list[str | None] = [None]
    command = ((sys.executable, "-c", ANSWERS), {**os.environ, "PORT": str(port)})
    discovery = Discovery(
        http,
        lambda: api[0],
        None,
        Expectation(1, since=100.0, actor_deadline=50),
        lambda: command,
        tmp_path / "logs" / "addresses.log",
        lambda text, level, rank: story.append((text, level, rank)),
        clock,
    )
    assert await discovery.look() == 1.0 and not story  # no dashboard yet
    api[0] = f"http://127.0.0.1:{port}"
    assert await discovery.look() == 1.0 and discovery.ranks[0].stage == "missing"
    assert discovery.pid is None  # nobody to ask
    rows.append({"actor_id": "a", "name": "vllm_server_0_0", "state": "PENDING_CREATION", "pid": 9})
    await discovery.look()
    rows[0] |= {"state": "ALIVE"}
    clock.now = 161.0
    asked: set[int] = set()
    async with asyncio.timeout(60):
        while await discovery.look() != 3.0:
            asked |= {discovery.pid} if discovery.pid is not None else set()
            await asyncio.sleep(0.02)
    assert discovery.ranks[0].since == 161.0 and discovery.verdict is None
    broken = True
    for clock.now in (170.0, 219.0):
        assert await discovery.look() == 1.0
    assert discovery.verdict is None and discovery.all_healthy
    clock.now = 220.0
    await discovery.look()
    assert discovery.verdict is not None and discovery.verdict.rank is None
    broken = False
    assert await discovery.look() == 3.0 and discovery.verdict is None
    told = [(text, rank) for text, _, rank in story]
    assert told[:4] == [
        ("replica 0 is PENDING_CREATION: the actor's constructor is still running (pid 9)", 0),
        ("replica 0 is ALIVE (pid 9)", 0),
        (f"replica 0 reported its address http://127.0.0.1:{port}", 0),
        ("replica 0 is healthy after 61 s", 0),
    ]
    assert told[4][0].endswith("GET /api/v0/actors returned 503 with a body that is not JSON: 'busy'")
    assert told[5:] == [("Ray's dashboard responds again", None)]
    # the next trainer's actors are others
    discovery.expect(Expectation(1, since=220.0, not_before=220.0))
    assert discovery.ranks[0].stage == "missing"
    await discovery.look()
    assert discovery.ranks[0].stage == "missing" and discovery.ranks[0].generation == 1
    assert discovery.pid is None  # with every address known, the child has gone
    assert not any(psutil.pid_exists(pid) for pid in asked)
    await discovery.close()
    await http.close()
    await runner.cleanup()


async def test_a_probe_with_a_token(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        ok = request.headers.get("Authorization") == "Bearer secret"
        return web.Response(status=200 if ok else 401)

    app = web.Application()

    async def complete(request: web.Request) -> web.StreamResponse:
        ok = request.headers.get("Authorization") == "Bearer secret"
        return web.json_response({"choices": [{}]}, status=200 if ok else 401)

    app.router.add_get("/api/version", answer)
    app.router.add_get("/health", answer)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    target = Target("127.0.0.1", {"http": port}, tmp_path / "log", 0, tmp_path, 1, 1)
    http = Http()
    plain = Probe(kind="http", port="http", path="/api/version")
    token = Probe(kind="http", port="http", path="/api/version", token_file="secrets/ray_token")
    assert await check(plain, target, http) == "GET /api/version answered 401"
    problem = await check(token, target, http)
    assert problem is not None and problem.startswith("cannot read the token file of the probe: ")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/ray_token").write_text("secret\n")
    assert await check(token, target, http) is None
    completion = Probe(kind="completion", port="http", model="policy")
    problem = await check(completion, target, http)
    assert problem is not None and problem.startswith("the test completion returned status 401")
    assert await check(replace(completion, token_file=token.token_file), target, http) is None
    address = f"http://127.0.0.1:{port}"
    assert await health_problem(http, address, "vllm") == Unhealthy("GET /health returned 401")
    assert await health_problem(http, address, "vllm", tmp_path / "secrets/ray_token") is None
    missing = await health_problem(http, address, "vllm", tmp_path / "secrets/none")
    assert missing is not None and "No such file" in missing.text
    await runner.cleanup()
    assert await check(token, target, http) == f"nothing listens on port {port} yet"
    await http.close()


@pytest.mark.parametrize(
    ("engine", "status", "ended"),
    [("vllm", 503, True), ("vllm", 500, False), ("sglang", 503, False)],
)
async def test_an_engine_that_has_ended_is_told_from_one_that_starts(
    engine: Engine, status: int, ended: bool
) -> None:
    """SGLang returns 503 while it starts."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status)

    app = web.Application()
    app.router.add_get("/health", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    http = Http()
    problem = await health_problem(http, f"http://127.0.0.1:{runner.addresses[0][1]}", engine)
    assert problem is not None and problem.engine_ended is ended
    assert problem.text.startswith(f"GET /health returned {status}")
    await http.close()
    await runner.cleanup()
