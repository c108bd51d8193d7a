"""The wire format: one JSON object per line, both ways.

The server speaks first (``hello``). Requests carry an id and are answered with ``ok`` or ``error`` under that
id; a subscription adds ``event``, ``snapshot`` and ``resync`` lines without one; ``bye`` is an orderly end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from liverl.exit_codes import ExitCode
from liverl.model import Event, Snapshot
from liverl.snapshot_json import decode_snapshot

PROTOCOL = 1
LINE_LIMIT = 16 * 1024 * 1024  # bytes of one line, on both ends; a snapshot of a large run is about 100 KiB
QUEUE_LIMIT = 1024 * 1024  # bytes waiting for one client before it is told to resync
EVENTS_CHUNK = 256 * 1024  # bytes of events in one answer to ``events``
NO_EVENTS = 2**62  # a ``from_seq`` after every event, for subscribers that want snapshots only
USAGE_CODES = frozenset(("unknown_service", "unknown_command", "bad_args", "bad_request"))
MIN_INTERVAL_S = 0.05  # between two snapshots for one client


class Hello(msgspec.Struct, frozen=True):
    protocol: int
    version: str
    run: str
    pid: int


class Request(msgspec.Struct, frozen=True):
    """What a client may ask.

    ``snapshot``: the present state. ``subscribe``: events after ``from_seq`` and, with ``snapshots``, the
    state whenever it changed, at most every ``interval`` seconds. ``events``: one chunk of the events after
    ``from_seq``, and whether more follow. ``command``: something to do; with ``wait`` false it is answered as
    soon as it is accepted. ``ping``: nothing.
    """

    id: int
    do: Literal["snapshot", "subscribe", "events", "command", "ping"]
    from_seq: int = 0
    snapshots: bool = False
    interval: float = 0.5
    name: str = ""
    args: dict[str, Any] = {}
    client: str = ""
    wait: bool = True


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    message: str
    did_you_mean: str | None = None


class Resync(msgspec.Struct, frozen=True):
    """What was queued for this client was dropped; ``seq`` is the newest event among it."""

    seq: int


class EventsChunk(msgspec.Struct, frozen=True):
    events: tuple[Event, ...]
    more: bool


class Incoming(msgspec.Struct, frozen=True):
    """Any line from the server. ``ok`` stays undecoded: its type depends on the request."""

    hello: Hello | None = None
    id: int | None = None
    ok: msgspec.Raw = msgspec.Raw(b"")  # empty: not an answer
    error: ErrorBody | None = None
    event: Event | None = None
    snapshot: Snapshot | None = None
    resync: Resync | None = None
    bye: dict[str, Any] | None = None


class ControlError(Exception):
    """Something about the control socket. ``str()`` is a message for the user, ``exit_code`` that of a
    command line which ends with it."""

    exit_code: int = ExitCode.FAILED


class BackendDead(ControlError):
    """The run has no living backend: there is nobody to ask. Its files are all that is left."""

    exit_code = ExitCode.NO_RUN


class BackendElsewhere(ControlError):
    """The run's backend lives on another host."""

    exit_code = ExitCode.NO_RUN

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


class BackendSilent(ControlError):
    """The backend's process exists but does not answer (stopped, swamped, or only now starting)."""


class ProtocolMismatch(ControlError):
    """The other end is of a version that speaks another protocol, or not ours at all."""


class CommandError(ControlError):
    """A request was refused or failed. Handlers raise it too; ``code`` is for programs."""

    def __init__(self, code: str, message: str, did_you_mean: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = ExitCode.USAGE if code in USAGE_CODES else ExitCode.FAILED
        self.did_you_mean = did_you_mean


class Cursor:
    """How far a follower has read: lets each event through once, whatever a resync repeats."""

    def __init__(self, seq: int) -> None:
        self.seq = seq

    def new(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if event.seq > self.seq:
                self.seq = event.seq
                yield event


_encoder = msgspec.json.Encoder()


class _IncomingLine(Incoming, frozen=True):
    """A line as it is decoded first: a snapshot has a JSON form of its own."""

    snapshot: msgspec.Raw = msgspec.Raw(b"")  # type: ignore[assignment]


_incoming = msgspec.json.Decoder(_IncomingLine)
_request = msgspec.json.Decoder(Request)


def encode_line(message: Any) -> bytes:
    """One message as a line. JSON escapes newlines, so the only one is at the end."""
    return _encoder.encode(message) + b"\n"


def decode_incoming(line: bytes) -> Incoming:
    """A line from the server.

    Raises:
        ProtocolMismatch: it is not one.
    """
    try:
        message = _incoming.decode(line)
        state = bytes(message.snapshot)
        return msgspec.structs.replace(message, snapshot=decode_snapshot(state) if state else None)
    except msgspec.DecodeError as error:
        raise ProtocolMismatch(
            f"the backend sent a message that this version does not support: {error}"
        ) from error


def decode_request(line: bytes) -> Request:
    """A line from a client.

    Raises:
        msgspec.DecodeError: it is not a request.
    """
    return _request.decode(line)


def check_hello(message: Incoming) -> Hello:
    """The server's first line.

    Raises:
        ProtocolMismatch: it is no hello, or of another protocol.
        CommandError: the server refused this client.
    """
    if message.error is not None:
        raise CommandError(message.error.code, message.error.message)
    hello = message.hello
    if hello is None:
        raise ProtocolMismatch("the process that listens on the control socket is not a liverl backend")
    if hello.protocol != PROTOCOL:
        from liverl.version import __version__

        raise ProtocolMismatch(
            f"the backend (liverl {hello.version}) speaks protocol {hello.protocol}, this client "
            f"(liverl {__version__}) protocol {PROTOCOL}: use the same version on both ends"
        )
    return hello
