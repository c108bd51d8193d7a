"""Requires a bearer token for every HTTP request to a server.

``vllm serve`` imports ``TokenGuard`` in its own environment (``--middleware liverl.util.token_guard.TokenGuard``), so
this module uses the standard library only. ``aiohttp_guard`` is the same for servers of ours. It also counts the
requests that can change vLLM's weights (``weight_requests``), and keeps polls out of the access log (``poll_filter``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from liverl.util.poll_filter import hide_polls
from liverl.util.weight_requests import WeightRequests

VARIABLE = "LIVERL_REPLICA_TOKEN"  # of the environment: the token that a replica requires
_PREFIX = b"bearer "

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

REFUSAL = json.dumps(
    {
        "error": {
            "message": "wrong or missing token; send the header 'Authorization: Bearer TOKEN' with the token in "
            "secrets/replica_token of the run directory",
            "type": "Unauthorized",
            "code": 401,
        }
    }
).encode()


class Token:
    """A token that clients must send. Only its hash is kept; ``repr`` does not show it.

    Raises:
        ValueError: the token is empty; that would accept everybody.
    """

    def __init__(self, token: str) -> None:
        if not token:
            raise ValueError("the token is empty")
        self._hash = hashlib.sha256(token.encode()).digest()

    def __repr__(self) -> str:
        return "Token(...)"

    def accepts(self, authorization: Iterable[bytes]) -> bool:
        """Whether the values of the ``Authorization`` headers are exactly one, with this token. The time that this
        takes does not depend on how much of the token is right."""
        values = list(authorization)
        if len(values) != 1 or values[0][: len(_PREFIX)].lower() != _PREFIX:
            return False
        sent = hashlib.sha256(values[0][len(_PREFIX) :].strip()).digest()
        return hmac.compare_digest(sent, self._hash)


class TokenGuard:
    """ASGI middleware: without the token in the variable ``LIVERL_REPLICA_TOKEN``, every route answers 401. The body of
    a refused request is not read, and a refused websocket is closed before it is accepted.

    Raises:
        ValueError: the variable is missing or empty; a server must not start unguarded.
    """

    def __init__(self, app: Application) -> None:
        token = os.environ.get(VARIABLE, "")
        if not token:
            raise ValueError(
                f"{VARIABLE} is not set, so that no client could be refused; set it to the run's token"
            )
        self._app = app
        self._token = Token(token)
        self._weights = WeightRequests()
        hide_polls()

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Pass on the lifespan of the application and requests with the token; refuse all others."""
        if scope["type"] == "lifespan" or self._token.accepts(_authorization(scope)):
            if scope["type"] == "http":
                scope, send = self._weights.watching(scope, send)
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(REFUSAL)).encode()),
                (b"www-authenticate", b"Bearer"),
            ]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": REFUSAL})


def _authorization(scope: Message) -> list[bytes]:
    return [value for name, value in scope.get("headers") or () if name.lower() == b"authorization"]
