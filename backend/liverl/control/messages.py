"""The wire format: one JSON object per line, both ways.

The server sends ``hello`` first. Each request has an id, and its answer is ``ok`` or ``error`` with the same id. A
subscription adds ``event``, ``snapshot`` and ``resync`` lines without an id. ``bye``: the server shuts down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from liverl.exit_codes import ExitCode
from liverl.model import Event, Snapshot
from liverl.snapshot_json import decode_snapshot
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder

PROTOCOL = 4
LINE_LIMIT = 16 * 1024 * 1024  # bytes of one line, on both ends; a snapshot of a large run is about 100 KiB
REQUEST_LIMIT = 1024 * 1024  # bytes of one request; the longest have some hundred
QUEUE_LIMIT = 1024 * 1024  # bytes of events waiting for one client; with more, it must resync
EVENTS_CHUNK = 256 * 1024  # bytes of events in one answer to ``events``; a single event may be larger
NO_EVENTS = 2**62  # a ``from_seq`` after every event, for subscribers that want snapshots only
USAGE_CODES = frozenset(("unknown_service", "unknown_command", "bad_args", "bad_request"))
BUSY = "backend_busy"  # the code of a request that the backend's main loop did not take in time
MIN_INTERVAL_S = 0.05  # between two snapshots for one client


_Id = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Seq = Annotated[int, msgspec.Meta(ge=0, le=NO_EVENTS)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=86400)]
_Name = Annotated[str, msgspec.Meta(max_length=200)]


class Hello(msgspec.Struct, frozen=True):
    """The server's first message: its protocol and version, the run as project/name, and the backend's pid. ``busy``:
    seconds for which its main loop has been in one turn; None if the control socket waits for the main loop itself."""

    protocol: int
    version: str
    run: str
    pid: int
    busy: float | None = None


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request of a client. ``do`` decides which fields are used.

    ``snapshot``: the present state. ``subscribe``: events after ``from_seq`` and, with ``snapshots``, the
    state whenever it has changed, at most every ``interval`` seconds. ``events``: the oldest events after
    ``from_seq``, and whether there are more. ``command``: run ``name`` with ``args``, recorded as sent by ``client``;
    with ``wait`` false it is answered as soon as it is accepted. ``ping``: for how long the main loop has been busy.
    All but ``ping`` and ``subscribe`` are refused with the code ``BUSY`` if the main loop does not take them in time.
    """

    id: _Id
    do: Literal["snapshot", "subscribe", "events", "command", "ping"]
    from_seq: _Seq = 0
    snapshots: bool = False
    interval: _Seconds = 0.5
    name: _Name = ""
    args: dict[str, Any] = {}
    client: _Name = ""
    wait: bool = True


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error in an answer; the fields are those of ``CommandError``."""

    code: str
    message: str
    did_you_mean: str | None = None


class Resync(msgspec.Struct, frozen=True):
    """Lines for this client were dropped, because too many waited. It must request the events up to ``seq``."""

    seq: int


class EventsChunk(msgspec.Struct, frozen=True):
    """The answer to ``events``: events in order; ``more``: the backend has further ones."""

    events: tuple[Event, ...]
    more: bool


class Incoming(msgspec.Struct, frozen=True):
    """Any line from the server. ``ok`` is not decoded, because its type depends on the request."""

    hello: Hello | None = None
    id: int | None = None
    ok: msgspec.Raw = msgspec.Raw(b"")  # empty: not an answer
    error: ErrorBody | None = None
    event: Event | None = None
    snapshot: Snapshot | None = None
    resync: Resync | None = None
    bye: dict[str, Any] | None = None


class ControlError(Exception):
    """An error of the control socket. ``str()`` is a message for the user; a command that fails with it exits with
    ``exit_code``."""

    exit_code: int = ExitCode.FAILED


class BackendOfOther(ControlError):
    """The run is live, and its backend answers only the user that it runs as. Its files can be read."""


class BackendDead(ControlError):
    """The run has no running backend. Its state can only be read from its files. ``run_dir``: of a run that has no
    result either, so that what is left of it is to be said; None where the message says all."""

    exit_code = ExitCode.NO_RUN

    def __init__(self, message: str, run_dir: Path | None = None) -> None:
        super().__init__(message)
        self.run_dir = run_dir


class BackendElsewhere(ControlError):
    """The run's backend runs on another host, ``host``."""

    exit_code = ExitCode.NO_RUN

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


