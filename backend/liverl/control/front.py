"""The thread of the control socket. It accepts clients, reads requests and sends lines, all without the backend's main
loop, which may be busy: with a long scan, or in a call that does not return.

It answers ``ping`` by itself. All else it hands over to the main loop, with a deadline: a request that is not taken
there in time is withdrawn, and its answer says that the backend is busy, since when and with what. A stop is never
withdrawn: it is recorded, and with ``now`` carried out past the main loop (``Urgent``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from liverl.control.commands import Stop, parse_arguments
from liverl.control.main_loop import WORTH_TELLING_S, Handover, LoopWatch, call_in
from liverl.control.messages import (
    BUSY,
    LINE_LIMIT,
    PROTOCOL,
    REQUEST_LIMIT,
    CommandError,
    ControlError,
    ErrorBody,
    Hello,
    Request,
    decode_request,
    encode_line,
)
from liverl.control.outbox import Outbox
from liverl.control.paths import peer_credentials
from liverl.util import clocks
from liverl.util.bad_json import BAD_JSON
from liverl.version import __version__

log = logging.getLogger("liverl.control")

MAX_CLIENTS = 200  # more than a person has; a program that forgets to close its connections has more
MAX_COMMANDS = 64  # of one client at a time; a person has one or two in progress
MAX_PENDING = 4  # other requests of one client that the main loop has not answered; further ones are not read
CLOSE_GRACE_S = 2.0  # when the server closes: for commands in progress, then for the last bytes
# Seconds that the main loop has to take a request: less than clients wait for an answer (``blocking.HELLO_S``). What it
# has been busy for already counts, but it always gets the least.
TAKE_S, TAKE_LEAST_S = 4.0, 0.5
STOP_S, STOP_LEAST_S = 1.0, 0.2  # the same for a stop
FLUSH_S = 0.5  # for the last answer of a backend that is replaced


class Urgent(Protocol):
    """What is done past a main loop that does not take a stop. Called in threads; ``who``: who ordered it."""

    def record(self, *, now: bool, who: str) -> str:
        """Journal the stop, so that it holds even if this backend is killed. Returns why it could not be written, or
        ""."""

    def kill(self, who: str) -> int | None:
        """Kill all processes of the services; returns their number, None if the keeper does not answer."""

    def replace(self, who: str, why: str) -> None:
        """Replace this process by a backend that ends the run and writes its result; does not return. ``why``: for the
        log.

        Raises:
            OSError: it cannot be started. This backend goes on.
        """


class Main(Protocol):
    """The server's part on the main loop, which calls these there."""

    def joined(self, link: Link) -> None:
        """A client has connected."""

    def left(self, link: Link) -> None:
        """It is gone."""

    def request(self, link: Link, request: Request, handover: Handover) -> None:
        """It has sent a request."""


