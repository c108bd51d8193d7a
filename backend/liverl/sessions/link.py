"""What the front and one process of the service tell each other: JSON lines over a pair of sockets.

Its end is the sign that the other one has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder

LONGEST = 64 << 20  # bytes of a line: a report has a few hundred for each replica
# Bytes; while so many wait no further report is sent: the next one says the same and more.
MOST_UNSENT = 4 << 20


class Reload(msgspec.Struct, frozen=True, tag="reload"):
    """Read the list of replicas again."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Accept nothing more, and end when what is being sampled was sent. ``now``: do not wait for that."""

    now: bool = False


class TokensDiffer(msgspec.Struct, frozen=True, tag="differs"):
    """Another process has seen that our tokens of a model differ from the engine's. ``words``: where."""

    model: str
    words: str


class Report(msgspec.Struct, frozen=True, tag="report"):
    """What the process says of itself: as the report of a service that is one process."""

    facts: dict[str, Any]


Told = Reload | Stop | TokensDiffer | Report
Order = Reload | Stop | TokensDiffer
_decode = JsonDecoder(Told).decode
State = Literal["starting", "serving", "draining"]


class Link:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def of(cls, sock: socket.socket) -> Link:
        """On one socket of a pair."""
        return cls(*await asyncio.open_connection(sock=sock, limit=LONGEST))

    def tell(self, message: Told) -> None:
        """Send a message. A report is left out while the other side does not read."""
        behind = self._writer.transport.get_write_buffer_size() > MOST_UNSENT
        if not self._writer.is_closing() and not (behind and isinstance(message, Report)):
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def messages(self) -> AsyncIterator[Told]:
        """What the other side says, until it has ended."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                return
            with contextlib.suppress(*BAD_JSON):
                yield _decode(line)

    def close(self) -> None:
        """Close this end."""
        self._writer.close()
