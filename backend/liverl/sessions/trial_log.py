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
from liverl.sessions.messages import Api, Chat
from liverl.sessions.segments import Row
from liverl.util.atomic_file import write_atomic
from liverl.util.regular_file import open_append, read_regular

TURNS = "litellm-trajectory.jsonl"
ROWS = "proxy_trajectory.json"
REDACTED = "[redacted]"


def turn_record(
    session: str, api: Api, chat: Chat, answer: wire.Answer, began: float, seconds: float
) -> dict[str, Any]:
    """One turn in the recorder's form. ``began``: Unix seconds."""
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


def write_rows(
    trial_dir: Path, session: str, rows: Sequence[Row], counters: Counters, chat: Chat | None, secret: str
) -> None:
    """Write ``proxy_trajectory.json``, once, by rename: the fields of the main row on top, all rows in ``rows``.

    ``chat``: the last request of the main conversation with its reply, None if there was none.

    Raises:
        OSError: it cannot be written.
    """
    main = msgspec.to_builtins(rows[-1]) if rows else {}
    messages = [openai_message(message) for message in chat.messages] if chat is not None else []
    value = {
        "session_id": session,
        "messages_snapshot": messages,
        "tools": list(chat.tools) if chat is not None else [],
        **{name: item for name, item in main.items() if name.startswith(("traj_", "initial_"))},
        "rows": rows,
        "counters": counters,
    }
    write_atomic(trial_dir / ROWS, _without(secret, msgspec.json.encode(value)))


def _without(secret: str, data: bytes) -> bytes:
    return data.replace(secret.encode(), REDACTED.encode())
