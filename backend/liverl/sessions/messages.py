"""What a chat request says, in one form for both APIs. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]
Api = Literal["openai", "anthropic"]


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool call. ``arguments``: JSON text of an object; text that is no JSON object as it came."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. ``call_id``: the call that a tool message answers."""

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""


class Chat(msgspec.Struct, frozen=True):
    """One request. ``tools``: in OpenAI's form; ``tool_choice``: in OpenAI's form, None for the default.

    ``max_tokens``, ``temperature``, ``top_p``, ``top_k``, ``stop``, ``seed``: as the client asked for, None where it
    did not. ``usage``: whether the last chunk of a stream states the token counts.
    """

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    model: str = ""
    stream: bool = False
    usage: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None


class BadRequest(ValueError):
    """A request that cannot be carried out. ``param``: the path of the field, such as ``messages.2.content``."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param
