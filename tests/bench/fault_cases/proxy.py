"""Clients that abuse the proxy: the real LiteLLM behind our runner, in front of a toy replica.

Each case has a proxy of its own, which takes ten seconds to start. A case fails where others are not served beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fault_cases.base import Case, Outcome

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "stack")]

CHAT = "/v1/chat/completions"
DESCRIPTORS = 1024
MAX_BODY = 1 << 20
ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "policy",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class _Replica(BaseHTTPRequestHandler):
    """Answers every request, or streams until nobody reads."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not body.get("stream"):
            data = json.dumps(ANSWER).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        chunk: dict[str, Any] = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "policy",
        }
        number = 0
        with contextlib.suppress(OSError):
            while True:
                delta = {"role": "assistant", "content": f"{number} " + "x" * 500}
                chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": None}]
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                number += 1

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def _proxy(folder: Path) -> Iterator[Any]:
    """A proxy below ``folder`` that serves; it must drain and exit 0 in the end."""
    from kit.components import LITELLM
    from proxykit import Proxy, say, served

    from liverl.environments import default_cache_dir, ensure

    replica = ThreadingHTTPServer(("127.0.0.1", 0), _Replica)
    replica.daemon_threads = True
    threading.Thread(target=replica.serve_forever, daemon=True).start()
    python = asyncio.run(ensure(LITELLM, default_cache_dir(), lambda text, share: say(text)))
    proxy = Proxy(python, folder / "run")
    proxy.open_files = DESCRIPTORS
    proxy.extra_env = {"LIVERL_MAX_BODY_BYTES": str(MAX_BODY), "LIVERL_WRITE_TIMEOUT": "3"}
    proxy.extra_env["LIVERL_HEAD_TIMEOUT"] = "5"
    with served(proxy, f"http://127.0.0.1:{replica.server_address[1]}"):
        yield proxy


def _post(proxy: Any, body: bytes, trial: str = "t") -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
    with contextlib.closing(client):
        headers = {"authorization": f"Bearer {proxy.keys.run}.{trial}", "content-type": "application/json"}
        client.request("POST", CHAT, body, headers)
        answer = client.getresponse()
        return answer.status, answer.read()


def _body(**fields: Any) -> bytes:
    return json.dumps({"model": "policy", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()


def _head(proxy: Any, length: int) -> bytes:
    return (
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {proxy.keys.run}.abuse\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


@contextlib.contextmanager
def _connections(proxy: Any, count: int, sent: bytes) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", proxy.port))
            with contextlib.suppress(OSError):
                sock.sendall(sent)
        yield


def _beside(count: int, sent: Callable[[Any], bytes], counter: str | None) -> Callable[[Path], Outcome]:
    """Others are served beside so many connections that send this; the proxy counts it in ``counter``."""

    def run(folder: Path) -> Outcome:
        with _proxy(folder) as proxy:
            before = proxy.status(1)[counter] if counter else 0
            began = time.monotonic()
            with _connections(proxy, count, sent(proxy)):
                answers = [_post(proxy, _body())[0] for _ in range(5)]
                if answers != [200] * 5:
                    raise AssertionError(f"others got {answers}")
                while counter and proxy.status(1)[counter] == before:
                    if time.monotonic() > began + 60:
                        raise AssertionError(f"{counter} did not change within 60 s")
                    time.sleep(0.05)
                named = time.monotonic() - began
        return Outcome(named_s=named if counter else None)

    return run


def _answered(body: bytes, expected: int) -> Callable[[Path], Outcome]:
    """This body gets this status, and a good request after it 200."""

    def run(folder: Path) -> Outcome:
        with _proxy(folder) as proxy:
            began = time.monotonic()
            status, answer = _post(proxy, body)
            named = time.monotonic() - began
            if status != expected or "error" not in json.loads(answer):
                raise AssertionError(f"{status} instead of {expected}: {answer[:200]!r}")
            if _post(proxy, _body())[0] != 200:
                raise AssertionError("the next request is not served")
        return Outcome(named_s=named, note=json.loads(answer)["error"]["message"])

    return run


def _nested(levels: int) -> bytes:
    return _body()[:-1] + b',"x":' + b"[" * levels + b"]" * levels + b"}"


BODIES = {
    "empty": b"",
    "half": _body()[:-1],
    "a list": b"[]",
    "null": b"null",
    "utf-16": _body().decode().encode("utf-16"),
    "not utf-8": _body().replace(b"hi", b"\xff\xfe"),
    "5,000 digits": _body()[:-1] + b',"seed":' + b"9" * 5000 + b"}",
    "600 levels": _nested(600),
    "100,000 levels": _nested(100_000),
    "model is a number": _body(model=3),
    "messages is a string": _body(messages="hi"),
    "content is a number": _body(messages=[{"role": "user", "content": 3}]),
    "tool_calls is a number": _body(messages=[{"role": "assistant", "tool_calls": 3}]),
    "tools are numbers": _body(tools=[1]),
    "timeout is a word": _body(timeout="x"),
    "headers is a number": _body(headers=3),
    "an address of its own": _body(api_base="http://169.254.169.254/"),
}


def cases() -> Iterator[Case]:
    """The cases of the proxy."""
    slow = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n".encode()
    keyless = slow + b"Content-Length: 1000000\r\n\r\n" + b"x" * 1000
    yield Case("proxy: 1,300 silent connections", _beside(1300, lambda _: b"", "dropped"))
    yield Case("proxy: 1,300 half-open requests", _beside(1300, lambda _: slow, "dropped"))
    yield Case("proxy: 300 bodies without a key", _beside(300, lambda _: keyless, "refused"))
    yield Case("proxy: 100 half bodies", _beside(100, lambda proxy: _head(proxy, 5000) + b"{", None))
    yield Case(
        "proxy: 300 requests that are not HTTP",
        _beside(300, lambda _: b"\x16\x03\x01" * 9 + b"\r\n\r\n", None),
    )
    stream = _body(stream=True)
    yield Case(
        "proxy: 20 streams that nobody reads",
        _beside(20, lambda proxy: _head(proxy, len(stream)) + stream, "dropped"),
    )
    yield Case("proxy: a body of 50 MB", _answered(_body(user="x" * 50_000_000), 413))
    for name, body in BODIES.items():
        yield Case(f"proxy: body: {name}", _answered(body, 400))
