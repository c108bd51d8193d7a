"""Outermost ASGI layer: authorization, limits of bodies, tracking of open requests, and closing of connections while
draining."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from liverl.util.http_limits import HTTP, Body, BodyRefused
from liverl.util.log_path import log_path

from .auth import CALL_ROUTES, Refusal, authorize
from .bodies import InvalidBody, encoded, read_body
from .calls import Call, current
from .connections import SCOPE_KEY
from .generation_state import GenerationState
from .sampling import changing_field

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_ERROR_BODY = 65536  # maximum bytes of an error response kept for its record
_NO_REPLICA = "no replica is listed: the run is still starting, or all replicas were removed"
_CHANGING = (
    "changes the distribution that replies are sampled from, which in this run is the trainer's: leave it out"
)
_RETRY_AFTER = (b"retry-after", b"2")  # seconds; respected by agents' client libraries
_CLOSE = (b"connection", b"close")
# A client that is still sending gets no answer when its connection is closed, and tries again. So what it sends is
# read and thrown away for a while.
_DISCARD_S = 10.0  # seconds
_DISCARD = 512 << 20  # bytes
_KEPT_OF_REFUSED = 4000  # bytes of a refused body that go into its record


_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    413: "request_too_large",
}


@dataclass(frozen=True)
class _Refused:
    """The answer to a request that does not reach LiteLLM."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    param: str | None = None  # the field of the request that is at fault, if it is one


def _later(status: int) -> tuple[tuple[bytes, bytes], ...]:
    return (_RETRY_AFTER,) if status == 503 else ()


def _logged(scope: Message) -> str:
    """The path of a request for the log, as its client sent it."""
    raw = scope.get("raw_path")
    return log_path(raw.decode("latin-1") if raw else scope["path"])


_VERSIONS = frozenset(f"{major}.{minor}" for major, minor in HTTP.versions)


