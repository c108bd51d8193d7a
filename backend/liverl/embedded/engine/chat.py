"""Converts messages and tools of a request to prompt token ids (ChatML, as in the models' chat template)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from liverl.agents.chat_api import arguments_of, text_of
from liverl.agents.tool_calls import Renderer
from liverl.embedded.policy import Message
from liverl.embedded.tokenizer import encode_cached

_GENERATION_PROMPT = "<|im_start|>assistant\n"
TOOLS_HEADING = "# Tools\n"  # in the system message, before one line of JSON per tool


def assistant_text(
    content: str | None, calls: Sequence[tuple[str, Mapping[str, Any]]], render: Renderer
) -> str:
    """Return an assistant turn as the model writes it: the text, then its tool calls."""
    return "".join((content or "", *(render(name, arguments) for name, arguments in calls)))


def prompt_ids(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    render: Renderer,
    *,
    generation: bool = True,
) -> list[int]:
    """Return the token ids of the whole conversation, with ``generation`` plus the header of the next turn.

    Messages are encoded separately, so that ids of earlier messages do not change as the conversation grows.

    Raises:
        ValueError: arguments of a tool call are not a JSON object.
    """
    ids: list[int] = []
    for part in _parts(messages, tools, render):
        ids.extend(encode_cached(part))
    if generation:
        ids.extend(encode_cached(_GENERATION_PROMPT))
    return ids


def _parts(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], render: Renderer
) -> Iterator[str]:
    rest = list(messages)
    system = text_of(rest.pop(0).get("content")) if rest and rest[0].get("role") == "system" else ""
    if tools:
        listed = "\n".join(json.dumps(tool.get("function"), separators=(",", ":")) for tool in tools)
        system = f"{system}\n\n{TOOLS_HEADING}{listed}".lstrip()
    if system:
        yield f"<|im_start|>system\n{system}<|im_end|>\n"
    for message in rest:
        role, text = message.get("role"), text_of(message.get("content"))
        if role == "tool":
            yield f"<|im_start|>user\n<tool_response>\n{text}\n</tool_response><|im_end|>\n"
        elif role == "assistant":
            calls = [
                (call["function"]["name"], arguments_of(call["function"]))
                for call in message.get("tool_calls") or ()
            ]
            # The header is encoded separately, so that the text of a turn keeps the ids it was generated with.
            yield _GENERATION_PROMPT
            yield assistant_text(text, calls, render)
            yield "<|im_end|>\n"
        else:
            yield f"<|im_start|>{role}\n{text}<|im_end|>\n"
