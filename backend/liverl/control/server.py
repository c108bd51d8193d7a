"""The backend's end of the control socket.

Publishing never waits for a client. The outbox limits what a slow client has not read yet, and while its answers fill
the outbox, no further request of it is read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import msgspec

from liverl.control.messages import (
    EVENTS_CHUNK,
    LINE_LIMIT,
    MIN_INTERVAL_S,
    PROTOCOL,
    QUEUE_LIMIT,
    REQUEST_LIMIT,
    CommandError,
    ErrorBody,
    EventsChunk,
    Hello,
    Request,
    decode_request,
    encode_line,
)
from liverl.control.outbox import Outbox
from liverl.control.paths import bind_control, peer_credentials
from liverl.model import Event, Snapshot
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot
from liverl.util.bad_json import BAD_JSON
from liverl.version import __version__

log = logging.getLogger("liverl.control")

MAX_CLIENTS = 200  # more than a person has; a program that forgets to close its connections has more
MAX_COMMANDS = 64  # of one client at a time; a person has one or two in progress
CLOSE_GRACE_S = 2.0  # when the server closes: for commands in progress, then for the last bytes


class CommandHandler(Protocol):
    """The backend as the server calls it, on the server's event loop."""

    def snapshot(self) -> Snapshot:
        """The present state of the run."""

    def events_since(self, seq: int) -> list[Event]:
        """All events of the run with a greater ``seq``, in order."""

    async def command(self, name: str, args: dict[str, Any], client: str) -> dict[str, Any]:
        """Run the command and return its result, whose ``text`` is shown to the user. ``client``: who sent the command.

        Raises:
            CommandError: the command cannot be run; code ``unknown_service`` with ``did_you_mean`` for a wrong name.
        """