class BackendSilent(ControlError):
    """The backend's process exists but does not respond: it is stopped, overloaded or still starting."""


class BackendBusy(BackendSilent):
    """The backend answers, but its main loop does not: the message says since when, and with what it is busy. The
    request was not carried out."""


class ProtocolMismatch(ControlError):
    """The other end is a backend with another version of the protocol, or not a backend."""


class CommandError(ControlError):
    """A request was refused or failed. Command handlers raise it too.

    ``code``: the kind of error, for programs; ``did_you_mean``: the name that was probably meant, if any.
    """

    def __init__(self, code: str, message: str, did_you_mean: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = ExitCode.USAGE if code in USAGE_CODES else ExitCode.FAILED
        self.did_you_mean = did_you_mean


def refusal(body: ErrorBody) -> ControlError:
    """The error for a request that was answered with ``body``."""
    if body.code == BUSY:
        return BackendBusy(body.message)
    return CommandError(body.code, body.message, body.did_you_mean)


class Cursor:
    """The position of a reader of events. ``seq`` is that of the newest event read; events that a resync repeats are
    left out."""

    def __init__(self, seq: int) -> None:
        self.seq = seq

    def new(self, events: Iterable[Event]) -> Iterator[Event]:
        """Those of ``events`` that are newer than ``seq``, in order; moves ``seq`` as they are consumed."""
        for event in events:
            if event.seq > self.seq:
                self.seq = event.seq
                yield event


_encoder = msgspec.json.Encoder()


class _IncomingLine(Incoming, frozen=True):
    """A line after the first step of decoding. The snapshot is decoded separately, because its JSON form differs."""

    snapshot: msgspec.Raw = msgspec.Raw(b"")  # type: ignore[assignment]


_incoming = JsonDecoder(_IncomingLine, bounded=False)  # a result has any form
_request = JsonDecoder(Request)


def encode_line(message: Any) -> bytes:
    """``message`` as JSON with a newline at the end. There is no other newline, because JSON escapes them."""
    return _encoder.encode(message) + b"\n"


def decode_incoming(line: bytes) -> Incoming:
    """Decode a line from the server.

    Raises:
        ProtocolMismatch: the line is not a message of this protocol.
    """
    try:
        message = _incoming.decode(line)
        state = bytes(message.snapshot)
        # That a line is not too deep was seen as a whole: to look twice takes a quarter of the time to decode it.
        snapshot = decode_snapshot(state, shallow=True) if state else None
        return msgspec.structs.replace(message, snapshot=snapshot)
    except BAD_JSON as error:
        raise unreadable_message(error) from error


def unreadable_message(error: Exception) -> ProtocolMismatch:
    """The error for what the backend has sent, and ``error`` says why this version cannot read."""
    return ProtocolMismatch(
        f"this version cannot read a message of the backend: {error}; use the version that started the run"
    )


def decode_request(line: bytes) -> Request:
    """Decode a line from a client.

    Raises:
        msgspec.DecodeError: the line is not a request; the message names the field.
    """
    try:
        return _request.decode(line)
    except RecursionError:
        raise msgspec.DecodeError("the request is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"the request is not UTF-8: {error.reason}") from None


def check_hello(message: Incoming) -> Hello:
    """The handshake in ``message``, the first line from the server.

    Raises:
        ProtocolMismatch: it is not a ``hello``, or of another version of the protocol.
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
            f"(liverl {__version__}) protocol {PROTOCOL}; use the same version for both"
        )
    return hello
