"""The backend's end of the control socket, on its main loop: what clients are told and what they order.

Their connections are in a thread of their own (``front``). Publishing never waits for a client: the outbox limits what
a slow client has not read yet, and while its answers fill the outbox, no further request of it is read.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from liverl.control.front import CLOSE_GRACE_S, Front, Link, Urgent
from liverl.control.main_loop import Handover, LoopWatch
from liverl.control.messages import (
    EVENTS_CHUNK,
    MIN_INTERVAL_S,
    QUEUE_LIMIT,
    CommandError,
    ErrorBody,
    EventsChunk,
    Request,
    encode_line,
)
from liverl.control.paths import bind_control
from liverl.model import Event, Snapshot
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_for_views

log = logging.getLogger("liverl.control")


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
    """What the main loop knows of one connection: what it wants to be told, and its commands in progress."""

    def __init__(self, server: ControlServer, front: Front, link: Link) -> None:
        self.server = server
        self.front = front
        self.link = link
        self.subscribed = False
        self.interval: float | None = None  # seconds; None: no snapshots wanted
        self.last_snapshot = 0.0
        self.timer: asyncio.TimerHandle | None = None

    # -- outgoing

    def offer_snapshot(self) -> None:
        """Send the state now, or as soon as this client's interval since the last one has passed."""
        if self.interval is None or self.timer is not None:
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
            self.front.post(self.link.snapshot, self.server.encoded_snapshot())
        except Exception:  # an error of a view must not end the supervision, which calls this
            log.exception("no snapshot for pid %d", self.link.peer)

    def leave(self, *, send: bool) -> None:
        """No more snapshots; ``send``: the newest one if one is due."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            if send:
                self._send_snapshot()
        self.interval = None

    def _done(self, request: Request, body: dict[str, Any] | None) -> None:
        line = None if body is None else encode_line({"id": request.id, **body})
        self.front.post(self.link.done, request, line)

    # -- incoming

    def carry_out(self, request: Request) -> None:
        """Answer a request, or begin its command."""
        if request.do == "command":
            self._start_command(request)
        elif request.do == "subscribe":
            self._guarded(request, self._subscribe)
        else:
            body = self._guarded(request, self._answer)
            self._done(request, body)

    def _guarded(self, request: Request, answer: Callable[[Request], Any]) -> dict[str, Any]:
        try:
            return {"ok": answer(request)}
        except Exception as error:
            log.exception("request %s of pid %d failed", request.do, self.link.peer)
            return {"error": ErrorBody("internal", f"{type(error).__name__}: {error}")}

    def _answer(self, request: Request) -> Any:
        if request.do == "snapshot":
            return msgspec.Raw(self.server.encoded_state())
        return self._events(request.from_seq)

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
        lines: list[tuple[bytes, int]] = []
        size = 0
        for event in events:
            line = encode_line({"event": event})
            size += len(line)
            if lines and size > self.server.queue_limit:  # the client requests them in chunks
                self.front.post(self.link.resync, events[-1].seq)
                break
            lines.append((line, event.seq))
        else:
            self.front.post(self.link.push, lines)
        if request.snapshots:
            self.interval = max(request.interval, MIN_INTERVAL_S)
            self.offer_snapshot()

    def _start_command(self, request: Request) -> None:
        task = asyncio.create_task(self._run_command(request))
        self.server.commands.add(task)
        task.add_done_callback(self.server.commands.discard)
        if not request.wait:
            self.front.post(self.link.accepted, request, {})

    async def _run_command(self, request: Request) -> None:
        client = request.client or f"pid {self.link.peer}"
        answer: dict[str, Any] | None = None
        try:
            answer = await self._command(request, client)
        finally:  # also if it is cancelled
            self._done(request, answer if request.wait else None)
        if not request.wait and "error" in answer:
            log.warning("command %s of %s: %s", request.name, client, answer["error"].message)

    async def _command(self, request: Request, client: str) -> dict[str, Any]:
        try:
            return {"ok": await self.server.handler.command(request.name, request.args, client)}
        except CommandError as error:
            return {"error": ErrorBody(error.code, str(error), error.did_you_mean)}
        except Exception as error:
            log.exception("command %s %s of %s failed", request.name, request.args, client)
            return {"error": ErrorBody("internal", f"{type(error).__name__}: {error}")}


class ControlServer:
    """Serves ``handler`` on the control socket of ``run_dir``."""

    def __init__(
        self,
        run_dir: Path,
        handler: CommandHandler,
        *,
        queue_limit: int = QUEUE_LIMIT,
        on_clients: Callable[[int], None] = lambda clients: None,
        watch: LoopWatch | None = None,
        urgent: Urgent | None = None,
    ) -> None:
        """``queue_limit``: see the attribute. ``on_clients`` is called with the number of clients when one connects or
        leaves. ``watch``: of the loop that this runs on; ``urgent``: what is done where that loop does not take a
        stop, None if nothing can be."""
        self.run_dir = run_dir
        self.handler = handler
        self.queue_limit = queue_limit  # bytes waiting for one client
        self.on_clients = on_clients
        self.socket_path: Path | None = None  # the path of the bound socket; None before ``start``
        self.commands: set[asyncio.Task[None]] = set()
        self._watch = watch
        self._urgent = urgent
        self._clients: dict[Link, _Client] = {}
        self._front: Front | None = None
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
            ControlError: the socket cannot be created or served.
        """
        sock, self.socket_path = bind_control(self.run_dir)
        info = os.stat(self.socket_path)
        self._inode = (info.st_dev, info.st_ino)
        front = Front(self, RunDir(self.run_dir).name, self.queue_limit, self._watch, self._urgent)
        self._front = front
        await front.start(sock)

    # -- called by the front, on the main loop

    def joined(self, link: Link) -> None:
        """A client has connected."""
        if self._front is not None:
            self._clients[link] = _Client(self, self._front, link)
            self.on_clients(len(self._clients))

    def left(self, link: Link) -> None:
        """It is gone."""
        client = self._clients.pop(link, None)
        if client is not None:
            client.leave(send=False)
            self.on_clients(len(self._clients))

    def request(self, link: Link, request: Request, handover: Handover) -> None:
        """A client has sent a request."""
        client = self._clients.get(link)
        if client is not None and handover.take():
            client.carry_out(request)

    # -- called by the backend

    def publish(self, event: Event) -> None:
        """Send an event to every subscriber. It must already be in the handler's ``events_since``. The state, which has
        changed with it, is published too, but later in the event loop, when the caller has completed the change."""
        if self._clients:
            asyncio.get_running_loop().call_soon(self.publish_snapshot)
        links = [client.link for client in self._clients.values() if client.subscribed]
        if links and self._front is not None:
            self._front.post(self._front.push_to, links, encode_line({"event": event}), event.seq)

    def publish_snapshot(self) -> None:
        """Offer the changed state to all clients. It is only encoded if one of them wants it."""
        self._snapshot = None
        for client in self._clients.values():
            client.offer_snapshot()

    def encoded_state(self) -> bytes:
        """The present state as JSON, never from the cache."""
        return encode_for_views(self.handler.snapshot())

    def encoded_snapshot(self) -> bytes:
        """The snapshot line for subscribers, encoded once per change."""
        if self._snapshot is None:
            self._snapshot = encode_line({"snapshot": msgspec.Raw(self.encoded_state())})
        return self._snapshot

    async def close(self) -> None:
        """Remove the socket, wait for commands in progress, send ``bye`` and close all connections. Takes about
        3 x ``CLOSE_GRACE_S`` at most, whatever the clients do."""
        front = self._front
        if front is None:
            return
        front.post(front.stop_accepting)
        self._unlink()
        if self.commands:
            await asyncio.wait(set(self.commands), timeout=CLOSE_GRACE_S)
        for task in set(self.commands):
            task.cancel()
        for client in self._clients.values():
            client.leave(send=True)
        await front.close()

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
