"""An application of aiohttp behind the guard of our servers, on a free port of this host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from liverl.util.http_server import Gate, HttpServer


@asynccontextmanager
async def serving(app: web.Application, gate: Gate, **more: Any) -> AsyncIterator[str]:
    """Its URL. ``more``: see ``HttpServer``."""
    server = HttpServer(app, gate, **{"max_body": 1 << 20, "shutdown_timeout": 1.0, **more})
    port = await server.listen("127.0.0.1")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.close()
