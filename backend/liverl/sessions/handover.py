"""Connections that go from one process of the service to another: a descriptor, and what was read from it.

Each process has one pair of sockets, through which all others send. The first process of the service, the front, keeps
both ends open, so that what is sent while a process is being started again waits there for the next one.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping

logger = logging.getLogger(__name__)

# Bytes that are sent in the message itself: it must fit into the buffer of a socket, 208 KiB, and the kernel counts
# twice what a message has. More goes by a file in memory.
INLINE = 32 << 10
_AGAIN_S = 0.01  # seconds between two tries while the buffer is full
# Connections that wait here for one process, beyond those in its buffer: all agents of a large step. Others are closed,
# and their clients try again.
MOST_WAITING = 2048
# Bytes of what was read from these; a connection has its head, and of a large body what came with it.
MOST_BYTES = 64 << 20
_AT_ONCE = 32  # connections that are taken over in one round of the event loop
_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS, errno.ENOMEM)
_IN_MESSAGE, _IN_FILE = b"m", b"f"

Take = Callable[[socket.socket, bytes], Awaitable[None]]


def pair() -> tuple[socket.socket, socket.socket]:
    """(where one process receives, where all others send)."""
    receiving, sending = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiving.setblocking(False)
    sending.setblocking(False)
    return receiving, sending


class Handover:
    """What one process sends and receives."""

    def __init__(self, receiving: socket.socket, sending: Mapping[int, socket.socket]) -> None:
        """``sending``: to each other process, by its number."""
        self._receiving, self._sending = receiving, dict(sending)
        self._waiting: dict[int, deque[tuple[socket.socket, bytes]]] = {to: deque() for to in sending}
        self._bytes: Counter[int] = Counter()  # of those, by process
        self._timer: asyncio.TimerHandle | None = None
        self._taking: set[asyncio.Future[None]] = set()
        self._take: Take | None = None

    def send(self, to: int, sock: socket.socket, received: bytes) -> None:
        """Pass a connection on; the caller closes its own descriptor. ``received``: what was read from it."""
        queue = self._waiting[to]
        if len(queue) >= MOST_WAITING or (queue and self._bytes[to] + len(received) > MOST_BYTES):
            logger.warning("too many connections wait for process %d; one is closed", to + 1)
            return
        queue.append((sock.dup(), received))
        self._bytes[to] += len(received)
        self._flush(to)

    def _flush(self, to: int) -> None:
        queue = self._waiting[to]
        while queue:
            sock, received = queue[0]
            try:
                _send(self._sending[to], sock, received)
            except OSError as error:
                if error.errno in _FULL:
                    self._try_again()
                    return
                logger.warning("a connection cannot be passed to process %d: %s", to + 1, error)
            queue.popleft()
            self._bytes[to] -= len(received)
            sock.close()

    def _try_again(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._flush_all)

    def _flush_all(self) -> None:
        self._timer = None
        for to in self._waiting:
            self._flush(to)

    def listen(self, take: Take) -> None:
        """Take over what others send from now on."""
        self._take = take
        asyncio.get_running_loop().add_reader(self._receiving, self._receive)

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                found = _receive(self._receiving)
            except BlockingIOError:
                return
            except OSError as error:
                logger.warning("a connection cannot be taken over: %s", error)
                return
            if found is not None:
                task = asyncio.ensure_future(self._taken(*found))
                self._taking.add(task)
                task.add_done_callback(self._taking.discard)

    async def _taken(self, sock: socket.socket, received: bytes) -> None:
        assert self._take is not None
        with contextlib.suppress(OSError):  # its client has gone
            await self._take(sock, received)

    def close(self) -> None:
        """Send and receive no more."""
        with contextlib.suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().remove_reader(self._receiving)
        if self._timer is not None:
            self._timer.cancel()
        for queue in self._waiting.values():
            for sock, _ in queue:
                sock.close()
            queue.clear()
        self._bytes.clear()


def _send(channel: socket.socket, sock: socket.socket, received: bytes) -> None:
    if len(received) <= INLINE:
        socket.send_fds(channel, [_IN_MESSAGE, received], [sock.fileno()])
        return
    with os.fdopen(os.memfd_create("liverl-request", os.MFD_CLOEXEC), "w+b") as file:
        file.write(received)
        file.flush()
        file.seek(0)
        socket.send_fds(channel, [_IN_FILE], [sock.fileno(), file.fileno()])


def _receive(channel: socket.socket) -> tuple[socket.socket, bytes] | None:
    """The next connection; None if its descriptor was lost, as where this process may open no further one.

    Raises:
        BlockingIOError: there is none now.
    """
    size = socket.CMSG_SPACE(2 * array.array("i").itemsize)
    data, ancillary, _, _ = channel.recvmsg(INLINE + 1, size, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, given in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(given[: len(given) - len(given) % fds.itemsize])
    if not data:
        raise ConnectionResetError("the front has ended")
    if data[:1] == _IN_MESSAGE and len(fds) == 1:
        return socket.socket(fileno=fds[0]), data[1:]
    if data[:1] == _IN_FILE and len(fds) == 2:
        with os.fdopen(fds[1], "rb") as file:
            return socket.socket(fileno=fds[0]), file.read()
    for fd in fds:
        os.close(fd)
    return None
