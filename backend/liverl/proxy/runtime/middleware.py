"""Outermost ASGI layer: authorization, tracking of open requests, and closing of connections while draining."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .auth import CALL_ROUTES, Refusal, authorize
from .calls import Call, current
from .generation_state import GenerationState

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_ERROR_BODY = 65536  # maximum bytes of an error response kept for its record
_NO_REPLICA = "no replica is listed: the run is still starting, or all replicas were removed"
_RETRY_AFTER = b"2"  # seconds; respected by agents' client libraries


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
        decision = authorize(method, path, scope["headers"], desk.settings.keys)
        if isinstance(decision, Refusal):
            print(f"liverl-proxy: {decision.status} {method} {path}", file=sys.stderr, flush=True)
            if decision.status == 401 and method == "POST" and path in CALL_ROUTES:
                desk.refused_key()
            await self._answer(send, path, decision.status, decision.message)
            return
        call = desk.open_call(decision, path, method == "POST" and path in CALL_ROUTES)
        token = current.set(call)
        watched = _Watch(call, receive, send)
        try:
            if call.is_call and not desk.models.models:
                await watched.read_body()
                await self._answer(watched.send, path, 503, _NO_REPLICA, (b"retry-after", _RETRY_AFTER))
            else:
                await self._app(scope, watched.receive, watched.send)
        finally:
            current.reset(token)
            desk.close_call(call, time.monotonic())
            if call.status is not None and call.status >= 400:
                line = (
                    f"liverl-proxy: {call.status} {method} {path} trial={call.trial} replica={call.replica}"
                )
                print(line, file=sys.stderr, flush=True)

    async def _answer(
        self, send: Send, path: str, status: int, text: str, *headers: tuple[bytes, bytes]
    ) -> None:
        kind = {401: "authentication_error", 403: "permission_error"}.get(status, "api_error")
        error: dict[str, Any] = {"message": text, "type": kind}
        body: dict[str, Any] = {"error": {**error, "param": None, "code": str(status)}}
        if path.startswith("/v1/messages"):
            body = {"type": "error", "error": error}
        data = json.dumps(body).encode()
        fields = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(data)).encode()),
            *headers,
        ]
        if self._desk.draining:
            fields.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": data})


class _Watch:
    """Wraps the two channels (receive, send) of one request."""

    def __init__(self, call: Call, receive: Receive, send: Send) -> None:
        self._call = call
        self._receive = receive
        self._send = send
        self._complete = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._call.disconnected = not self._complete
        elif self._call.is_call:
            self._call.body.append(message.get("body", b""))
        return message

    async def read_body(self) -> None:
        while (await self.receive()).get("more_body"):
            pass

    async def send(self, message: Message) -> None:
        call = self._call
        if message["type"] == "http.response.start":
            call.status = message["status"]
            if call.desk.draining:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        elif message["type"] == "http.response.body":
            if call.status is not None and call.status >= 400:
                call.error_body += message.get("body", b"")[: _ERROR_BODY - len(call.error_body)]
            self._complete = not message.get("more_body", False)
        await self._send(message)
