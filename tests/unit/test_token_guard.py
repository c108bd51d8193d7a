"""The token that every port of a replica requires, and the ASGI class that ``vllm serve`` imports."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from kit.guarded import serving
from multidict import CIMultiDict

from liverl.engines.vllm.metrics import METRICS
from liverl.observe.engine.metrics import parse_engine_metrics
from liverl.util import token_guard, weight_requests
from liverl.util.aiohttp_guard import token_gate
from liverl.util.token_guard import Token, TokenGuard
from liverl.verl_runtime.cpuengine.settings import TOKEN_FILE_VARIABLE, Settings, required_token

TOKEN = "sk-liverl-right"
Header = tuple[bytes, bytes]
RIGHT: Header = (b"authorization", b"Bearer " + TOKEN.encode())


async def app(
    scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """An application that answers everything."""
    if scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})
    else:
        await send({"type": f"{scope['type']}.inside"})


@pytest.fixture
def asgi(monkeypatch: pytest.MonkeyPatch) -> TokenGuard:
    monkeypatch.setenv(token_guard.VARIABLE, TOKEN)
    return TokenGuard(app)


def ask(asgi: TokenGuard, *headers: Header, kind: str = "http", path: str = "/") -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    read: list[bool] = []

    async def receive() -> dict[str, Any]:
        read.append(True)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asgi({"type": kind, "method": "GET", "path": path, "headers": headers}, receive, send))
    assert not read or sent[0].get("status") != 401, "the body of a refused request is not read"
    return sent


@pytest.mark.parametrize(
    "path", ["/health", "/metrics", "/v1/models", "/invocations", "/sleep", "/ping", "/"]
)
def test_every_route_needs_the_token(asgi: TokenGuard, path: str) -> None:
    start, body = ask(asgi, path=path)
    assert (start["status"], body["body"]) == (401, token_guard.REFUSAL)
    assert (b"content-length", str(len(token_guard.REFUSAL)).encode()) in start["headers"]
    assert [m.get("status", m.get("body")) for m in ask(asgi, RIGHT, path=path)] == [200, b"inside"]


def test_the_refusal_is_one_line_that_names_the_token_file() -> None:
    assert b"\n" not in token_guard.REFUSAL
    assert b"secrets/replica_token" in token_guard.REFUSAL


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"authorization", TOKEN.encode()),),
        ((b"authorization", b"Bearer "),),
        ((b"authorization", b"Bearer " + TOKEN[:-1].encode()),),
        ((b"authorization", b"Bearer " + TOKEN.encode() + b"x"),),
        ((b"authorization", b"Basic " + TOKEN.encode()),),
        ((b"authorization", b"Bearer \xff\xfe"),),
        ((b"x-api-key", TOKEN.encode()),),
        (RIGHT, RIGHT),
        ((b"authorization", b"Bearer x"), RIGHT),
    ],
)
def test_what_is_not_exactly_the_token_is_refused(asgi: TokenGuard, headers: Sequence[Header]) -> None:
    assert ask(asgi, *headers)[0]["status"] == 401


def test_the_scheme_and_the_name_of_the_header_have_no_case(asgi: TokenGuard) -> None:
    assert ask(asgi, (b"Authorization", b"bearer  " + TOKEN.encode()))[0]["status"] == 200


def test_websockets_are_refused_too_and_the_lifespan_is_not(asgi: TokenGuard) -> None:
    assert ask(asgi, kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert ask(asgi, RIGHT, kind="websocket") == [{"type": "websocket.inside"}]
    assert ask(asgi, kind="lifespan") == [{"type": "lifespan.inside"}]


Answer = tuple[int, Sequence[Header], bytes]


def answering(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Answer]
) -> Callable[..., tuple[Any, bytes]]:
    """A guarded application with these answers, and a way to ask it; simulated, not vLLM."""
    seen: list[Any] = []

    async def routes(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        status, headers, body = answers.get(scope["path"], (404, (), b""))
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": body[:3], "more_body": True})
        await send({"type": "http.response.body", "body": body[3:]})

    monkeypatch.setenv(token_guard.VARIABLE, TOKEN)
    asgi = TokenGuard(routes)

    def request(path: str, *headers: Header) -> tuple[Any, bytes]:
        sent = ask(asgi, *(headers or (RIGHT,)), path=path)
        return {**sent[0], "scope": seen[-1] if seen else None}, b"".join(
            m.get("body", b"") for m in sent[1:]
        )

    return request


PLAIN: Header = (b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")


def test_requests_that_can_change_weights_are_counted_in_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    page = b"vllm:num_requests_running 0.0\n"
    length = (b"Content-Length", str(len(page)).encode())
    answers: dict[str, Answer] = dict.fromkeys(weight_requests.ROUTES, (200, (), b"done"))
    answers |= {"/metrics": (200, (PLAIN, length), page), "/v1/chat/completions": (200, (), b"text")}
    request = answering(monkeypatch, answers)
    for path in ("/v1/chat/completions", "/metrics", "/health", "/update_weights/", "//update_weights"):
        request(path)
    assert request("/metrics")[1] == page and dict(request("/metrics")[0]["headers"]) == dict([PLAIN, length])
    request("/update_weights", (b"authorization", b"Bearer wrong"))
    assert request("/metrics")[1] == page, "a request without the token changes nothing"
    before = time.time()
    for number, route in enumerate(sorted(weight_requests.ROUTES), 1):
        for _ in range(number):
            assert request(route)[1] == b"done"
    start, body = request("/metrics", RIGHT, (b"Accept-Encoding", b"gzip"))
    assert body.startswith(page) and b"content-length" not in {name.lower() for name, _ in start["headers"]}
    assert b"accept-encoding" not in {name.lower() for name, _ in start["scope"]["headers"]}
    facts = parse_engine_metrics(body.decode(), METRICS)
    counted = ", ".join(f"{route} ({n})" for n, route in enumerate(sorted(weight_requests.ROUTES), 1))
    assert facts.weight_requests == counted and facts.running == 0
    assert facts.weight_request_at is not None and before - 1 < facts.weight_request_at < time.time() + 1


@pytest.mark.parametrize(
    ("status", "counts"), [(200, True), (500, True), (307, False), (400, False), (404, False)]
)
def test_a_request_that_was_refused_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, status: int, counts: bool
) -> None:
    request = answering(monkeypatch, {"/sleep": (status, (), b""), "/metrics": (200, (PLAIN,), b"a 1\n")})
    request("/sleep")
    assert (b'route="/sleep"} 1' in request("/metrics")[1]) is counts


@pytest.mark.parametrize(
    "answer",
    [
        (200, ((b"content-type", b"application/openmetrics-text; version=1.0.0"),), b"a 1\n# EOF\n"),
        (503, (PLAIN,), b"not now"),
        (200, (), b"?"),
    ],
)
def test_metrics_that_are_not_in_prometheus_text_format_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    request = answering(monkeypatch, {"/sleep": (200, (), b""), "/metrics": answer})
    request("/sleep")
    start, body = request("/metrics")
    assert (start["status"], list(start["headers"]), body) == (answer[0], list(answer[1]), answer[2])


@pytest.mark.parametrize("value", [None, ""])
def test_a_server_without_a_token_does_not_start(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(token_guard.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(token_guard.VARIABLE, value)
    with pytest.raises(ValueError, match="LIVERL_REPLICA_TOKEN is not set"):
        TokenGuard(app)
    with pytest.raises(ValueError, match="empty"):
        Token("")


def test_the_token_is_not_in_a_repr() -> None:
    assert TOKEN not in repr(Token(TOKEN))


@pytest.mark.parametrize("token", [TOKEN, None])
async def test_a_server_of_ours_refuses_every_route_the_same_way(token: str | None) -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application()
    app.router.add_post("/echo", echo)
    gate = token_gate(Token(token) if token else None)
    async with serving(app, gate) as url, ClientSession(url) as client:
        right = {"Authorization": f"Bearer {TOKEN}"}
        for sent in (
            {},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": "Bearer \xff"},
            {"X-Api-Key": TOKEN},
        ):
            for method, path in (
                ("POST", "/echo"),
                ("GET", "/echo"),
                ("GET", "/nothing"),
                ("OPTIONS", "/echo"),
            ):
                async with client.request(method, path, data=b"x", headers=sent) as answer:
                    if token is not None:
                        assert (answer.status, await answer.read()) == (401, token_guard.REFUSAL)
                    else:
                        assert answer.status in (200, 404, 405)
        both = CIMultiDict([("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")])
        async with client.post("/echo", data=b"x", headers=both) as answer:
            assert answer.status == (401 if token else 200)
        async with client.post("/echo", data=b"inside", headers=right) as answer:
            assert (answer.status, await answer.read()) == (200, b"inside")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_replica_of_verl_reads_the_token_from_the_file_that_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Reward and teacher models are not guarded: verl calls them over HTTP without the token."""
    settings = Settings(
        rank=0, model="/m", served=("policy",), tool_parser="hermes", max_model_len=9, max_num_seqs=1,
        prompt_length=1, response_length=1, seed=0, hybrid=True, free_cache_engine=True, load_weights=True,
        guarded=guarded,
    )  # fmt: skip
    monkeypatch.delenv(TOKEN_FILE_VARIABLE, raising=False)
    assert required_token(settings) is None, "under a plan of an older version"
    path = tmp_path / "replica_token"
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(path))
    if not guarded:
        assert required_token(settings) is None
        return
    with pytest.raises(FileNotFoundError):
        required_token(settings)
    path.write_text("\n")
    with pytest.raises(ValueError, match="empty"):
        required_token(settings)
    path.write_text(f"{TOKEN}\n")
    token = required_token(settings)
    assert token is not None and token.accepts([RIGHT[1]])


def test_it_is_imported_from_the_stub_with_the_standard_library_only(tmp_path: Path) -> None:
    """As in vLLM's environment: no site packages, and of ours only the package on the path."""
    from liverl.plan.guest_path import stub

    made = stub("replica/path")
    path = tmp_path / made.path
    path.parent.mkdir(parents=True)
    path.write_text(made.text)
    code = (
        "import sys; import liverl.util.token_guard as g; "
        "ours = sorted(n for n in sys.modules if n.split('.')[0] in ('liverl', 'liverl_tui', 'msgspec')); "
        "print(ours, g.TokenGuard.__name__)"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-E",
            "-s",
            "-c",
            f"import sys; sys.path.insert(0, {str(tmp_path / 'replica/path')!r}); {code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = ("poll_filter", "token_guard", "weight_requests")
    ours = ["liverl", "liverl.util", *(f"liverl.util.{name}" for name in modules)]
    assert done.stdout.strip() == f"{ours} TokenGuard"
