"""The control client for short commands and plain text views: blocking sockets, no event loop."""

from __future__ import annotations

import os
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
    ControlError,
    Cursor,
    EventsChunk,
    Incoming,
    ProtocolMismatch,
    Request,
    check_hello,
    decode_incoming,
    encode_line,
    refusal,
)
from liverl.control.paths import connect_control, no_answer, no_greeting, unreachable
from liverl.model import Event, Snapshot
from liverl.rundir.layout import DeadBackend, LiveBackend, RemoteBackend, RunDir, backend_alive
from liverl.snapshot_json import decode_snapshot
from liverl.util.decode import decode_json
from liverl.util.descriptors import readable

# Timeout of the handshake. A backend responds within milliseconds, under full load within a second.
HELLO_S = 5.0
NOW_S = 1.0  # seconds of a stop that is to kill: for the greeting, and for an answer of the main loop ...
# ... and for one that does not wait for the main loop: its deadline, a record on disk, the keeper
PAST_LOOP_S = 5.0
DYING_S = 2.0  # how long a killed backend may stay in the process table after its socket was closed


def after_end(run_dir: Path) -> ControlError:
    """The error for a connection that ended without ``bye``. Waits up to ``DYING_S``, because the socket of a killed
    backend closes a little before its process is gone."""
    return unreachable(run_dir, await_gone(run_dir, DYING_S))


def await_gone(run_dir: Path, timeout: float) -> LiveBackend | DeadBackend | RemoteBackend:
    """Wait at most ``timeout`` seconds until the backend's process is gone; return its state then.

    A backend that has sent ``bye`` still holds its lock, which the next backend needs, until it exits.
    """
    deadline = time.monotonic() + timeout
    while isinstance(state := backend_alive(run_dir), LiveBackend) and time.monotonic() < deadline:
        time.sleep(0.02)
    return state


class Connection:
    """One connection to a run's backend. Use it from one thread only, and close it (``with``)."""

    def __init__(self, run_dir: Path, *, timeout: float = HELLO_S) -> None:
        """Connect and wait for the handshake, each for up to ``timeout`` seconds.

        Raises:
            BackendDead, BackendElsewhere, BackendSilent: no backend responds on this machine.
            ProtocolMismatch: the backend is of another version.
            CommandError: the backend refuses this client.
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
                raise no_greeting(self.run_dir, timeout)
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
        """Close the socket. Commands that the backend has accepted go on."""
        self._sock.close()

    def read(self, timeout: float | None, wake_fd: int | None = None) -> Incoming | None:
        """The next message that is not the answer to a request. None after ``timeout`` seconds (None = no limit), or as
        soon as ``wake_fd`` is readable.

        Raises:
            BackendDead, BackendSilent: the connection ended without ``bye``.
            ProtocolMismatch: the backend sent something else than this protocol.
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
                raise ProtocolMismatch(f"the backend sent a line of more than {LINE_LIMIT} bytes")
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            watched = [self._sock.fileno()] + ([wake_fd] if wake_fd is not None else [])
            ready = readable(watched, remaining)
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
        """Send ``request`` with a new id and return the answer. Other messages that arrive meanwhile are kept for
        ``read``.

        Raises:
            CommandError: the request was refused or failed.
            BackendDead: the backend has exited.
            BackendSilent: the backend did not respond within ``timeout`` seconds (None = no limit).
        """
        self._next_id += 1
        number = self._next_id
        try:
            self._sock.settimeout(timeout)
            self._sock.sendall(encode_line(msgspec.structs.replace(request, id=number)))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the backend may have sent the reason before it closed; it is read below
        except TimeoutError as error:
            raise no_answer(self.run_dir, f"no response within {timeout:g} s") from error
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            message = self._receive(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if message is None:
                raise no_answer(self.run_dir, f"no response within {timeout:g} s")
            if message.error is not None and message.id in (number, None):
                raise refusal(message.error)
            if message.id == number and bytes(message.ok):
                return message.ok
            if message.bye is not None:
                self._messages.append(message)
                raise BackendDead("the backend shut down before it responded")
            if message.id is None:
                self._messages.append(message)

    def snapshot(self, timeout: float = HELLO_S) -> Snapshot:
        """The present state of the run, within ``timeout`` seconds. Raises as ``request`` does."""
        return decode_snapshot(self.request(Request(0, "snapshot"), timeout), shallow=True)

    def events_chunk(self, from_seq: int, timeout: float = HELLO_S) -> EventsChunk:
        """The oldest events after ``from_seq``, up to about ``EVENTS_CHUNK`` bytes, and whether there are more."""
        return decode_json(self.request(Request(0, "events", from_seq), timeout), type=EventsChunk)

    def events_after(self, cursor: Cursor) -> Iterator[Event]:
        """All events after ``cursor`` that the backend has, in order; moves the cursor."""
        more = True
        while more:
            chunk = self.events_chunk(cursor.seq)
            yield from cursor.new(chunk.events)
            more = chunk.more

    def subscribe(
        self, from_seq: int, *, snapshots: bool = False, interval: float = 0.5, timeout: float = HELLO_S
    ) -> None:
        """Have the backend send the events after ``from_seq`` and all new ones; with ``snapshots``, also the state
        whenever it changes, at most every ``interval`` seconds. ``read`` returns them. ``timeout``: seconds for it to
        accept that."""
        self.request(Request(0, "subscribe", from_seq, snapshots, interval), timeout)

    def stop_now(self, client: str) -> dict[str, Any]:
        """Order that the run is killed; returns the answer. With ``killed`` in it the backend was busy, and is replaced
        by one that ends the run: this connection has ended then.

        Raises:
            CommandError: it was refused.
            BackendDead, BackendSilent: as for ``request``.
        """
        seconds = NOW_S if self.hello.busy is None else PAST_LOOP_S
        answer = self.command("stop", {"now": True}, client=client, wait=False, timeout=seconds)
        if "killed" in answer:
            self._await_end(PAST_LOOP_S)
        return answer

    def _await_end(self, seconds: float) -> None:
        """Read until the other end closes the connection, at most ``seconds``."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and readable([self._sock.fileno()], left):
            try:
                if not self._sock.recv(1 << 18):
                    return
            except OSError:
                return

    def command(
        self,
        name: str,
        args: dict[str, Any],
        *,
        client: str = "",
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Run the command ``name`` in the backend and return its result.

        ``client``: who is recorded as its sender; "" = this process. ``wait`` False: return as soon as the command is
        accepted. ``timeout``: seconds, None = no limit.

        Raises:
            CommandError: the command was refused or failed.
            BackendDead, BackendSilent: as for ``request``.
        """
        sender = client or f"pid {os.getpid()}"
        request = Request(0, "command", name=name, args=args, client=sender, wait=wait)
        return decode_json(self.request(request, timeout), type=dict[str, Any])


def snapshot(run_dir: str | Path) -> Snapshot:
    """The present state of a live run. For a run without a backend use ``liverl.snapshot``.

    Raises:
        ControlError: no backend responds (BackendDead, BackendElsewhere, BackendSilent).
    """
    with Connection(Path(run_dir)) as connection:
        return connection.snapshot()


def command(run_dir: str | Path, name: str, /, **args: Any) -> dict[str, Any]:
    """Run a command in the backend of a live run, and wait until it is done::

        liverl.command(run_dir, "restart", service="proxy")

    Raises:
        CommandError: the command was refused or failed.
        ControlError: no backend responds, or it is busy. ``liverl.stop_run`` stops a run without a backend.
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
