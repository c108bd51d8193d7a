"""Applies ``http_limits`` to the connections of a uvicorn server, with either of its HTTP implementations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from liverl.util.descriptors import unread
from liverl.util.http_limits import Connection, Connections

SCOPE_KEY = "liverl_connection"  # of the ASGI scope: the Connection of a request
# Bytes per connection that the kernel holds for a client that does not read; it doubles them
SEND_BUFFER = 16 << 10
WRITE_BUFFER = 16 << 10  # bytes that this process holds for it, and what one chunk adds


def limited_protocol(base: type[Any], connections: Connections) -> type[Any]:
    """Return a subclass of uvicorn's protocol class ``base`` that registers its connections."""

    class LimitedProtocol(base):  # type: ignore[misc]
        app: Any  # of the base
        liverl: Connection | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=WRITE_BUFFER)
            peer = transport.get_extra_info("peername")
            now = time.monotonic()
            self.liverl = Connection(
                peer=str(peer[0]) if isinstance(peer, tuple) else "",
                close=lambda abort: transport.abort() if abort else transport.close(),
                unread=lambda: unread(transport),
                last_active=now,
            )
            self.app = _with_connection(self.app, self.liverl)
            connections.opened(self.liverl, now)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.liverl is not None:
                connections.closed(self.liverl)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self.liverl is not None:
                self.liverl.received(time.monotonic(), data)
            super().data_received(data)

        def pause_writing(self) -> None:
            if self.liverl is not None:
                self.liverl.stalled_since = time.monotonic()
            super().pause_writing()

        def resume_writing(self) -> None:
            if self.liverl is not None:
                self.liverl.stalled_since = None
            super().resume_writing()

    return LimitedProtocol


def _with_connection(
    app: Callable[..., Awaitable[None]], connection: Connection
) -> Callable[..., Awaitable[None]]:
    async def run(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        scope[SCOPE_KEY] = connection
        connection.request_began()
        try:
            await app(scope, receive, send)
        finally:
            connection.request_ended(time.monotonic())

    return run
