"""What readers of a trial see: one line per turn, in the form of the proxy's recorder, and the rows at its end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from liverl.sessions import wire
from liverl.sessions.counters import Counters
from liverl.sessions.engine import openai_message
from liverl.sessions.journal import Recorded
from liverl.sessions.messages import Api, Chat
from liverl.sessions.segments import Row
from liverl.util.atomic_file import write_atomic
from liverl.util.regular_file import open_append, read_regular

TURNS = "litellm-trajectory.jsonl"
ROWS = "proxy_trajectory.json"
REDACTED = "[redacted]"


def turn_record(session: str, api: Api, chat: Chat, recorded: Recorded) -> dict[str, Any]:
    """One turn in the recorder's form, with the kind of its row and the session's counters after it."""
    answer, turn, began, seconds = recorded.answer, recorded.turn, recorded.began, recorded.seconds
    body = wire.body("openai", answer)
    asked: dict[str, Any] = {
        "model": chat.model,
        "messages": [openai_message(message) for message in chat.messages],
        "tools": list(chat.tools) or None,
        "max_tokens": chat.max_tokens,
        "temperature": chat.temperature,
        "top_p": chat.top_p,
    }
    return {
        "session_id": session,
        "success": True,
        "request_time": round(began * 1000),
        "timestamp": datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="milliseconds"),
        "duration_ms": round(seconds * 1000),
        "api": api,
        "stream": chat.stream,
        "request_body": {name: value for name, value in asked.items() if value is not None},
        "response_body": body,
        "usage": body["usage"],
        "failure": None,
        "session": {"kind": turn.kind, "opens": turn.segment is None, "counters": recorded.counters},
    }


def append_turn(trial_dir: Path, record: dict[str, Any], secret: str) -> None:
    """Append a record to the trial's file. ``secret``: replaced, should the conversation hold it.

    Raises:
        OSError: the file cannot be written.
    """
    line = _without(secret, msgspec.json.encode(record)) + b"\n"
    fd = open_append(trial_dir / TURNS)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def has_turn(trial_dir: Path, answer: wire.Answer) -> bool:
    """Whether the trial's file has the turn with this reply.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return answer.id.encode() in read_regular(trial_dir / TURNS)
    except FileNotFoundError:
        return False


class Conversation(msgspec.Struct, frozen=True):
    """The last request of the main conversation with its reply, in OpenAI's form."""

    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []


def conversation(chat: Chat) -> Conversation:
    """``chat``: the last request, with the reply behind it."""
    return Conversation([openai_message(message) for message in chat.messages], list(chat.tools))


def last_conversation(trial_dir: Path) -> Conversation:
    """The conversation as the trial's file has it: for a session that had no request since the service was started
    again. Empty if the file has no turn of it; lines that are no record are skipped.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        lines = read_regular(trial_dir / TURNS).splitlines()
    except FileNotFoundError:
        return Conversation()
    for line in reversed(lines):
        try:
            record = msgspec.json.decode(line)
            if record["session"]["kind"] in ("main", "rewrite"):
                asked = record["request_body"]
                reply = record["response_body"]["choices"][0]["message"]
                return Conversation([*asked["messages"], reply], asked.get("tools") or [])
        except (msgspec.DecodeError, LookupError, TypeError):
            continue
    return Conversation()


def write_rows(
    trial_dir: Path,
    session: str,
    rows: Sequence[Row],
    counters: Counters,
    last: Conversation,
    secret: str,
) -> None:
    """Write ``proxy_trajectory.json``, once, by rename: the fields of the main row on top, all rows in ``rows``.

    Raises:
        OSError: it cannot be written.
    """
    main = msgspec.to_builtins(rows[-1]) if rows else {}
    value = {
        "session_id": session,
        "messages_snapshot": last.messages,
        "tools": last.tools,
        **{name: item for name, item in main.items() if name.startswith(("traj_", "initial_"))},
        "rows": rows,
        "counters": counters,
    }
    write_atomic(trial_dir / ROWS, _without(secret, msgspec.json.encode(value)))


def _without(secret: str, data: bytes) -> bytes:
    return data.replace(secret.encode(), REDACTED.encode())