class _Client:
    """One connection: ``serve`` reads requests and answers them in order, ``write_all`` sends the outbox."""

    def __init__(
        self, server: ControlServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: int
    ) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.peer = peer
        self.outbox = Outbox(server.queue_limit)
        self.subscribed = False
        self.interval: float | None = None  # seconds; None: no snapshots wanted
        self.last_snapshot = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.commands: set[asyncio.Task[None]] = set()
        self.wake = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.closing = False
        self.heard_at = asyncio.get_running_loop().time()  # when it connected, or sent its last request

    # -- outgoing

    def push(self, line: bytes, seq: int) -> None:
        if not self.closing:
            self.outbox.event(line, seq)
            self.wake.set()

    def reply(self, body: dict[str, Any]) -> None:
        if self.closing:
            return
        line = encode_line(body)
        if len(line) > LINE_LIMIT:
            body = {
                "id": body.get("id"),
                "error": ErrorBody("too_large", f"the response has {len(line)} bytes"),
            }
            line = encode_line(body)
        self.outbox.answer(line)
        if self.outbox.full:
            self.room.clear()
        self.wake.set()

    def offer_snapshot(self) -> None:
        """Send the state now, or as soon as this client's interval since the last one has passed."""
        if self.interval is None or self.closing or self.timer is not None:
            return
        loop = asyncio.get_running_loop()
        due = self.last_snapshot + self.interval - loop.time()
        if due > 0:
            self.timer = loop.call_later(due, self._send_snapshot)
        else:
            self._send_snapshot()

    def _send_snapshot(self) -> None:
        self.timer = None
        self.last_snapshot = asyncio.get_running_loop().time()
        try:
            self.outbox.snapshot(self.server.encoded_snapshot())
        except Exception:  # an error of a view must not end the supervision, which calls this
            log.exception("no snapshot for pid %d", self.peer)
        self.wake.set()

    def say_bye(self) -> None:
        """Queue the newest state if one is due, then ``bye``, and close once all is sent."""
        if self.timer is not None:
            self.timer.cancel()
            self._send_snapshot()
        self.outbox.farewell(encode_line({"bye": {}}))
        self.closing = True
        self.wake.set()

    async def write_all(self) -> None:
        """Send lines until the client is closing and its outbox is empty, or the peer has disconnected."""
        try:
            while True:
                line = self.outbox.take()
                if not self.outbox.full:
                    self.room.set()
                if line is not None:
                    self.writer.write(line)
                    await self.writer.drain()
                elif self.closing:
                    return
                else:
                    self.wake.clear()
                    await self.wake.wait()
        except OSError:
            return  # the peer has disconnected

    # -- incoming

    async def serve(self) -> None:
        """Serve requests in order, until the peer disconnects or violates the protocol."""
        while True:
            await self.room.wait()
            try:
                line = await self.reader.readline()
            except ValueError:
                self.reply(
                    {"error": ErrorBody("bad_request", f"the request is longer than {REQUEST_LIMIT} bytes")}
                )
                return
            except OSError:
                return
            if not line.endswith(b"\n"):
                return
            try:
                request = decode_request(line)
            except BAD_JSON as error:
                self.reply({"error": ErrorBody("bad_request", str(error))})
                return
            self.heard_at = asyncio.get_running_loop().time()
            self._dispatch(request)

    def _dispatch(self, request: Request) -> None:
        if request.do == "command":
            self._start_command(request)
            return
        try:
            self.reply({"id": request.id, "ok": self._answer(request)})
        except Exception as error:
            log.exception("request %s of pid %d failed", request.do, self.peer)
            self.reply({"id": request.id, "error": ErrorBody("internal", f"{type(error).__name__}: {error}")})

    def _answer(self, request: Request) -> Any:
        if request.do == "snapshot":
            return msgspec.Raw(self.server.encoded_state())
        if request.do == "events":
            return self._events(request.from_seq)
        if request.do == "subscribe":
            self._subscribe(request)  # events and snapshots that it queues are sent after the answer
        return {}

    def _events(self, seq: int) -> EventsChunk:
        chunk: list[Event] = []
        size = 0
        events = self.server.handler.events_since(seq)
        for event in events:
            size += len(msgspec.json.encode(event))
            if chunk and size > EVENTS_CHUNK:
                break
            chunk.append(event)
        return EventsChunk(tuple(chunk), more=len(chunk) < len(events))

    def _subscribe(self, request: Request) -> None:
        events = self.server.handler.events_since(request.from_seq)
        self.subscribed = True
        for event in events:
            self.push(encode_line({"event": event}), event.seq)
            if self.outbox.resynced:  # too many for the outbox: the client requests them in chunks
                self.outbox.resync(events[-1].seq)
                break
        if request.snapshots:
            self.interval = max(request.interval, MIN_INTERVAL_S)
            self.offer_snapshot()

    def _start_command(self, request: Request) -> None:
        if len(self.commands) >= MAX_COMMANDS:
            body = ErrorBody("busy", f"{MAX_COMMANDS} commands of this client are in progress")
            self.reply({"id": request.id, "error": body})
            return
        task = asyncio.create_task(self._run_command(request))
        self.commands.add(task)
        self.server.commands.add(task)
        task.add_done_callback(self.commands.discard)
        task.add_done_callback(self.server.commands.discard)
        if not request.wait:
            self.reply({"id": request.id, "ok": {"accepted": True}})

    async def _run_command(self, request: Request) -> None:
        client = request.client or f"pid {self.peer}"
        try:
            answer: dict[str, Any] = {
                "ok": await self.server.handler.command(request.name, request.args, client)
            }
        except CommandError as error:
            answer = {"error": ErrorBody(error.code, str(error), error.did_you_mean)}
        except Exception as error:
            log.exception("command %s %s of %s failed", request.name, request.args, client)
            answer = {"error": ErrorBody("internal", f"{type(error).__name__}: {error}")}
        if request.wait:
            self.reply({"id": request.id, **answer})
        elif "error" in answer:
            log.warning("command %s of %s: %s", request.name, client, answer["error"].message)


