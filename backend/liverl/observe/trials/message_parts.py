"""Splits chat messages in OpenAI's or Anthropic's format into parts. Pure."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder, Undecodable, decode_loose_json
from liverl.util.unicode_text import without_surrogates

PartKind = Literal["system", "user", "text", "reasoning", "call", "result", "error"]
_FORGOTTEN = ("reasoning_content", "reasoning", "thinking_blocks", "provider_specific_fields")
_decode = JsonDecoder().decode


class Part(msgspec.Struct, frozen=True):
    """A piece of a conversation.

    ``text``: unchanged, control characters included; for a tool call its arguments, indented if they are
    JSON.
    """

    kind: PartKind
    text: str
    name: str = ""  # tool that is called or that returned the result
    call_id: str = ""
    failed: bool = False  # the arguments are not a JSON object, or the result is an error


def loads(data: bytes) -> Any:
    """Decode JSON as Python writes it: NaN becomes None, lone surrogates ``?``. Return None if it is invalid."""
    try:
        return _decode(data)
    except BAD_JSON:
        pass
    try:
        return without_surrogates(decode_loose_json(data.decode("utf-8", "replace"), none_for_nan=True))
    except Undecodable:
        return None


def message_parts(message: object, names: dict[str, str]) -> list[Part]:
    """Return the parts of one message. ``names``: tool names by call id; calls of the message are added."""
    if not isinstance(message, dict):
        return []
    role = message.get("role")
    if role == "assistant":
        parts = _assistant(message)
    elif role in ("tool", "function"):
        call_id = _str(message.get("tool_call_id"))
        name = _str(message.get("name"))
        parts = [Part("result", content_text(message.get("content")), name, call_id)]
    else:
        kind: PartKind = "system" if role in ("system", "developer") else "user"
        parts = _blocks(message.get("content"), kind)
    for part in parts:
        if part.kind == "call" and part.call_id:
            names[part.call_id] = part.name
    return [
        msgspec.structs.replace(part, name=names.get(part.call_id, ""))
        if part.kind == "result" and not part.name
        else part
        for part in parts
    ]


def _assistant(message: dict[str, Any]) -> list[Part]:
    parts = []
    for key in ("reasoning_content", "reasoning"):
        if isinstance(thought := message.get(key), str) and thought.strip():
            parts.append(Part("reasoning", thought))
            break
    else:
        parts += _blocks(message.get("thinking_blocks"), "text")
    thoughts = {part.text for part in parts}
    parts += [
        part
        for part in _blocks(message.get("content"), "text")
        if part.kind != "reasoning" or part.text not in thoughts
    ]
    parts += _blocks(message.get("refusal"), "text")
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict):
            function = call.get("function")
            parts.append(_call(function if isinstance(function, dict) else call, _str(call.get("id"))))
    if isinstance(function := message.get("function_call"), dict):
        parts.append(_call(function, ""))
    return parts


def _call(function: dict[str, Any], call_id: str) -> Part:
    text, is_object = pretty_arguments(function.get("arguments", function.get("input")))
    return Part("call", text, _str(function.get("name")), call_id, failed=not is_object)


def _blocks(content: object, kind: PartKind) -> list[Part]:
    """Return the parts of a message's content: one text, or a list of blocks."""
    if isinstance(content, str):
        return [Part(kind, content)] if content.strip() else []
    if not isinstance(content, list):
        return []
    parts: list[Part] = []
    for block in content:
        if isinstance(block, str):
            parts.append(Part(kind, block))
            continue
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "tool_use":
                parts.append(_call(block, _str(block.get("id"))))
            case "tool_result":
                text, failed = content_text(block.get("content")), block.get("is_error") is True
                parts.append(Part("result", text, "", _str(block.get("tool_use_id")), failed))
            case "thinking":
                parts.append(Part("reasoning", _str(block.get("thinking"))))
            case "redacted_thinking":
                parts.append(Part("reasoning", "[redacted by the model's provider]"))
            case _:
                if text := content_text([block]):
                    parts.append(Part(kind, text))
    return parts


def content_text(content: object) -> str:
    """Return a content as text; other blocks appear as their type: ``[image]``."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    texts = []
    for block in content:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict):
            text = block.get("text")
            texts.append(text if isinstance(text, str) else f"[{block.get('type') or 'unknown block'}]")
    return "\n".join(texts)


def pretty_arguments(arguments: object) -> tuple[str, bool]:
    """Return (arguments of a call as indented JSON, whether they are a JSON object); unchanged if they are
    not JSON."""
    if arguments is None or arguments == "":
        return "{}", True
    if isinstance(arguments, str):
        decoded = loads(arguments.encode("utf-8", "replace"))
        if decoded is None:
            return arguments, False
        arguments = decoded
    return json.dumps(arguments, ensure_ascii=False, indent=2), isinstance(arguments, dict)


def answer_message(response: object) -> tuple[dict[str, Any] | None, str | None]:
    """Return (the assistant's message, its finish reason) of a response in either format."""
    if isinstance(response, str):
        return {"role": "assistant", "content": response}, None
    if not isinstance(response, dict):
        return None, None
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choice := choices[0], dict):
        finish = choice.get("finish_reason")
        message = choice.get("message")
        if not isinstance(message, dict):
            message = {"content": choice["text"]} if isinstance(choice.get("text"), str) else None
    else:
        finish = response.get("stop_reason")
        content = response.get("content")
        message = {"content": content} if isinstance(content, str | list) else None
    reason = finish if isinstance(finish, str) else None
    return ({**message, "role": "assistant"} if message is not None else None), reason


def same_message(a: bytes, b: bytes) -> bool:
    """Whether messages of two requests are the same. Clients may resend a message in another form: with cache
    marks, as blocks instead of text, without its reasoning."""
    return a == b or _essence(loads(a)) == _essence(loads(b))


def _essence(message: object) -> object:
    if not isinstance(message, dict):
        return message
    kept = {k: _unmarked(v) for k, v in message.items() if k not in _FORGOTTEN and v not in (None, [], "")}
    content = kept.pop("content", None)
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if isinstance(content, list):
        content = [b for b in content if not (isinstance(b, dict) and b.get("type") in _THOUGHTS)]
    return {**kept, "content": content or None}


_THOUGHTS = ("thinking", "redacted_thinking")


def _unmarked(value: object) -> object:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""
