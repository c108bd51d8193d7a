"""What readers of a trial see: one line per turn, in the form of the proxy's recorder, and the rows at its end.

A turn's line has what no earlier line of the file has, see ``joined_turns``. The trial's directory is given by its
resolved path: one that an agent has replaced by a link is neither written nor read.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from liverl.sessions import wire
from liverl.sessions.joined_turns import recorded_requests, reply_json
from liverl.sessions.journal import Recorded
from liverl.sessions.messages import Api, Chat, Message, openai_message, shared_items
from liverl.sessions.result import SessionResult
from liverl.sessions.segments import Row
from liverl.util.append import append_to
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.checked_path import RESOLVED
from liverl.util.decode import decode_json
from liverl.util.regular_file import open_append, reopen_append

TURNS = "litellm-trajectory.jsonl"
ROWS = "proxy_trajectory.json"
REDACTED = "[redacted]"
_MOST_PREFIXES = 1 << 16  # beginnings of conversations that are known of one session


class OpenaiForms:
    """The messages and tools of a session's requests in OpenAI's form: what a request repeats is the same object."""

    def __init__(self) -> None:
        self._messages: Sequence[Message] = ()
        self._forms: list[dict[str, Any]] = []
        self._tools: tuple[dict[str, Any], ...] = ()
        self._listed: list[dict[str, Any]] = []

    def tools(self, tools: tuple[dict[str, Any], ...]) -> list[dict[str, Any]] | None:
        """A request's tools; None without any."""
        if tools is not self._tools:
            self._tools, self._listed = tools, list(tools)
        return self._listed or None

    def of(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Those of ``messages``."""
        known = shared_items(messages, self._messages)
        self._forms = [*self._forms[:known], *map(openai_message, messages[known:])]
        self._messages = messages
        return self._forms


def turn_record(
    session: str, api: Api, chat: Chat, recorded: Recorded, forms: OpenaiForms | None = None
) -> dict[str, Any]:
    """One turn in the recorder's form, with the kind of its row and the session's counters after it. ``forms``: of the
    session."""
    forms = forms or OpenaiForms()
    asked: dict[str, Any] = {
        "model": chat.model,
        "messages": forms.of(chat.messages),
        "tools": forms.tools(chat.tools),
        "max_tokens": chat.max_tokens,
        "temperature": chat.temperature,
        "top_p": chat.top_p,
    }
    told = {name: value for name, value in asked.items() if value is not None}
    return {**_record(session, recorded, told), "api": api, "stream": chat.stream}


def turn_record_without_request(session: str, recorded: Recorded) -> dict[str, Any]:
    """A turn of which only the journal is left: its reply, but not its request. Its ``messages`` are null, and it is
    ``late``: it may stand behind turns that came after it."""
    record = _record(session, recorded, {"model": recorded.answer.model, "messages": None})
    record["session"]["late"] = True
    return record


def _record(session: str, recorded: Recorded, asked: dict[str, Any]) -> dict[str, Any]:
    turn, began = recorded.turn, recorded.began
    # Without log-probabilities, for a client that asked for them: the row has them.
    body = wire.body("openai", msgspec.structs.replace(recorded.answer, logprobs=None))
    return {
        "session_id": session,
        "success": True,
        "request_time": round(began * 1000),
        "timestamp": datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="milliseconds"),
        "duration_ms": round(recorded.seconds * 1000),
        "request_body": asked,
        "response_body": body,
        "usage": body["usage"],
        "failure": None,
        **({"replica": recorded.replica} if recorded.replica else {}),
        "session": {"kind": turn.kind, "opens": turn.segment is None, "counters": recorded.counters},
    }


class _Said(msgspec.Struct, frozen=True):
    """A turn as its record has it, its reply without the session's key. ``messages``: of its request, None: not
    known."""

    answer: str
    messages: Sequence[Any] | None
    reply: bytes
    tools_digest: str = ""

    @staticmethod
    def of(record: Mapping[str, Any], secret: str, tools: _ToolsDigest) -> _Said | None:
        """None for a record that has no reply."""
        try:
            response, asked = record["response_body"], record["request_body"]
            answer, reply = response["id"], reply_json(response["choices"][0]["message"])
        except (LookupError, TypeError):
            return None
        digest = tools.of(asked.get("tools"), secret)
        return _Said(answer, asked.get("messages"), _without(secret, reply), digest)


class _ToolsDigest:
    """The digest of a request's tools as the file has them. Those of the request before, the same object, have its."""

    def __init__(self) -> None:
        self._tools: object = None
        self._digest = ""

    def of(self, tools: Any, secret: str) -> str:
        """That of ``tools``; "" without any."""
        if tools is not self._tools:
            self._tools = tools
            self._digest = _digest(_without(secret, msgspec.json.encode(tools))).hex() if tools else ""
        return self._digest


class _Digests:
    """For each number of messages of a request, a digest of so many of the first ones, as the file has them. Each
    request of a session repeats the one before: what both begin with is compared, and not encoded again."""

    def __init__(self) -> None:
        self._messages: Sequence[
            Any
        ] = ()  # of the request before; their texts are those of the session's last chat
        self._digests: list[bytes] = []

    def of(self, messages: Sequence[Any], secret: str) -> list[bytes]:
        """Those of ``messages``."""
        known = shared_items(messages, self._messages)
        new = [_encoded(message, secret) for message in messages[known:]]
        self._digests = _digests(new, self._digests[:known])
        self._messages = messages
        return self._digests


class ToldTurns:
    """What a trial's file has of its session, so that the next turn need not repeat it. It is read from the file when
    it is first asked for, and again when another file is in its place. One for each session; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: tuple[int, ...] | None = None  # as it was left, or read
        # The same, of one that this object has opened to append to it: only then is it known that it may be written.
        self._appended: tuple[int, ...] | None = None
        self._written: int | None = None  # bytes behind the last line of this process
        self._requests, self._tools_digest = _Digests(), _ToolsDigest()
        self._paths: tuple[Path | None, Path] = (None, Path())  # a trial's directory and its file
        self._forget()

    def _forget(self) -> None:
        self._answers: set[str] = set()
        self._tools: set[str] = set()
        # Digest of the first messages of a conversation -> the turn that was the first to have them, and their number.
        self._prefixes: dict[bytes, tuple[str, int]] = {}

    def _path_in(self, trial_dir: Path) -> Path:
        """The trial's file. Made once: joining paths takes as long as looking at the file."""
        if self._paths[0] is not trial_dir:
            self._paths = trial_dir, trial_dir / TURNS
        return self._paths[1]

    def append(self, trial_dir: Path, record: Mapping[str, Any], secret: str) -> None:
        """See ``append_turn``."""
        path = self._path_in(trial_dir)
        with self._lock:
            fd = reopen_append(path, self._is_ours)
            try:
                if fd is None:
                    self._look(path)
                self._append(path, fd, record, secret)
            finally:
                if fd is not None:
                    os.close(fd)

    def begins(self, trial_dir: Path) -> bool:
        """Whether the next line needs no look at what a file has: its earlier lines are known, or there is none."""
        try:
            now = _identity(self._path_in(trial_dir))
        except OSError:
            return False
        return not self._lock.locked() and (now is None or now == self._file or not now[2])

    def _append(self, path: Path, fd: int | None, record: Mapping[str, Any], secret: str) -> None:
        """Write a turn. ``fd``: the open file, if ``path`` was also the last file written; None: it is to be opened."""
        turn = _Said.of(record, secret, self._tools_digest)
        if turn is None:
            self._write(path, fd, record, secret)
        elif turn.answer not in self._answers:
            digests = None if turn.messages is None else self._requests.of(turn.messages, secret)
            new, shared = self._new(record, turn, digests, secret)
            self._write(path, fd, new, secret)
            self._take(turn.answer, digests, turn.reply, turn.tools_digest, shared)

    def _new(
        self, record: Mapping[str, Any], turn: _Said, digests: Sequence[bytes] | None, secret: str
    ) -> tuple[dict[str, Any], int]:
        """The record with what no earlier record has, and how many messages an earlier one has. ``digests``: of its
        messages."""
        asked, session, shared = dict(record["request_body"]), dict(record["session"]), 0
        if turn.messages is not None and digests is not None:
            after, shared = self._longest(digests)
            session |= {"shared": shared} | ({"after": after} if shared else {})
            asked["messages"] = [msgspec.Raw(_encoded(each, secret)) for each in turn.messages[shared:]]
        if turn.tools_digest:
            session["tools"] = turn.tools_digest
            if turn.tools_digest in self._tools:
                del asked["tools"]
        return {**record, "request_body": asked, "session": session}, shared

    def _write(self, path: Path, fd: int | None, record: Mapping[str, Any], secret: str) -> None:
        line = _without(secret, msgspec.json.encode(record)) + b"\n"
        opened = open_append(path, read=True, inside=RESOLVED) if fd is None else fd
        try:
            before = append_to(opened, path, line, self._written)
            self._file = self._appended = _of(os.fstat(opened))
        finally:
            if fd is None:
                os.close(opened)
        self._written = before + len(line)

    def _is_ours(self, status: os.stat_result) -> bool:
        return self._appended == _of(status)

    def answers(self, trial_dir: Path) -> frozenset[str]:
        """The ``response_body.id`` of the turns that the file has.

        Raises:
            OSError: the file cannot be read.
        """
        with self._lock:
            self._look(self._path_in(trial_dir))
            return frozenset(self._answers)

    def _longest(self, digests: Sequence[bytes]) -> tuple[str, int]:
        """The turn that has most of the first messages of a request, and their number. ``digests``: of its messages."""
        return next((self._prefixes[each] for each in reversed(digests) if each in self._prefixes), ("", 0))

    def _take(
        self, answer: str, digests: Sequence[bytes] | None, reply: bytes, tools: str, shared: int = 0
    ) -> None:
        """``digests``: of the messages of its request; ``shared``: how many of these an earlier turn has."""
        self._answers.add(answer)
        if tools:
            self._tools.add(tools)
        if digests is None:
            return
        every = [*digests, *_digests([reply], digests[-1:])[-1:]]
        for number in range(shared, len(every)):
            self._prefixes.setdefault(every[number], (answer, number + 1))
        while len(self._prefixes) > _MOST_PREFIXES:
            del self._prefixes[next(iter(self._prefixes))]

    def _look(self, path: Path) -> None:
        """Read the file if it is not the one that was written last."""
        now = _identity(path)
        if now is not None and now == self._file:
            return
        self._forget()
        self._written = None
        for turn in recorded_requests(path):
            known = None if turn.request is None or turn.request.missing else turn.request.messages
            tools = turn.tools_digest if turn.tools is not None else ""
            digests = None if turn.whole or known is None else _digests(known)
            self._take(turn.answer, digests, reply_json(turn.reply), tools)
        self._file = now


def append_turn(
    trial_dir: Path, record: Mapping[str, Any], secret: str, told: ToldTurns | None = None
) -> None:
    """Append a record to the trial's file, without what earlier records of the file have; one whose reply the file has
    is left out. ``secret``: replaced, should the conversation hold it. ``told``: of the session; None: the file is
    read.

    Raises:
        OSError: the file cannot be read or written; nothing of the record is left in it.
    """
    (ToldTurns() if told is None else told).append(trial_dir, record, secret)


class Conversation(msgspec.Struct, frozen=True):
    """The last request of the main conversation with its reply, in OpenAI's form. ``missing``: messages before these
    that are not known."""

    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    missing: int = 0


def conversation(chat: Chat) -> Conversation:
    """``chat``: the last request, with the reply behind it."""
    return Conversation([openai_message(message) for message in chat.messages], list(chat.tools))


def last_conversation(trial_dir: Path, newest: str = "") -> Conversation:
    """The conversation as the trial's file has it: for a session that had no request since the service was started
    again. ``newest``: the id of its newest reply; "", or one that the file does not have: that of the last turn that
    may be of the main conversation. Empty if the file has none; lines that are no record are skipped.

    Raises:
        OSError: the file cannot be read.
    """
    last, tools = None, {"": b"[]"}
    for turn in recorded_requests(trial_dir / TURNS):
        if turn.tools is not None:
            tools.setdefault(turn.tools_digest or "whole", turn.tools)
        if turn.request is None:
            continue
        if turn.kind in ("main", "rewrite"):
            last = turn
        if newest and turn.answer.endswith(newest):
            last = turn
            break
    if last is None or last.request is None:
        return Conversation()
    try:
        messages = [decode_json(message, type=dict[str, Any]) for message in last.request.messages]
        offered = last.tools if last.tools is not None else tools.get(last.tools_digest, b"[]")
        known = decode_json(offered, type=list[dict[str, Any]])
        return Conversation([*messages, last.reply], known, last.request.missing)
    except BAD_JSON:
        return Conversation()


def write_rows(trial_dir: Path, session: str, result: SessionResult, last: Conversation, secret: str) -> None:
    """Write ``proxy_trajectory.json``, once, by rename.

    Raises:
        OSError: it cannot be written; FileNotFoundError or NotADirectoryError: the trial's directory is gone.
    """
    write_atomic(trial_dir / ROWS, rows_document(session, result, last, secret), inside=RESOLVED)


def rows_document(session: str, result: SessionResult, last: Conversation, secret: str) -> bytes:
    """The content of ``proxy_trajectory.json``. The fields of the main row are on top; the last one in ``rows``, which
    is the main row, has its other fields."""
    main = _on_disk(result.rows[-1]) if result.rows else {}
    on_top = {name: value for name, value in main.items() if name in _ON_TOP}
    rows: list[dict[str, Any]] = [_on_disk(row) for row in result.rows[:-1]]
    if main:
        rows.append({name: value for name, value in main.items() if name not in _ON_TOP})
    value = {
        "session_id": session,
        "messages_snapshot": last.messages,
        "tools": last.tools,
        **({"messages_missing": last.missing} if last.missing else {}),
        **on_top,
        "rows": rows,
        "not_trained": result.not_trained,
        "counters": result.counters,
    }
    return _without(secret, msgspec.json.encode(value))


def _on_disk(row: Row) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in Row.__struct_fields__},
        "traj_response_logprobs": [
            value or 0 for value in row.traj_response_logprobs
        ],  # not 0.0: half the bytes
    }


_ON_TOP = tuple(name for name in Row.__struct_fields__ if name.startswith(("traj_", "initial_")))


def _encoded(message: Any, secret: str) -> bytes:
    """A message as the file has it: each on its own, so that what is compared with later requests is that."""
    return _without(secret, msgspec.json.encode(message))


def _digests(messages: Sequence[bytes], before: Sequence[bytes] = ()) -> list[bytes]:
    """For each number of messages, a digest of so many of the first ones. ``before``: the digests of those that come
    before ``messages``."""
    every = [*before]
    head = every[-1] if every else b""
    for message in messages:
        head = _digest(head + message)
        every.append(head)
    return every


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=12).digest()


def _identity(path: Path) -> tuple[int, ...] | None:
    """Differs once a file was changed or replaced; None without one."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return _of(status)


def _of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _without(secret: str, data: bytes) -> bytes:
    return data.replace(secret.encode(), REDACTED.encode())
