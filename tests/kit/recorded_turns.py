"""Turns of a session as it records them, without a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liverl.sessions.counters import Counters
from liverl.sessions.journal import Recorded
from liverl.sessions.messages import Call, Chat, Message
from liverl.sessions.segments import Kind, Turn, Versions
from liverl.sessions.wire import Answer

KEY = "k" * 43
TOOL = {
    "type": "function",
    "function": {"name": "bash", "description": "runs", "parameters": {"type": "object"}},
}
BEGUN = 1_800_000_000.0  # Unix seconds


def said(text: str, *calls: str, reasoning: str = "") -> Message:
    """A reply with calls of the tool, by their ids."""
    made = tuple(Call(call, "bash", '{"command":"ls"}') for call in calls)
    return Message("assistant", text, reasoning, made)


def recorded(
    number: int,
    reply: Message,
    *,
    kind: Kind = "main",
    opens: bool = False,
    given: Sequence[int] = (1, 2),
    ids: Sequence[int] = (3, 4),
    logprobs: Sequence[float] = (-0.5, -0.25),
) -> Recorded:
    """The turn ``number``, whose reply has the id ``f"{number:024x}"``."""
    turn = Turn(
        kind,
        None if opens else 0,
        list(given),
        list(ids),
        list(logprobs),
        (Versions(1, len(ids)),),
        b"",
        2,
        "stop",
    )
    finish = "tool_calls" if reply.calls else "stop"
    answer = Answer(f"{number:024x}", 0, "policy", reply, finish, len(given), len(ids))
    return Recorded(
        bytes([number % 256]) * 16, turn, answer, Counters(num_calls=number + 1), BEGUN + number, 0.5
    )


def asked(messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (TOOL,)) -> Chat:
    """A request with these messages."""
    return Chat(tuple(messages), tuple(tools), model="policy")