class Link:
    """One connection: ``serve`` reads requests, ``write_all`` sends the outbox. Everything runs in the front's thread;
    the main loop uses ``Front.post``."""

    def __init__(
        self, front: Front, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: int
    ) -> None:
        self.front = front
        self.reader = reader
        self.writer = writer
        self.peer = peer
        self.outbox = Outbox(front.queue_limit)
        self.subscribed = False
        self.commands = 0  # in progress
        self.pending = 0  # other requests that are not answered
        self._answered: set[int] = set()  # ``id`` of requests in progress that have their answer already
        self.wake = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.sent = asyncio.Event()  # the outbox is empty
        self.closing = False
        self.heard_at = clocks.ran()  # when it connected, or sent its last request

    # -- outgoing

    def push(self, lines: list[tuple[bytes, int]]) -> None:
        """Queue lines of events with their numbers."""
        for line, seq in lines if not self.closing else ():
            self.outbox.event(line, seq)
        self._written()

    def resync(self, seq: int) -> None:
        """Tell it to ask for the events up to ``seq``."""
        if not self.closing:
            self.outbox.resync(seq)
            self._written()

    def snapshot(self, line: bytes) -> None:
        """Queue the newest state."""
        self.outbox.snapshot(line)
        self._written()

    def reply(self, body: dict[str, Any]) -> None:
        """Queue an answer."""
        self.reply_line(encode_line(body), body.get("id"))

    def reply_line(self, line: bytes, number: int | None) -> None:
        """Queue an encoded answer to the request ``number``."""
        if self.closing:
            return
        if len(line) > LINE_LIMIT:
            error = ErrorBody("too_large", f"the response has {len(line)} bytes")
            line = encode_line({"id": number, "error": error})
        self.outbox.answer(line)
        self._written()

    def done(self, request: Request, line: bytes | None) -> None:
        """A request that was handed over is over; ``line``: its answer, if it gets one now."""
        if request.do == "command":
            self.commands -= 1
        else:
            self.pending -= 1
        if id(request) in self._answered:
            self._answered.discard(id(request))
        elif line is not None:
            self.reply_line(line, request.id)
        self._written()

    def accepted(self, request: Request, body: dict[str, Any]) -> None:
        """Answer a request that goes on."""
        if id(request) not in self._answered:
            self._answered.add(id(request))
            self.reply({"id": request.id, "ok": {"accepted": True, **body}})

    def say_bye(self) -> None:
        """Queue ``bye`` and close once all is sent."""
        self.outbox.farewell(encode_line({"bye": {}}))
        self.closing = True
        self._written()

    def _written(self) -> None:
        if self.outbox.full or self.pending >= MAX_PENDING:
            self.room.clear()
        else:
            self.room.set()
        self.sent.clear()
        self.wake.set()

    async def write_all(self) -> None:
        """Send lines until the client is closing and its outbox is empty, or the peer has disconnected."""
        try:
            while True:
                line = self.outbox.take()
                if not self.outbox.full and self.pending < MAX_PENDING:
                    self.room.set()
                if line is not None:
                    self.writer.write(line)
                    await self.writer.drain()
                elif self.closing:
                    return
                else:
                    self.sent.set()
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
            self.heard_at = clocks.ran()
            self._dispatch(request)

    def _dispatch(self, request: Request) -> None:
        front = self.front
        if request.do == "ping":
            self.reply({"id": request.id, "ok": front.alive()})
        elif request.do == "subscribe":
            # Accepted now; what it brings comes when the main loop goes on.
            self.subscribed = True
            self.reply({"id": request.id, "ok": {}})
            front.to_main(front.main.request, self, request, Handover())
        elif request.do == "command" and self.commands >= MAX_COMMANDS:
            body = ErrorBody("busy", f"{MAX_COMMANDS} commands of this client are in progress")
            self.reply({"id": request.id, "error": body})
        elif request.do == "command" and request.name == "stop" and front.urgent is not None:
            self.commands += 1
            front.spawn(self._stop(request, front.urgent))
        else:
            self._hand_over(request)

    def _hand_over(self, request: Request) -> None:
        if request.do == "command":
            self.commands += 1
        else:
            self.pending += 1
            self._written()
        handover = Handover()
        self.front.to_main(self.front.main.request, self, request, handover)
        seconds = max(TAKE_LEAST_S, TAKE_S - self.front.busy)
        asyncio.get_running_loop().call_later(seconds, self._late, request, handover)

    def _late(self, request: Request, handover: Handover) -> None:
        if handover.withdraw():
            self._refuse(request)

    def _refuse(self, request: Request) -> None:
        undone = f"; {request.name} was not done" if request.do == "command" else ""
        body = ErrorBody(BUSY, f"{self.front.busy_words()}{undone}")
        self.done(request, encode_line({"id": request.id, "error": body}))

    # -- a stop

    async def _stop(self, request: Request, urgent: Urgent) -> None:
        """Give a stop to the main loop, or carry it out past it."""
        client = request.client or f"pid {self.peer}"
        try:
            arguments = parse_arguments("stop", request.args, Stop)
        except CommandError as error:
            body = ErrorBody(error.code, str(error), error.did_you_mean)
            self.done(request, encode_line({"id": request.id, "error": body}))
            return
        here, taken = asyncio.get_running_loop(), asyncio.Event()
        handover = Handover(lambda: call_in(here, taken.set))
        self.front.to_main(self.front.main.request, self, request, handover)
        try:
            async with asyncio.timeout(max(STOP_LEAST_S, STOP_S - self.front.busy)):
                await taken.wait()
            return  # the main loop answers
        except TimeoutError:
            pass
        words = self.front.busy_words()
        if arguments.now:
            if handover.withdraw():
                await self._kill(request, urgent, client, words)
            return
        unwritten = await asyncio.to_thread(urgent.record, now=False, who=client)
        if taken.is_set():
            return
        held = f"it could not be recorded: {unwritten}" if unwritten else "it is recorded"
        text = (
            f"{words}: the run is stopped as soon as it goes on ({held}). "
            "To kill the run without waiting: stop --now"
        )
        self.accepted(request, {"text": text, "busy": round(self.front.busy, 1)})

    async def _kill(self, request: Request, urgent: Urgent, client: str, words: str) -> None:
        unwritten = await asyncio.to_thread(urgent.record, now=True, who=client)
        if unwritten:
            log.warning("the stop of %s could not be recorded: %s", client, unwritten)
        killed = await asyncio.to_thread(urgent.kill, client)
        what = (
            "its keeper does not answer"
            if killed is None
            else f"killed {killed} process{'' if killed == 1 else 'es'} of its services"
        )
        text = f"{words}; {what}, and replaced it by one that ends the run"
        self.accepted(request, {"text": text, "killed": killed or 0, "busy": round(self.front.busy, 1)})
        try:
            async with asyncio.timeout(FLUSH_S):
                await self.sent.wait()
        except TimeoutError:
            pass  # it does not read; the run ends all the same
        try:
            urgent.replace(client, text)
        except OSError as error:
            log.warning("no backend can be started to end the run: %s; this one does it", error)
            self.front.to_main(self.front.main.request, self, request, Handover())


