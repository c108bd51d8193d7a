"""The control client for quick commands and plain views: blocking sockets, no event loop."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from liverl.control.messages import (
    LINE_LIMIT,
    BackendDead,
    BackendSilent,
    CommandError,
    ControlError,
    Cursor,
    EventsChunk,
    Incoming,
    ProtocolMismatch,
    Request,
    check_hello,
    decode_incoming,
    encode_line,
)
from liverl.control.paths import connect_control, unreachable
from liverl.model import Event, Snapshot
from liverl.rundir.layout import DeadBackend, LiveBackend, RemoteBackend, RunDir, backend_alive
from liverl.snapshot_json import decode_snapshot

HELLO_S = 5.0  # a backend answers within milliseconds; one under full load within a second
DYING_S = 2.0  # between a killed process's socket and its process table entry going away


def after_end(run_dir: Path) -> ControlError:
    """Why the connection ended without ``bye``. A killed backend's socket goes a little before its pid."""
    return unreachable(run_dir, await_gone(run_dir, DYING_S))


def await_gone(run_dir: Path, timeout: float) -> LiveBackend | DeadBackend | RemoteBackend:
    """Wait until the backend's process has gone, ``timeout`` seconds at most; what is true then. After ``bye``
    it has yet to release its lock, which the next one needs."""
    deadline = time.monotonic() + timeout
    while isinstance(state := backend_alive(run_dir), LiveBackend) and time.monotonic() < deadline:
        time.sleep(0.02)
    return state


class Connection:
    """One connection to a run's backend. Not for use from several threads."""

    def __init__(self, run_dir: Path, *, timeout: float = HELLO_S) -> None:
        """Connect and shake hands, within ``timeout`` seconds.

        Raises:
            BackendDead, BackendElsewhere, BackendSilent: there is nobody to talk to here.
            ProtocolMismatch: the backend is of another version.
            CommandError: it refuses us.
        """
        self.run_dir = Path(run_dir)
        self._sock = connect_control(self.run_dir, timeout)
        self._buffer = bytearray()
        self._scanned = 0
        self._messages: deque[Incoming] = deque()
        self._next_id = 0
        try:
            first = self.read(timeout)
            if first is None:
                raise BackendSilent(f"{unreachable(self.run_dir)}: no handshake within {timeout:g} s")
            self.hello = check_hello(first)
        except BaseException:
            self._sock.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def read(self, timeout: float | None, wake_fd: int | None = None) -> Incoming | None:
        """The next message that answers no request; None after ``timeout`` seconds, or as soon as ``wake_fd``
        is readable.

        Raises:
            BackendDead, BackendSilent: the connection ended without ``bye``.
            ProtocolMismatch: what came is not of this protocol.
        """
        if self._messages:
            return self._messages.popleft()
        return self._receive(timeout, wake_fd)

    def _receive(self, timeout: float | None, wake_fd: int | None = None) -> Incoming | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._scanned = 0
                return decode_incoming(line)
            self._scanned = len(self._buffer)
            if self._scanned > LINE_LIMIT:
                raise ProtocolMismatch(f"the backend sent a line of over {LINE_LIMIT} bytes")
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            watched = [self._sock.fileno()] + ([wake_fd] if wake_fd is not None else [])
            ready = select.select(watched, [], [], left)[0]
            if self._sock.fileno() not in ready:
                return None
            try:
                data = self._sock.recv(1 << 18)
            except ConnectionError:
                data = b""
            if not data:
                raise after_end(self.run_dir)
            self._buffer += data

    def request(self, request: Request, timeout: float | None = None) -> msgspec.Raw:
        """Ask and wait for the answer; what else arrives is kept for ``read``. The id is filled in.

        Raises:
            CommandError: it was refused or failed.
            BackendDead, BackendSilent: the backend ended, or did not answer within ``timeout`` seconds.
        """
        self._next_id += 1
        number = self._next_id
        try:
            self._sock.settimeout(timeout)
            self._sock.sendall(encode_line(msgspec.structs.replace(request, id=number)))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may have said why before it closed: that is read below
        except TimeoutError as error:
            raise BackendSilent(f"{unreachable(self.run_dir)}: no response within {timeout:g} s") from error
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            message = self._receive(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if message is None:
                raise BackendSilent(f"{unreachable(self.run_dir)}: no response within {timeout:g} s")
            if message.error is not None and message.id in (number, None):
                raise CommandError(message.error.code, message.error.message, message.error.did_you_mean)
            if message.id == number and bytes(message.ok):
                return message.ok
            if message.bye is not None:
                self._messages.append(message)
                raise BackendDead("the backend shut down before it responded")
            if message.id is None:
                self._messages.append(message)

    def snapshot(self, timeout: float = HELLO_S) -> Snapshot:
        """The present state of the run."""
        return decode_snapshot(self.request(Request(0, "snapshot"), timeout))

    def events_chunk(self, from_seq: int, timeout: float = HELLO_S) -> EventsChunk:
        """Some of the events after ``from_seq``, and whether there are more."""
        return msgspec.json.decode(self.request(Request(0, "events", from_seq), timeout), type=EventsChunk)

    def events_after(self, cursor: Cursor) -> Iterator[Event]:
        """Every event that the backend has now and ``cursor`` has not."""
        more = True
        while more:
            chunk = self.events_chunk(cursor.seq)
            yield from cursor.new(chunk.events)
            more = chunk.more

    def subscribe(self, from_seq: int, *, snapshots: bool = False, interval: float = 0.5) -> None:
        """Have events after ``from_seq`` sent, and the state at most every ``interval`` seconds."""
        self.request(Request(0, "subscribe", from_seq, snapshots, interval), HELLO_S)

    def command(
        self,
        name: str,
        args: dict[str, Any],
        *,
        client: str = "",
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Have the backend do something; ``timeout`` seconds, None = as long as it takes.

        Raises:
            CommandError: it was refused or failed.
        """
        who = client or f"pid {os.getpid()}"
        request = Request(0, "command", name=name, args=args, client=who, wait=wait)
        return msgspec.json.decode(self.request(request, timeout), type=dict[str, Any])


def snapshot(run_dir: str | Path) -> Snapshot:
    """The present state of a live run; ``liverl.snapshot`` also reads that of one without a backend.

    Raises:
        ControlError: there is no backend to ask (BackendDead, BackendElsewhere, BackendSilent).
    """
    with Connection(Path(run_dir)) as connection:
        return connection.snapshot()


def command(run_dir: str | Path, name: str, /, **args: Any) -> dict[str, Any]:
    """Have a live run's backend do something, and wait until it is done::

        liverl.command(run_dir, "restart", service="proxy")

    Raises:
        CommandError: it was refused or failed.
        ControlError: there is no backend to ask; ``liverl.stop_run`` stops a run without one.
    """
    try:
        with Connection(Path(run_dir)) as connection:
            return connection.command(name, args)
    except BackendDead as error:
        if name != "stop" or RunDir(Path(run_dir)).read_result() is not None:
            raise
        raise BackendDead(
            f"{error}; call liverl.stop_run({str(run_dir)!r}) to stop its remaining processes"
        ) from error
