"""Requires a bearer token for every request to a server of ``http_server``; ``token_guard`` is the same for ASGI."""

from __future__ import annotations

from aiohttp import web

from liverl.util.http_server import Caller, Gate
from liverl.util.token_guard import REFUSAL, Token


def token_gate(token: Token | None, refusal: bytes = REFUSAL) -> Gate:
    """Answers 401 without ``token``, whatever the route. None: nobody is refused. ``refusal``: JSON that says where the
    token is."""

    def gate(request: web.BaseRequest) -> Caller | web.Response:
        # aiohttp decodes headers as UTF-8, with surrogates for other bytes.
        sent = (
            text.encode("utf-8", "surrogateescape") for text in request.headers.getall("Authorization", ())
        )
        if token is None or token.accepts(sent):
            return Caller()
        headers = {"WWW-Authenticate": "Bearer"}
        return web.Response(body=refusal, status=401, content_type="application/json", headers=headers)

    return gate