class Front:
    """The thread, and its connections. ``watch``: of the main loop, None if nobody watches it; ``urgent``: what is done
    past it, None if nothing can be."""

    def __init__(
        self,
        main: Main,
        run: str,
        queue_limit: int,
        watch: LoopWatch | None,
        urgent: Urgent | None,
    ) -> None:
        self.main = main
        self.run = run
        self.queue_limit = queue_limit
        self.urgent = urgent
        self._watch = watch
        self._main_loop = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._links: set[Link] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._opened: asyncio.Event | None = None  # of the thread, as the next one
        self._end: asyncio.Event | None = None
        self._ended = asyncio.Event()  # of the main loop

    # -- called by the main loop

    async def start(self, sock: socket.socket) -> None:
        """Start the thread, which serves the listening socket ``sock`` as soon as the caller has let the main loop go
        on: a client that gets an answer finds the record of the backend on disk."""
        started: asyncio.Future[None] = self._main_loop.create_future()
        threading.Thread(target=self._work, args=(sock, started), name="control socket", daemon=True).start()
        await started
        self._main_loop.call_soon(self.post, self._open)

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Call ``function`` soon in the thread."""
        if self._loop is not None:
            call_in(self._loop, function, *args)

    def push_to(self, links: list[Link], line: bytes, seq: int) -> None:
        """Queue the line of an event for each of ``links``; called in the thread."""
        for link in links:
            link.push([(line, seq)])

    def stop_accepting(self) -> None:
        """Take no further clients; called in the thread."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Say ``bye`` to all clients and end the thread, within about ``CLOSE_GRACE_S``, whatever the clients do."""
        self.post(self._finish)
        try:
            async with asyncio.timeout(2 * CLOSE_GRACE_S):
                await self._ended.wait()
        except TimeoutError:
            log.warning("the thread of the control socket has not ended")

    # -- the thread

    def _work(self, sock: socket.socket, started: asyncio.Future[None]) -> None:
        try:
            asyncio.run(self._serve(sock, started))
        except Exception as error:
            log.exception("the control socket is not served any more")
            call_in(self._main_loop, _fail, started, error)
        finally:
            call_in(self._main_loop, self._ended.set)

    async def _serve(self, sock: socket.socket, started: asyncio.Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        # From Python 3.13 on, asyncio would remove the path itself, which may be one in /proc that no longer exists.
        extra: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        self._server = await asyncio.start_unix_server(
            self._connected, sock=sock, limit=REQUEST_LIMIT, start_serving=False, **extra
        )
        self._opened = asyncio.Event()
        call_in(self._main_loop, started.set_result, None)
        await self._opened.wait()
        await self._server.start_serving()
        await self._end.wait()
        self._server.close()
        for link in self._links:
            link.say_bye()
        if self._connections:
            await asyncio.wait(set(self._connections), timeout=CLOSE_GRACE_S)
        for link in self._links:
            link.writer.transport.abort()  # clients that did not read everything in time

    def _open(self) -> None:
        if self._opened is not None:
            self._opened.set()

    def _finish(self) -> None:
        self._open()
        if self._end is not None:
            self._end.set()

    def to_main(self, function: Callable[..., None], *args: Any) -> None:
        """Call ``function`` soon on the main loop."""
        call_in(self._main_loop, function, *args)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background of the thread."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)

    @property
    def busy(self) -> float:
        """Seconds for which the main loop has been in one turn; 0 if nobody watches it."""
        return 0.0 if self._watch is None else self._watch.busy

    def alive(self) -> dict[str, Any]:
        """The answer to ``ping``: for how many seconds the main loop has been busy, and with what."""
        busy = self.busy
        if busy < WORTH_TELLING_S or self._watch is None:
            return {"busy": 0.0}
        return {"busy": round(busy, 1), "doing": self._watch.doing(), "text": self.busy_words()}

    def busy_words(self) -> str:
        """That the main loop does not respond, since when and with what."""
        busy, doing = self.busy, "" if self._watch is None else self._watch.doing()
        words = f"the backend of {self.run} (pid {os.getpid()}) is busy and does not respond"
        if busy < WORTH_TELLING_S:
            return words
        where = f" in {doing}," if doing else ""
        return f"{words}: its main loop has been{where} for {busy:.0f} s" if busy >= 1 else words

    def _make_room(self) -> None:
        """With ``MAX_CLIENTS`` connections, end the one that has been silent for longest: connections that nobody uses
        must not use up the descriptors of the backend. Those with a command in progress are kept."""
        if len(self._links) < MAX_CLIENTS:
            return
        idle = [link for link in self._links if not link.commands]
        silent = min(idle, key=lambda link: (link.subscribed, link.heard_at), default=None)
        if silent is not None:
            log.warning(
                "%d clients are connected: closing the connection of pid %d", MAX_CLIENTS, silent.peer
            )
            self._links.discard(silent)
            silent.writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        pid, uid, _ = peer_credentials(writer.get_extra_info("socket"))
        link = Link(self, reader, writer, pid)
        writer.transport.set_write_buffer_limits(high=64 * 1024)
        self._make_room()
        self._links.add(link)
        self.to_main(self.main.joined, link)
        writing = asyncio.create_task(link.write_all())
        try:
            if uid not in (os.geteuid(), 0):
                log.warning("refused pid %d of uid %d on the control socket", pid, uid)
                link.reply({"error": ErrorBody("forbidden", f"uid {uid} is not the owner of this run")})
            else:
                busy = None if self._watch is None else round(self.busy, 1)
                link.reply({"hello": Hello(PROTOCOL, __version__, self.run, os.getpid(), busy)})
                await _either(link.serve(), writing)
            link.closing = True
            link.wake.set()
            await asyncio.wait({writing}, timeout=CLOSE_GRACE_S)
        finally:
            self._links.discard(link)
            self.to_main(self.main.left, link)
            if not writing.done():
                writing.cancel()
                writer.transport.abort()  # the peer does not read: drop what is buffered for it
            writer.close()


def _fail(started: asyncio.Future[None], error: Exception) -> None:
    if not started.done():
        started.set_exception(ControlError(f"the control socket cannot be served: {error}"))


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the control socket: a stop failed", exc_info=error)


async def _either(reading: Coroutine[Any, Any, None], writing: asyncio.Task[None]) -> None:
    """Run ``reading`` until it or ``writing`` ends: a peer that cannot be written to is gone, and ``bye`` ends both."""
    task = asyncio.create_task(reading)
    try:
        await asyncio.wait({task, writing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
    if task.done() and not task.cancelled():
        task.result()
