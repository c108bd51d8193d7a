"""Serves the interface to browsers: behind a token, on the loopback address only, so from other hosts over ssh.

Every path begins with the token, the websocket's as well, so that nothing is answered without it; a client that sends
the header ``Authorization: Bearer TOKEN`` may leave it out. No cookie is set: browsers give cookies to all
ports of a host.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from aiohttp import WSMsgType, web

from liverl.util.aiohttp_guard import token_gate
from liverl.util.decode import decode_json
from liverl.util.http_server import Caller, Gate, HttpServer
from liverl.util.token_guard import Token
from liverl_tui.web.page import FILES, FOCUS, FOCUS_SCRIPT, POLICY, page
from liverl_tui.web.session import Session

HOST = "127.0.0.1"
MOST = 8  # interfaces at a time; each is a process of about 100 MB
LARGEST = 1 << 16  # bytes of one message of a browser: keys, or what is pasted
SIZE = (80, 24)  # columns and rows until the browser says its own
FONT = (8, 40)  # pixels of the letters, at least and at most
_BODY = 1 << 10  # bytes: no route takes one
_CLOSING_S = 1.0  # seconds that open requests get at the end
_ALIVE_S = 15.0  # seconds between two looks whether a browser is still there
_REFUSAL = json.dumps(
    {
        "error": {
            "message": "wrong or missing token; open the whole address that `liverl-tui web` has printed",
            "type": "Unauthorized",
            "code": 401,
        }
    }
).encode()
_HOST_NAME = re.compile(r"[\w.-]{1,253}(:\d{1,5})?|\[[\da-fA-F:]{2,45}\](:\d{1,5})?", re.ASCII)
_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class WebServer:
    """``command``: what each browser gets a process of; ``title``: of the page; ``static``: textual-serve's files."""

    def __init__(self, command: Sequence[str], title: str, static: Path) -> None:
        self._command, self._title, self._static = tuple(command), title, static
        self._server: HttpServer | None = None
        self._open: set[Session] = set()
        self._places = asyncio.Semaphore(MOST)

    async def listen(self, port: int, token: Token) -> int:
        """Serve on ``port``, a free one for 0; return its number.

        Raises:
            OSError: the port cannot be used.
        """
        application = web.Application(client_max_size=_BODY)
        application.router.add_get("/{token}/", self._page, allow_head=False)
        application.router.add_get("/{token}/ws", self._websocket, allow_head=False)
        application.router.add_get("/{token}/{name}", self._file, allow_head=False)
        server = HttpServer(application, gate(token), max_body=_BODY, shutdown_timeout=_CLOSING_S)
        number = await server.listen(HOST, port)
        self._server = server
        return number

    async def close(self) -> None:
        """Stop serving; the processes of open interfaces end."""
        await asyncio.gather(*(one.close() for one in tuple(self._open)))
        if self._server is not None:
            await self._server.close()

    async def _page(self, request: web.Request) -> web.Response:
        if _HOST_NAME.fullmatch(request.host) is None:
            raise web.HTTPBadRequest(text="the header Host names no host")
        websocket = f"ws://{request.host}{request.path}ws"
        text = page(self._title, websocket, _number(request.query.get("fontsize"), 14, *FONT))
        policy = POLICY.format(websocket=f"ws://{request.host}")
        return web.Response(
            text=text, content_type="text/html", headers={**_HEADERS, "Content-Security-Policy": policy}
        )

    async def _file(self, request: web.Request) -> web.Response:
        if request.match_info["name"] == FOCUS:
            return web.Response(text=FOCUS_SCRIPT, content_type="text/javascript", headers=_HEADERS)
        name, kind = FILES.get(request.match_info["name"], ("", ""))
        if not name:
            raise web.HTTPNotFound(text="there is no such file")
        body = await asyncio.to_thread((self._static / name).read_bytes)
        return web.Response(body=body, content_type=kind, headers=_HEADERS)

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        if self._places.locked():
            raise web.HTTPServiceUnavailable(
                text=f"{MOST} browsers show the interface already; close one of them"
            )
        async with self._places:
            socket = web.WebSocketResponse(heartbeat=_ALIVE_S, max_msg_size=LARGEST)
            await socket.prepare(request)
            columns, rows = (
                _number(request.query.get(name), least, 1, 1000)
                for name, least in zip(("width", "height"), SIZE, strict=True)
            )
            session = await Session.start(self._command, columns, rows)
            self._open.add(session)
            drawing = asyncio.create_task(_draw(session, socket))
            try:
                await _obey(session, socket)
            finally:
                self._open.discard(session)
                await session.close()
                await drawing
            return socket


def gate(token: Token) -> Gate:
    """Answers 401 unless the path begins with the token, or the header holds it."""
    by_header = token_gate(token, _REFUSAL)

    def by_path(request: web.BaseRequest) -> Caller | web.Response:
        first = request.path.lstrip("/").partition("/")[0]
        if token.accepts([b"Bearer " + first.encode("utf-8", "surrogateescape")]):
            return Caller()
        return by_header(request)

    return by_path


async def _draw(session: Session, socket: web.WebSocketResponse) -> None:
    """What the interface draws goes to the browser; a browser that reads slowly slows it down."""
    try:
        while data := await session.read():
            await socket.send_bytes(data)
        await socket.close()
    except (ConnectionError, RuntimeError):
        return  # the browser has gone


async def _obey(session: Session, socket: web.WebSocketResponse) -> None:
    """What the browser sends goes to the interface: keys, and the size of its window. All else is passed over."""
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        try:
            match decode_json(message.data):
                case ["stdin", str(keys)]:
                    session.write(keys.encode("utf-8", "surrogatepass"))
                case ["resize", {"width": int(columns), "height": int(rows)}]:
                    session.resize(columns, rows)
                case ["ping", str(moment)]:
                    await socket.send_json(["pong", moment])
        except msgspec.DecodeError:
            continue


def _number(text: str | None, otherwise: int, least: int, most: int) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 6:
        return otherwise
    return min(max(int(text), least), most)


async def serve(server: WebServer, port: int, token: str, ready: Callable[[int], object]) -> None:
    """Serve until this task is cancelled. ``ready``: called with the number of the port.

    Raises:
        OSError: the port cannot be used.
    """
    number = await server.listen(port, Token(token))
    try:
        ready(number)
        await asyncio.Event().wait()
    finally:
        await server.close()
