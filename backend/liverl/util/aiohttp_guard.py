"""Requires a bearer token for every request to an aiohttp server; ``token_guard`` is the same for ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from liverl.util.token_guard import REFUSAL, Token

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard(token: Token | None) -> Any:
    """A middleware that answers 401 without ``token``, whatever the route, before the body is read. None: nobody is
    refused."""

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass on a request with the token."""
        # aiohttp decodes headers as UTF-8, with surrogates for other bytes.
        sent = (
            text.encode("utf-8", "surrogateescape") for text in request.headers.getall("Authorization", ())
        )
        if token is None or token.accepts(sent):
            return await handler(request)
        headers = {"WWW-Authenticate": "Bearer"}
        return web.Response(body=REFUSAL, status=401, content_type="application/json", headers=headers)

    return refuse
