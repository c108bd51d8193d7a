"""One connection to a replica: sends a request, reads its answer, one after the other (RFC 9112)."""

from __future__ import annotations

import asyncio
import select
from typing import Any, NamedTuple

LONGEST_HEAD = 64 << 10  # bytes of the head of an answer, or of a line between the parts of its body
# Bytes of a body that are joined with the head: one packet more costs more than the copy.
_ONE_SEND = 64 << 10


class BrokenOff(OSError):
    """The connection ended in the middle of a request, or what came back is no HTTP."""


class Answered(NamedTuple):
    """``status``: of HTTP; ``content``: the whole body."""

    status: int
    content: bytes


class _Head(NamedTuple):
    """``length``: bytes of the body, None if it ends with the connection; ``keeps``: whether that stays open."""

    status: int
    length: int | None
    chunked: bool
    keeps: bool


class ReplicaConnection(asyncio.Protocol):
    """See the module. ``idle_since``: monotonic seconds, set by its owner."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: Any = None
        self._waiting: asyncio.Future[Answered] | None = None
        self._begin()

    def _begin(self) -> None:
        self._data = bytearray()  # that has come and was not read
        self._head: _Head | None = None
        self._parts = bytearray()  # of a chunked body
        # Bytes of the chunk that is being read, with its line break; None: between two.
        self._left: int | None = None
        self._last = False  # the chunk that ends the body has come

    @property
    def reusable(self) -> bool:
        """Whether the next request can go this way."""
        return self._transport is not None and self._waiting is None and not self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """Whether nothing has come that the event loop has not looked at yet: the other side may have closed the
        connection, or sent more than its answer."""
        if self._transport is None:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    async def ask(self, head: bytes, body: bytes) -> Answered:
        """Send a request, return the answer. After an error, or when it was cancelled, the caller ends the connection.

        Raises:
            BrokenOff: the connection ended before the answer did, or that is no HTTP.
            TimeoutError: ``late`` was called.
        """
        if not self.reusable:
            raise BrokenOff("the connection was closed")
        waiting: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting = waiting
        if len(body) <= _ONE_SEND:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        try:
            return await waiting
        finally:
            del (
                waiting
            )  # its error would refer to this frame, and the body stay until cycles are searched for

    def late(self) -> None:
        """The time of the request is over."""
        self._fail(TimeoutError())

    def abort(self) -> None:
        """End the connection at once."""
        self._waiting = None
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Requests can be sent from now on."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Its end may be that of an answer."""
        head = self._head
        if exc is None and head is not None and head.length is None and not head.chunked:
            self._done(bytes(self._data))
        else:
            self._fail(BrokenOff(f"the connection ended before the answer did{f': {exc}' if exc else ''}"))
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        if self._waiting is None:  # nobody has asked
            self.abort()
            return
        self._data += data
        try:
            self._read()
        except ValueError as error:
            self._fail(BrokenOff(f"the answer is no HTTP: {error}"))
            self.abort()

    # -- the answer

    def _read(self) -> None:
        """Raises:
        ValueError: it is no HTTP.
        """
        while self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if max(end, len(self._data) if end < 0 else 0) > LONGEST_HEAD:
                raise ValueError(f"its head has more than {LONGEST_HEAD} bytes")
            if end < 0:
                return
            head = read_head(bytes(self._data[:end]))
            del self._data[: end + 4]
            if head.status >= 200:  # others, such as 100, come before the answer
                self._head = head
        if self._head.chunked:
            if self._read_chunks():
                self._done(bytes(self._parts))
        elif self._head.length is not None and len(self._data) >= self._head.length:
            content = bytes(memoryview(self._data)[: self._head.length])
            del self._data[: self._head.length]
            self._done(content)

    def _read_chunks(self) -> bool:
        """Take what has come of a chunked body; whether it has ended."""
        while True:
            if self._left is None:
                end = self._data.find(b"\r\n")
                if max(end, len(self._data) if end < 0 else 0) > LONGEST_HEAD:
                    raise ValueError(f"a line of its body has more than {LONGEST_HEAD} bytes")
                if end < 0:
                    return False
                line = bytes(self._data[:end])
                del self._data[: end + 2]
                if self._last:  # fields behind the body, then an empty line
                    if not line:
                        return True
                    continue
                size = _number(line.partition(b";")[0].strip(), 16)
                self._last = not size
                self._left = size + 2 if size else None
                continue
            if len(self._data) < self._left:
                return False
            if self._data[self._left - 2 : self._left] != b"\r\n":
                raise ValueError("a part of its body is longer than it says")
            self._parts += self._data[: self._left - 2]
            del self._data[: self._left]
            self._left = None

    def _done(self, content: bytes) -> None:
        waiting, head, more = self._waiting, self._head, bool(self._data)
        assert head is not None
        unsent = self._transport is not None and self._transport.get_write_buffer_size() > 0
        self._begin()
        self._waiting = None
        if waiting is not None and not waiting.done():
            waiting.set_result(Answered(head.status, content))
        if (more or unsent or not head.keeps) and self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


def read_head(head: bytes) -> _Head:
    """The head of an answer, without the empty line at its end. One that says its length twice, in two ways, or in one
    that is not known, is refused: nobody could tell where the next answer begins.

    Raises:
        ValueError: it is no HTTP/1.
    """
    first, *lines = head.split(b"\r\n")
    version, _, rest = first.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise ValueError(f"it begins with {first[:40]!r}")
    if len(rest[:3]) != 3 or rest[3:4] not in (b"", b" "):
        raise ValueError(f"its status is {rest[:40]!r}")
    status = _number(rest[:3], 10)
    lengths, codings, connection = set[int](), list[bytes](), set[bytes]()
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip() or b"\n" in line or b"\r" in line:
            raise ValueError(f"a line of its head is {line[:40]!r}")
        name, value = name.lower(), value.strip()
        if name == b"content-length":
            lengths.add(_number(value, 10))
        elif name == b"transfer-encoding":
            codings.append(value.lower())
        elif name == b"connection":
            connection.update(each.strip() for each in value.lower().split(b","))
    if len(lengths) > 1 or (lengths and codings) or codings not in ([], [b"chunked"]):
        raise ValueError("its head does not say where its body ends")
    length = next(iter(lengths), None)
    if status < 200 or status in (204, 304):
        return _Head(status, 0, False, b"close" not in connection)
    keeps = b"close" not in connection and (version == b"HTTP/1.1" or b"keep-alive" in connection)
    return _Head(status, length, bool(codings), keeps and (length is not None or bool(codings)))


def _number(text: bytes, base: int) -> int:
    """Raises:
    ValueError: it is no number without a sign.
    """
    digits = b"0123456789abcdefABCDEF" if base == 16 else b"0123456789"
    if not text or len(text) > 16 or text.strip(digits):
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text, base)