class RequestMiddleware:
    """Authorizes and tracks every request before it reaches ``app``."""

    def __init__(self, app: App, desk: GenerationState) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # no permitted route uses websockets
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        desk, path, method = self._desk, scope["path"], scope["method"]
        if scope.get("http_version", "1.1") not in _VERSIONS:
            words = f"HTTP/{scope['http_version']} is not served here; use HTTP/1.1"
            await self._answer(send, path, _Refused(505, words, (_CLOSE,)))
            return
        decision = authorize(method, path, scope["headers"], desk.settings.keys)
        if isinstance(decision, Refusal):
            print(f"liverl-proxy: {decision.status} {method} {_logged(scope)}", file=sys.stderr, flush=True)
            if decision.status == 401 and method == "POST" and path in CALL_ROUTES:
                desk.refused_key()
            # Its body is not read, so nothing can follow on this connection.
            await self._answer(send, path, _Refused(decision.status, decision.message, (_CLOSE,)))
            return
        if decision.role != "public" and SCOPE_KEY in scope:
            # All trials have the run's key; one that names itself has its share of the connections.
            name = decision.trial or "" if decision.role == "run" else ""
            if not desk.connections.proved(scope[SCOPE_KEY], name):
                words = f"trial {name} has {desk.connections.limits.per_key} connections, its share of all"
                await self._answer(send, path, _Refused(503, words, (_CLOSE, _RETRY_AFTER)))
                return
        call = desk.open_call(decision, path, method == "POST" and path in CALL_ROUTES)
        token = current.set(call)
        watched = _Watch(call, receive, send)
        try:
            refusal = await self._take_body(watched, scope["headers"])
            if call.disconnected:
                pass  # it left before its request was complete: there is nothing to answer
            elif refusal is not None:
                await self._answer(watched.send, path, refusal)
            else:
                await self._app(watched.scope(scope), watched.receive, watched.send)
        finally:
            watched.release()
            current.reset(token)
            desk.close_call(call, time.monotonic())
            if call.status is not None and call.status >= 400:
                who = f"trial={call.trial} replica={call.replica}"
                why = f" {call.refused}" if call.refused else ""
                line = f"liverl-proxy: {call.status} {method} {_logged(scope)} {who}{why}"
                print(line, file=sys.stderr, flush=True)

    async def _take_body(self, watched: _Watch, headers: Any) -> _Refused | None:
        """Read the whole body; returns why it, or the request, is refused."""
        desk, call = self._desk, watched.call
        fields = {name: value for name, value in headers if name in (b"content-length", b"expect")}
        length = fields.get(b"content-length", b"")
        declared = int(length) if length.isdigit() else None
        refusal: _Refused | None = None
        try:
            body = desk.bodies.begin(declared)
            async with asyncio.timeout(desk.connections.limits.body_timeout):
                await watched.read_body(body)
        except BodyRefused as error:
            call.refused = str(error)
            refusal = _Refused(error.status, call.refused, (_CLOSE, *_later(error.status)))
            if b"expect" not in fields:  # such a client waits for our word before it sends
                await watched.discard()
        except TimeoutError:
            call.refused = (
                f"the request body did not arrive within {desk.connections.limits.body_timeout:g} s"
            )
            return _Refused(408, call.refused, (_CLOSE,))
        if refusal is None and call.is_call and not call.disconnected:
            try:
                content = read_body(call.path, watched.body)
            except InvalidBody as error:
                call.refused = str(error)
                refusal = _Refused(400, call.refused)
            else:
                refusal = await self._decide(watched, content)
                if refusal is None and not desk.models.models:
                    return _Refused(503, _NO_REPLICA, (_RETRY_AFTER,))
        if refusal is not None:
            call.body = [part[:_KEPT_OF_REFUSED] for part in call.body[:1]]
        return refusal

    async def _decide(self, watched: _Watch, content: dict[str, Any]) -> _Refused | None:
        """Put the trainer's sampling parameters into the request, in a run where it decides them; returns why the
        request is refused."""
        sampling, call = self._desk.sampling, watched.call
        if sampling is None:
            return None
        field = changing_field(content)
        if field is not None:
            call.refused = f"{field} {_CHANGING}"
            return _Refused(400, call.refused, param=field)
        found = await sampling.decide(call.trial, content)
        call.overridden = found.asked
        watched.replace(encoded(found.body))
        return None

    async def _answer(self, send: Send, path: str, refused: _Refused) -> None:
        status, headers = refused.status, refused.headers
        kind = _ERROR_TYPES.get(status, "api_error")
        error: dict[str, Any] = {"message": refused.message, "type": kind}
        body: dict[str, Any] = {"error": {**error, "param": refused.param, "code": str(status)}}
        if path.startswith("/v1/messages"):
            body = {"type": "error", "error": error}
        data = json.dumps(body).encode()
        fields = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(data)).encode()),
            *headers,
        ]
        if self._desk.draining and _CLOSE not in fields:
            fields.append(_CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": data})


class _Watch:
    """Wraps the two channels (receive, send) of one request, and holds its body."""

    def __init__(self, call: Call, receive: Receive, send: Send) -> None:
        self.call = call
        self.body = b""
        self._receive = receive
        self._send = send
        self._account: Body | None = None
        self._replayed = False
        self._complete = False

    async def receive(self) -> Message:
        """The body, then what the server tells."""
        if not self._replayed:
            self._replayed = True
            body, self.body = self.body, b""
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.call.disconnected = not self._complete
        return message

    async def read_body(self, account: Body) -> None:
        """Read the whole body.

        Raises:
            BodyRefused: it is too large.
        """
        self._account = account
        parts: list[bytes] = []
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.call.disconnected = True
                break
            part = message.get("body", b"")
            account.add(len(part))
            parts.append(part)
            more = message.get("more_body", False)
        self.body = b"".join(parts)
        if self.call.is_call:
            self.call.body = [self.body]

    def replace(self, body: bytes) -> None:
        """Send ``body`` on instead of the one that was read; it is also the one that is recorded."""
        self.body = body
        self.call.body = [body]

    def scope(self, scope: Message) -> Message:
        """The request's scope, with the length of the body that is sent on."""
        length = str(len(self.body)).encode()
        fields = [(name, length if name == b"content-length" else value) for name, value in scope["headers"]]
        return {**scope, "headers": fields}

    async def discard(self) -> None:
        """Read the rest of a refused body, within limits, without keeping it."""
        self.release()
        count = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_S):
                while count < _DISCARD:
                    message = await self._receive()
                    count += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    def release(self) -> None:
        """The body is no longer held."""
        if self._account is not None:
            self._account.release()

    async def send(self, message: Message) -> None:
        call = self.call
        if message["type"] == "http.response.start":
            call.status = message["status"]
            if call.desk.draining and _CLOSE not in message.get("headers", ()):
                message["headers"] = [*message.get("headers", ()), _CLOSE]
        elif message["type"] == "http.response.body":
            if call.status is not None and call.status >= 400:
                call.error_body += message.get("body", b"")[: _ERROR_BODY - len(call.error_body)]
            self._complete = not message.get("more_body", False)
        await self._send(message)
        if message.get("more_body", False):
            # Neither LiteLLM nor uvicorn waits for anything while a replica is faster than they are: without this, one
            # such stream stops all other requests, and is not told that its client has left.
            await asyncio.sleep(0)