class ControlServer:
    """Serves ``handler`` on the control socket of ``run_dir``."""

    def __init__(
        self,
        run_dir: Path,
        handler: CommandHandler,
        *,
        queue_limit: int = QUEUE_LIMIT,
        on_clients: Callable[[int], None] = lambda clients: None,
    ) -> None:
        """``queue_limit``: see the attribute. ``on_clients`` is called with the number of clients when one connects or
        leaves."""
        self.run_dir = run_dir
        self.handler = handler
        self.queue_limit = queue_limit  # bytes waiting for one client
        self.on_clients = on_clients
        self.socket_path: Path | None = None  # the path of the bound socket; None before ``start``
        self.commands: set[asyncio.Task[None]] = set()
        self._clients: set[_Client] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._inode: tuple[int, int] | None = None
        self._snapshot: bytes | None = None  # the encoded state, until it changes

    @property
    def clients(self) -> int:
        """Number of connected clients."""
        return len(self._clients)

    async def start(self) -> None:
        """Bind the socket, replacing that of a dead backend, and accept clients.

        Raises:
            SocketInUse: another process serves this run.
            ControlError: the socket cannot be created.
        """
        sock, self.socket_path = bind_control(self.run_dir)
        info = os.stat(self.socket_path)
        self._inode = (info.st_dev, info.st_ino)
        # From Python 3.13 on, asyncio would remove the path itself, which may be one in /proc that no longer exists.
        extra: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        self._server = await asyncio.start_unix_server(
            self._connected, sock=sock, limit=REQUEST_LIMIT, **extra
        )

    def publish(self, event: Event) -> None:
        """Send an event to every subscriber. It must already be in the handler's ``events_since``. The state, which has
        changed with it, is published too, but later in the event loop, when the caller has completed the change."""
        if self._clients:
            asyncio.get_running_loop().call_soon(self.publish_snapshot)
        line: bytes | None = None
        for client in self._clients:
            if client.subscribed:
                line = line or encode_line({"event": event})
                client.push(line, event.seq)

    def publish_snapshot(self) -> None:
        """Offer the changed state to all clients. It is only encoded if one of them wants it."""
        self._snapshot = None
        for client in self._clients:
            client.offer_snapshot()

    def encoded_state(self) -> bytes:
        """The present state as JSON, never from the cache."""
        return encode_snapshot(self.handler.snapshot())

    def encoded_snapshot(self) -> bytes:
        """The snapshot line for subscribers, encoded once per change."""
        if self._snapshot is None:
            self._snapshot = encode_line({"snapshot": msgspec.Raw(self.encoded_state())})
        return self._snapshot

    async def close(self) -> None:
        """Remove the socket, wait for commands in progress, send ``bye`` and close all connections. Takes about
        2 x ``CLOSE_GRACE_S`` at most, whatever the clients do."""
        if self._server is None:
            return
        self._server.close()
        self._unlink()
        if self.commands:
            await asyncio.wait(set(self.commands), timeout=CLOSE_GRACE_S)
        for task in set(self.commands):
            task.cancel()
        for client in self._clients:
            client.say_bye()
        if self._connections:
            await asyncio.wait(set(self._connections), timeout=CLOSE_GRACE_S)
        for client in self._clients:
            client.writer.transport.abort()  # clients that did not read everything in time

    def _unlink(self) -> None:
        path = self.socket_path
        if path is None:
            return
        try:
            info = os.stat(path)
            if (
                info.st_dev,
                info.st_ino,
            ) == self._inode:  # otherwise another backend has bound its own socket there
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("cannot remove %s: %s", path, error)

    def _make_room(self) -> None:
        """With ``MAX_CLIENTS`` connections, end the one that has been silent for longest: connections that nobody uses
        must not use up the descriptors of the backend. Those with a command in progress are kept."""
        if len(self._clients) < MAX_CLIENTS:
            return
        idle = [client for client in self._clients if not client.commands]
        silent = min(idle, key=lambda client: (client.subscribed, client.heard_at), default=None)
        if silent is not None:
            log.warning(
                "%d clients are connected: closing the connection of pid %d", MAX_CLIENTS, silent.peer
            )
            self._clients.discard(silent)
            silent.writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        pid, uid, _ = peer_credentials(writer.get_extra_info("socket"))
        client = _Client(self, reader, writer, pid)
        writer.transport.set_write_buffer_limits(high=64 * 1024)
        self._make_room()
        self._clients.add(client)
        self.on_clients(len(self._clients))
        writing = asyncio.create_task(client.write_all())
        try:
            if uid not in (os.geteuid(), 0):
                log.warning("refused pid %d of uid %d on the control socket", pid, uid)
                client.reply({"error": ErrorBody("forbidden", f"uid {uid} is not the owner of this run")})
            else:
                client.reply({"hello": Hello(PROTOCOL, __version__, RunDir(self.run_dir).name, os.getpid())})
                await _either(client.serve(), writing)
            client.closing = True
            client.wake.set()
            await asyncio.wait({writing}, timeout=CLOSE_GRACE_S)
        finally:
            self._clients.discard(client)
            self.on_clients(len(self._clients))
            if client.timer is not None:
                client.timer.cancel()
            if not writing.done():
                writing.cancel()
                writer.transport.abort()  # the peer does not read: drop what is buffered for it
            writer.close()


async def _either(reading: Coroutine[Any, Any, None], writing: asyncio.Task[None]) -> None:
    """Run ``reading`` until it or ``writing`` ends: a peer that cannot be written to is gone, and ``bye`` ends both."""
    task = asyncio.create_task(reading)
    try:
        await asyncio.wait({task, writing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
    if task.done() and not task.cancelled():
        task.result()
