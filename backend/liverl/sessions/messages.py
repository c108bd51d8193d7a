"""What a chat request says, in one form for both APIs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]
Api = Literal["openai", "anthropic"]


class Call(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One tool call. ``arguments``: JSON text of an object; text that is no JSON object as it came."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One message. ``call_id``: the call that a tool message answers."""

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""


class Chat(msgspec.Struct, frozen=True):
    """One request. ``tools``: in OpenAI's form; ``tool_choice``: in OpenAI's form, None for the default.

    ``max_tokens`` and ``stop``: as the client asked for. ``usage``: whether the last chunk of a stream states the token
    counts; ``logprobs``: whether the reply states log-probabilities; ``one_call``: whether it may have one call only.

    ``asked``: the parameters of the distribution that the client has set, by the engine's names: the trainer's replace
    them where the trainer decides. ``extra``: the engine's parameters for what else the client asks for, and
    ``changes``: the fields that ask for it, with a forced call: refused where the trainer decides. ``ignored``: the
    names of fields that have no effect. ``size``: bytes of the request, 0 if they are not known.
    """

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    model: str = ""
    stream: bool = False
    usage: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    one_call: bool = False
    asked: dict[str, Any] = msgspec.field(default_factory=dict)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    changes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    size: int = 0

    @property
    def temperature(self) -> float | None:
        """The temperature that the client asked for."""
        return self.asked.get("temperature")

    @property
    def top_p(self) -> float | None:
        """The nucleus that the client asked for."""
        return self.asked.get("top_p")

    @property
    def top_k(self) -> int | None:
        """The number of likeliest tokens that the client asked for."""
        return self.asked.get("top_k")

    @property
    def seed(self) -> int | None:
        """The seed that the client asked for."""
        return self.asked.get("seed")

    @property
    def forced(self) -> bool:
        """Whether the reply has to have a call: of any tool, or of one."""
        return self.tool_choice not in (None, "auto", "none")


def openai_message(message: Message) -> dict[str, Any]:
    """A message in OpenAI's form."""
    body: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        body["tool_call_id"] = message.call_id
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.calls:
        body["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return body


def shared_items(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many of the first items of two lists, or of two tuples, are equal. Those that are the same objects, as in
    requests that repeat their history, are not looked at one by one."""
    least = min(len(one), len(other))
    if one[:least] == other[:least]:
        return least
    return next((n for n in range(least) if one[n] != other[n]), least)


LONGEST_QUOTE = 80  # characters of a request that an error quotes
LONGEST_ERROR = 1000  # characters of an error


def quoted(value: object) -> str:
    """A value of a request as an error quotes it: cut, since a client, its log and ours get it back."""
    short = value[: LONGEST_QUOTE + 1] if isinstance(value, str) else value
    return shortened(repr(short), LONGEST_QUOTE)


def shortened(text: str, most: int = LONGEST_ERROR) -> str:
    """``text``, cut to ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


class BadRequest(ValueError):
    """A request that cannot be carried out. ``param``: the path of the field, such as ``messages.2.content``."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(shortened(message))
        self.param = None if param is None else shortened(param, LONGEST_QUOTE)
