"""The token that every port of a replica requires, and the ASGI class that ``vllm serve`` imports."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from liverl.util import token_guard
from liverl.util.token_guard import Token, TokenGuard

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
def guard(monkeypatch: pytest.MonkeyPatch) -> TokenGuard:
    monkeypatch.setenv(token_guard.VARIABLE, TOKEN)
    return TokenGuard(app)


def ask(guard: TokenGuard, *headers: Header, kind: str = "http", path: str = "/") -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    read: list[bool] = []

    async def receive() -> dict[str, Any]:
        read.append(True)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard({"type": kind, "path": path, "headers": headers}, receive, send))
    assert not read or sent[0].get("status") != 401, "the body of a refused request is not read"
    return sent


@pytest.mark.parametrize(
    "path", ["/health", "/metrics", "/v1/models", "/invocations", "/sleep", "/ping", "/"]
)
def test_every_route_needs_the_token(guard: TokenGuard, path: str) -> None:
    start, body = ask(guard, path=path)
    assert (start["status"], body["body"]) == (401, token_guard.REFUSAL)
    assert (b"content-length", str(len(token_guard.REFUSAL)).encode()) in start["headers"]
    assert [m.get("status", m.get("body")) for m in ask(guard, RIGHT, path=path)] == [200, b"inside"]


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
def test_what_is_not_exactly_the_token_is_refused(guard: TokenGuard, headers: Sequence[Header]) -> None:
    assert ask(guard, *headers)[0]["status"] == 401


def test_the_scheme_and_the_name_of_the_header_have_no_case(guard: TokenGuard) -> None:
    assert ask(guard, (b"Authorization", b"bearer  " + TOKEN.encode()))[0]["status"] == 200


def test_websockets_are_refused_too_and_the_lifespan_is_not(guard: TokenGuard) -> None:
    assert ask(guard, kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert ask(guard, RIGHT, kind="websocket") == [{"type": "websocket.inside"}]
    assert ask(guard, kind="lifespan") == [{"type": "lifespan.inside"}]


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
    assert done.stdout.strip() == "['liverl', 'liverl.util', 'liverl.util.token_guard'] TokenGuard"
