"""Joins the conversation of each turn from the records of a trial's file, of which each has only what is new.

A record of the sessions names in ``session`` the turn that its request continues: ``after`` is that turn's
``response_body.id``, and ``shared`` the number of its messages, those of its request and its reply, with which this
request begins. ``request_body.messages`` has the others. ``tools`` is a digest of the tools that were offered;
``request_body.tools`` has them where no earlier record of the file has tools of this digest. A record without
``shared``, of an older version or of LiteLLM, has the whole request. What continues a turn that the file does not have,
because its line is damaged or was removed, says how many messages are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.checked_path import RESOLVED
from liverl.util.decode import JsonDecoder
from liverl.util.regular_file import open_binary

LONGEST_LINE = 64 << 20  # bytes of a record; longer lines are passed over
MOST_BYTES = 1 << 30  # bytes of a file that are read: an agent may write anything to it
MOST_SHARED = 1 << 20  # messages; a record that says more is damaged


class Joined(msgspec.Struct, frozen=True):
    """The messages of a request, as JSON. ``missing``: how many came before them and are in no record; ``lost``: the
    turn that had the last of these, "" without one."""

    messages: list[bytes]
    missing: int = 0
    lost: str = ""


class _Turn:
    __slots__ = ("lost", "missing", "own", "parent", "shared", "size")

    def __init__(self, parent: _Turn | None, shared: int, own: Sequence[bytes], lost: str) -> None:
        self.parent, self.shared, self.own = parent, shared, own
        self.missing: int = shared if parent is None else min(shared, parent.missing)
        self.lost: str = lost if parent is None else parent.lost if self.missing else ""
        self.size = shared + len(own)


class JoinedTurns:
    """The turns of one trial's file, in their order."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def add(
        self, answer: str, after: str, shared: int, messages: Sequence[bytes], reply: bytes | None
    ) -> Joined:
        """Add a turn; return its request. ``answer``: its ``response_body.id``; ``reply``: its message."""
        parent = self._turns.get(after) if shared else None
        if parent is not None and shared > parent.size:
            parent = None  # what it continues is not the turn that the file has
        turn = _Turn(parent, shared, [*messages, *(() if reply is None else (reply,))], after)
        if answer:
            self._turns[answer] = turn
        known = _prefix(turn, shared + len(messages))
        return Joined(known, turn.missing, turn.lost)


def _prefix(turn: _Turn | None, size: int) -> list[bytes]:
    """The known ones of the first ``size`` messages of a turn with its reply."""
    parts: list[Sequence[bytes]] = []
    while turn is not None and size > 0:
        if size > turn.shared:
            parts.append(turn.own[: size - turn.shared])
            size = turn.shared
        turn = turn.parent
    return [message for part in reversed(parts) for message in part]


# -- what a session reads of its own records


class _Choice(msgspec.Struct):
    message: msgspec.Raw = msgspec.Raw(b"null")


class _Response(msgspec.Struct):
    id: str = ""
    choices: list[_Choice] = []


class _Request(msgspec.Struct):
    messages: list[msgspec.Raw] | None = None
    tools: msgspec.Raw = msgspec.Raw(b"null")


class _Session(msgspec.Struct):
    kind: str
    shared: int | None = None
    after: str = ""
    tools: str = ""


class _Record(msgspec.Struct):
    session: _Session
    response_body: _Response
    request_body: _Request = msgspec.field(default_factory=_Request)


class RecordedRequest(msgspec.Struct, frozen=True):
    """A turn of a session as its file has it. ``request``: None if it is not known; ``tools``: their digest and, where
    the record has them, their JSON; ``whole``: it is of a version whose records repeat the conversation."""

    kind: str
    answer: str
    request: Joined | None
    reply: dict[str, Any]
    tools_digest: str = ""
    tools: bytes | None = None
    whole: bool = False


_decode = JsonDecoder(_Record).decode
_message = JsonDecoder(dict[str, Any]).decode


def recorded_requests(path: Path) -> Iterator[RecordedRequest]:
    """The turns of the sessions in a trial's file, in their order. Lines that are none are left out.

    Raises:
        OSError: the file cannot be read; a missing one has no turns.
    """
    turns = JoinedTurns()
    for line in _lines(path):
        try:
            record = _decode(line)
            reply = _message(record.response_body.choices[0].message)
        except (LookupError, *BAD_JSON):
            continue
        session, messages = record.session, record.request_body.messages
        shared = session.shared or 0
        if not 0 <= shared <= MOST_SHARED:
            continue
        raw = [bytes(message) for message in messages or ()]
        request: Joined | None
        if session.shared is None:
            request = Joined(raw)
        else:
            said = reply_json(reply)
            request = turns.add(record.response_body.id, session.after, shared, raw, said)
        tools = bytes(record.request_body.tools)
        yield RecordedRequest(
            session.kind,
            record.response_body.id,
            request if messages is not None else None,
            reply,
            session.tools,
            tools if tools != b"null" else None,
            whole=session.shared is None,
        )


def reply_json(message: dict[str, Any]) -> bytes:
    """A reply as the messages of the next request have it, from the form that the response has."""
    said = {"role": "assistant", "content": message.get("content") or ""}
    said |= {name: message[name] for name in ("reasoning_content", "tool_calls") if message.get(name)}
    return msgspec.json.encode(said)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        file = open_binary(path, inside=RESOLVED)
    except FileNotFoundError:
        return
    with file:
        read, begun = 0, False  # begun: in a line that is too long
        while read < MOST_BYTES and (line := file.readline(LONGEST_LINE)):
            read += len(line)
            whole = line.endswith(b"\n")
            if whole and not begun:
                yield line
            begun = not whole
