"""Serves ``/metrics`` of a run on the loopback address, to clients that send the token. Read-only.

It never stops a run: a port that is taken, or a token's file that others can read, is an event, and is tried again.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.exposition.series import exposition
from liverl.model import Level, Snapshot
from liverl.util.private_file import NotPrivate, read_private
from liverl.util.token_guard import Token

if TYPE_CHECKING:  # aiohttp takes a tenth of a second, and most runs serve no metrics
    from aiohttp import web

    from liverl.util.http_server import HttpServer

HOST = "127.0.0.1"
LOOK_S = 2.0  # seconds between two looks at the configuration
AGAIN_S = 30.0  # seconds until a port or a file is tried again that could not be used
LARGEST = 4096  # bytes of a token's file
SHORTEST = 16  # characters of a token
_BODY = 1 << 10  # bytes: no route takes one
_CLOSING_S = 1.0  # seconds that open requests get at the end

Say = Callable[[str, str, Level], object]  # kind of the event, its text and level


class Unusable(Exception):
    """Why the metrics cannot be served, in words without the token."""


def read_token(path: Path) -> Token:
    """The token in a file.

    Raises:
        Unusable: it cannot be read, others could read it, or it holds no token.
    """
    try:
        text = read_private(path, LARGEST).decode("ascii").strip()
    except NotPrivate as error:
        raise Unusable(str(error)) from None
    except UnicodeDecodeError:
        text = ""
    if len(text) < SHORTEST or not text.isprintable() or " " in text:
        raise Unusable(
            f"{path} holds no token: expected one line of at least {SHORTEST} characters, without blanks"
        )
    return Token(text)


def _of_port(port: int, error: OSError) -> str:
    """Why the port cannot be used, and what to do."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return f"port {port} of {HOST}: {why}; set observe.metrics_port to another port"


class MetricsServer:
    """The server of one run. ``snapshot``: its present state; ``say``: writes an event."""

    def __init__(self, snapshot: Callable[[], Snapshot], say: Say) -> None:
        self._snapshot, self._say = snapshot, say
        self._server: HttpServer | None = None
        self._serves: tuple[int, str] | None = None  # what the configuration said
        self._told = ""

    async def look(self, port: int, token_file: str, own: Callable[[], Path]) -> float:
        """Serve on ``port`` (0: not at all) with the token in ``token_file``, or else in the file that ``own`` finds or
        makes; return the seconds until the next look. ``own`` raises ``OSError`` if it cannot; it is called in a
        thread."""
        if self._serves == (port, token_file):
            return LOOK_S
        await self.close()
        if not port:
            return LOOK_S
        try:
            path = Path(token_file) if token_file else await asyncio.to_thread(own)
            token = await asyncio.to_thread(read_token, path)
            await self.listen(port, token, path)
        except (OSError, Unusable) as error:
            why = str(error) if isinstance(error, Unusable) or error.filename else _of_port(port, error)
            self._tell(f"metrics are not served: {why}", "warning")
            return AGAIN_S
        self._serves = (port, token_file)
        self._tell(f"metrics for Prometheus: http://{HOST}:{port}/metrics, with the token in {path}", "info")
        return LOOK_S

    def _tell(self, text: str, level: Level) -> None:
        if text != self._told:
            self._told = text
            self._say("metrics", text, level)

    async def listen(self, port: int, token: Token, path: Path) -> int:
        """Serve on ``port``, a free one for 0; return its number. ``path``: of the token, for the refusal.

        Raises:
            OSError: the port cannot be used.
        """
        from aiohttp import web

        from liverl.util.aiohttp_guard import token_gate
        from liverl.util.http_server import HttpServer

        application = web.Application(client_max_size=_BODY)
        application.router.add_get("/metrics", self._metrics, allow_head=False)
        message = (
            f"wrong or missing token; send the header 'Authorization: Bearer TOKEN' with the token in {path}"
        )
        refusal = json.dumps({"error": {"message": message, "type": "Unauthorized", "code": 401}}).encode()
        server = HttpServer(
            application, token_gate(token, refusal), max_body=_BODY, shutdown_timeout=_CLOSING_S
        )
        number = await server.listen(HOST, port)
        self._server = server
        return number

    async def close(self) -> None:
        """Stop serving."""
        server, self._server, self._serves = self._server, None, None
        if server is not None:
            await server.close()

    async def _metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web
        from prometheus_client import CONTENT_TYPE_LATEST

        body = exposition(self._snapshot(), live=True)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
