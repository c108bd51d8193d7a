"""The control client for long-lived programs and views: asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from liverl.control.blocking import HELLO_S, after_end
from liverl.control.history import read_events
from liverl.control.messages import (
    LINE_LIMIT,
    NO_EVENTS,
    BackendBusy,
    BackendDead,
    ControlError,
    Cursor,
    EventsChunk,
    Hello,
    Incoming,
    ProtocolMismatch,
    Request,
    check_hello,
    decode_incoming,
    encode_line,
    refusal,
)
from liverl.control.paths import connect_control, no_greeting
from liverl.model import Event, RunState, Snapshot
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import decode_snapshot
from liverl.util.decode import decode_json

LONG_S = 2.0  # seconds in one turn of the backend's main loop; ordinary ones take milliseconds
ENDED: frozenset[RunState] = frozenset(("done", "failed", "stopped", "unsupervised", "dead"))


class _Link:
    """One connection: reads and writes lines."""

    def __init__(self, run_dir: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.run_dir = run_dir
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, run_dir: Path) -> tuple[_Link, Hello]:
        sock = await asyncio.to_thread(connect_control, run_dir, HELLO_S)
        sock.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=LINE_LIMIT)
        link = cls(run_dir, reader, writer)
        try:
            async with asyncio.timeout(HELLO_S):
                return link, check_hello(await link.read())
        except TimeoutError as error:
            writer.close()
            raise no_greeting(run_dir, HELLO_S) from error
        except BaseException:
            writer.close()
            raise

    async def read(self) -> Incoming:
        try:
            line = await self.reader.readline()
        except ValueError as error:
            raise ProtocolMismatch(f"the backend sent a line of more than {LINE_LIMIT} bytes") from error
        except OSError:  # also an error of a request that was being sent when the backend exited
            line = b""
        if not line.endswith(b"\n"):
            raise await asyncio.to_thread(after_end, self.run_dir)
        return decode_incoming(line)

    async def send(self, request: Request) -> None:
        try:
            self.writer.write(encode_line(request))
            await self.writer.drain()
        except OSError:
            return  # the reader raises the reason

    def close(self) -> None:
        self.writer.close()


class Client:
    """A client of one run. Use it as an async context manager::

        async with liverl.connect(run_dir) as client:
            print((await client.snapshot()).phase)
            await client.command("restart", service="proxy")

    Requests share one connection; each followed ``events`` or ``stream`` opens its own, so that a slow reader of
    events delays nothing else.
    """

    hello: Hello

    def __init__(self, run_dir: str | Path, *, name: str = "") -> None:
        self.run_dir = Path(run_dir)
        self.name = name or f"pid {os.getpid()}"  # the name under which the backend records our commands
        self._link: _Link | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._next_id = 0
        self._ended: ControlError | None = None

    async def __aenter__(self) -> Client:
        self._link, self.hello = await _Link.open(self.run_dir)
        self._reading = asyncio.create_task(self._read(self._link))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._link is not None:
            self._link.close()
        self._fail(ControlError("the client was closed"))

    def _fail(self, error: ControlError) -> None:
        self._ended = error
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        self._answers.clear()

    async def _read(self, link: _Link) -> None:
        try:
            while True:
                message = await link.read()
                if message.bye is not None:
                    self._fail(BackendDead("the backend has shut down"))
                    return
                answer = self._answers.pop(message.id, None) if message.id is not None else None
                if message.error is not None:
                    error = refusal(message.error)
                    if message.id is None:
                        self._fail(error)
                    elif answer is not None and not answer.done():
                        answer.set_exception(error)
                elif answer is not None and bytes(message.ok) and not answer.done():
                    answer.set_result(message.ok)
        except ControlError as error:
            self._fail(error)

    async def _request(self, request: Request) -> msgspec.Raw:
        if self._ended is not None:
            raise self._ended
        if self._link is None:
            raise ControlError("not connected: use `async with`")
        self._next_id += 1
        number = self._next_id
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._link.send(msgspec.structs.replace(request, id=number))
            return await answer
        finally:
            self._answers.pop(number, None)

    @property
    def connected(self) -> bool:
        """Whether requests can be sent: the connection has been opened and has not ended."""
        return self._link is not None and self._ended is None

    async def ping(self) -> None:
        """Wait for a response of the backend. Commands in progress do not delay it.

        Raises:
            BackendBusy: it responds, but its main loop has been busy for a while, so that commands would wait.
            ControlError: the backend has exited.
        """
        answer = decode_json(await self._request(Request(0, "ping")), type=dict[str, Any])
        if answer.get("busy", 0) >= LONG_S:
            raise BackendBusy(str(answer.get("text", "the backend is busy")))

    async def snapshot(self) -> Snapshot:
        """The present state of the run.

        Raises:
            ControlError: the backend has exited.
        """
        return decode_snapshot(await self._request(Request(0, "snapshot")), shallow=True)

    async def command(self, name: str, /, *, wait: bool = True, **args: Any) -> dict[str, Any]:
        """Run the command ``name`` with the arguments ``args`` in the backend and return its result; with ``wait``
        False, return as soon as the command is accepted.

        Raises:
            CommandError: the command was refused or failed.
            BackendBusy: the backend did not take it in time, and will not carry it out.
            ControlError: the backend has exited.
        """
        request = Request(0, "command", name=name, args=args, client=self.name, wait=wait)
        return decode_json(await self._request(request), type=dict[str, Any])

    async def _events_after(self, cursor: Cursor) -> AsyncIterator[Event]:
        more = True
        while more:
            chunk = decode_json(await self._request(Request(0, "events", cursor.seq)), type=EventsChunk)
            for event in cursor.new(chunk.events):
                yield event
            more = chunk.more

    def _events_of_file(self, cursor: Cursor) -> list[Event]:
        return list(cursor.new(read_events(self.run_dir, cursor.seq)))

    async def events(self, from_seq: int = 0, follow: bool = True) -> AsyncIterator[Event]:
        """Events after ``from_seq``, each once and in order. With ``follow``, continue until the backend has shut down.

        Raises:
            BackendDead: the backend died without writing a result.
        """
        if follow:
            async for item in self.stream(from_seq):
                if isinstance(item, Event):
                    yield item
        else:
            async for event in self._events_after(Cursor(from_seq)):
                yield event

    async def stream(
        self, from_seq: int = 0, *, snapshots: bool = False, interval: float = 0.5
    ) -> AsyncGenerator[Event | Snapshot, None]:
        """Events as in ``events`` and, with ``snapshots``, the state whenever it has changed, at most every
        ``interval`` seconds. A slow reader gets every event, but only the newest state.

        Raises:
            BackendDead: the backend died without writing a result.
        """
        cursor = Cursor(from_seq)
        link, _ = await _Link.open(self.run_dir)
        try:
            await link.send(Request(1, "subscribe", from_seq, snapshots, interval))
            while True:
                try:
                    message = await link.read()
                except BackendDead:
                    if RunDir(self.run_dir).read_result() is None:
                        raise
                    # The backend shut down before everything was read. The missing events are in the file.
                    for event in await asyncio.to_thread(self._events_of_file, cursor):
                        yield event
                    return
                if message.event is not None:
                    for event in cursor.new((message.event,)):
                        yield event
                elif message.snapshot is not None:
                    yield message.snapshot
                elif message.resync is not None:
                    try:
                        async for event in self._events_after(cursor):
                            yield event
                    except BackendDead:  # the next read shows whether it shut down or died
                        for event in await asyncio.to_thread(self._events_of_file, cursor):
                            yield event
                elif message.error is not None:
                    raise refusal(message.error)
                elif message.bye is not None:
                    return
        finally:
            link.close()

    async def wait_for(self, what: Literal["ready", "done"], *, interval: float = 0.5) -> RunState:
        """Wait until the run is running or has ended (``ready``), or until it has ended (``done``); return its state.

        ``interval``: the least seconds between two states that the backend sends.

        Raises:
            BackendDead: the backend died without a result.
        """
        async for item in self.stream(NO_EVENTS, snapshots=True, interval=interval):
            if isinstance(item, Snapshot) and (
                item.state in ENDED or (what == "ready" and item.state == "running")
            ):
                return item.state
        result = RunDir(self.run_dir).read_result()
        if result is None:
            raise BackendDead("the backend exited without writing a result")
        return result.state


def connect(run_dir: str | Path, *, name: str = "") -> Client:
    """A client of the run in ``run_dir``. It connects on entry to ``async with``; ``name`` is recorded with its
    commands.

    Raises on entry:
        BackendDead, BackendElsewhere, BackendSilent: no backend responds on this machine.
    """
    return Client(run_dir, name=name)
