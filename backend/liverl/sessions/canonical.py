"""Reads request bodies of the OpenAI and the Anthropic chat API into ``Chat``, and numbers the history of a request.

What clients change from turn to turn without changing the conversation is left out: ``cache_control``, system blocks
that begin with ``x-anthropic-billing-header``, the order of keys in arguments, blanks around an assistant's text,
reasoning that is echoed or not, ids of calls. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from liverl.sessions.messages import BadRequest, Call, Chat, Message, Role
from liverl.util.unicode_text import without_surrogates

BILLING = (
    "x-anthropic-billing-header"  # begins a system block that differs from request to request (Claude Code)
)
_TOOL_CHOICE = {"auto": "auto", "any": "required", "none": "none"}  # Anthropic's word -> OpenAI's


def read_body(data: bytes) -> dict[str, Any]:
    """Parse a request body. Lone surrogates, which no tokenizer takes, become U+FFFD.

    Raises:
        BadRequest: it is not a JSON object.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest(f"the body is {_kind(body)}, not a JSON object")
    if b"\\u" in data or b"\xed" in data:
        cleaned: dict[str, Any] = without_surrogates(body, "\ufffd")
        return cleaned
    return body


def read_openai(body: Mapping[str, Any]) -> Chat:
    """Read the body of ``POST /v1/chat/completions``.

    Raises:
        BadRequest: a field is missing, of the wrong type, or asks for what a session cannot do.
    """
    _refuse_several(body)
    if body.get("functions"):
        raise BadRequest("functions is not supported; pass them as tools", "functions")
    messages = []
    for index, item in enumerate(_messages_of(body)):
        at = f"messages.{index}"
        role = _string(item, "role", at)
        text = _text(item.get("content"), f"{at}.content")
        if role in ("system", "developer"):
            messages.append(Message("system", text))
        elif role == "user":
            messages.append(Message("user", text))
        elif role == "tool":
            messages.append(Message("tool", text, call_id=str(item.get("tool_call_id") or "")))
        elif role == "assistant":
            reasoning = item.get("reasoning_content") or item.get("reasoning")
            calls = _openai_calls(item.get("tool_calls"), at)
            messages.append(
                Message("assistant", text, reasoning if isinstance(reasoning, str) else "", calls)
            )
        else:
            raise BadRequest(
                f"role {role!r} is not one of system, developer, user, assistant, tool", f"{at}.role"
            )
    options = body.get("stream_options")
    return Chat(
        messages=_ready(messages),
        tools=tuple(_openai_tools(body.get("tools"))),
        tool_choice=_openai_choice(body.get("tool_choice")),
        model=_optional(body, "model", str) or "",
        stream=bool(body.get("stream")),
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=_count(body, "max_completion_tokens") or _count(body, "max_tokens"),
        temperature=_number(body, "temperature"),
        top_p=_number(body, "top_p"),
        top_k=_optional(body, "top_k", int),
        stop=_strings(body.get("stop"), "stop"),
        seed=_optional(body, "seed", int),
    )


def read_anthropic(body: Mapping[str, Any]) -> Chat:
    """Read the body of ``POST /v1/messages`` or ``/v1/messages/count_tokens``.

    Raises:
        BadRequest: see ``read_openai``.
    """
    _refuse_several(body)
    messages = []
    system = _system(body.get("system"))
    if system:
        messages.append(Message("system", system))
    for index, item in enumerate(_messages_of(body)):
        at = f"messages.{index}"
        role = _string(item, "role", at)
        if role not in ("user", "assistant", "system"):
            raise BadRequest(f"role {role!r} is not one of user, assistant, system", f"{at}.role")
        content = item.get("content")
        if isinstance(content, str):
            messages.append(Message(_role(role), content))
        elif role == "assistant":
            messages.append(_anthropic_reply(_blocks(content, at), at))
        elif role == "user":
            messages.extend(_anthropic_input(_blocks(content, at), at))
        else:
            messages.append(Message("system", _system(content)))
    return Chat(
        messages=_ready(messages),
        tools=tuple(_anthropic_tools(body.get("tools"))),
        tool_choice=_anthropic_choice(body.get("tool_choice")),
        model=_optional(body, "model", str) or "",
        stream=bool(body.get("stream")),
        usage=True,
        max_tokens=_count(body, "max_tokens"),
        temperature=_number(body, "temperature"),
        top_p=_number(body, "top_p"),
        top_k=_optional(body, "top_k", int),
        stop=_strings(body.get("stop_sequences"), "stop_sequences"),
    )


def arguments_text(value: Any) -> str:
    """The arguments of a call as JSON text in one spelling, their keys in the order in which they came; text that is no
    JSON object stays as it is."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if not isinstance(parsed, dict):
            return value
        value = parsed
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sorted(arguments: str) -> str:
    """The arguments with sorted keys, for a comparison: a client may have put them into another order."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def object_text(value: Any) -> str:
    """Like ``arguments_text``; what is no JSON object becomes one with the key ``arguments``, since Anthropic's API has
    nothing else, and since what a client echoes must be what it was sent."""
    text = arguments_text(value)
    return text if _is_object(text) else arguments_text({"arguments": text})


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def heads(chat: Chat, lane: str = "") -> list[bytes]:
    """The digest of the tools and the first ``n`` messages, for n = 0 .. all: equal for requests that share them.

    ``lane``: requests of different lanes never share a head.
    """
    tools = json.dumps([lane, chat.tools], sort_keys=True, separators=(",", ":")).encode()
    head = hashlib.blake2b(tools, digest_size=16).digest()
    every = [head]
    for message in chat.messages:
        head = following(head, message)
        every.append(head)
    return every


def following(head: bytes, message: Message) -> bytes:
    """The digest after one more message."""
    text = message.text.strip() if message.role == "assistant" else message.text
    calls = [(call.name, _sorted(call.arguments)) for call in message.calls]
    encoded = msgspec.json.encode((message.role, text, calls))
    return hashlib.blake2b(head + encoded, digest_size=16).digest()


# -- both APIs


def _messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise BadRequest(f"messages is {_kind(messages)}, not a list", "messages")
    if not messages:
        raise BadRequest("messages is empty", "messages")
    for index, item in enumerate(messages):
        if not isinstance(item, dict):
            raise BadRequest(f"a message is {_kind(item)}, not an object", f"messages.{index}")
    return messages


def _ready(messages: Sequence[Message]) -> tuple[Message, ...]:
    if messages[-1].role == "assistant":
        last = f"messages.{len(messages) - 1}"
        raise BadRequest("the last message is the assistant's: a reply cannot be begun for the model", last)
    return tuple(messages)


def _refuse_several(body: Mapping[str, Any]) -> None:
    n = body.get("n")
    if n not in (None, 1):
        raise BadRequest(f"{n!r} replies are asked for; a session samples one at a time", "n")


def _text(content: Any, at: str) -> str:
    """Text, or the texts of a list of parts joined by newlines."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for index, block in enumerate(_blocks(content, at)):
        kind = block.get("type")
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise BadRequest(f"content of type {kind!r} is not supported, only text", f"{at}.{index}.type")
        texts.append(_string(block, "refusal" if kind == "refusal" else "text", f"{at}.{index}"))
    return "\n".join(texts)


def _blocks(content: Any, at: str) -> list[dict[str, Any]]:
    if content is None:
        return []
    if not isinstance(content, list) or any(not isinstance(block, dict) for block in content):
        raise BadRequest(f"content is {_kind(content)}, not text or a list of blocks", at)
    return content


def _string(item: Mapping[str, Any], key: str, at: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise BadRequest(f"{key} is {_kind(value)}, not text", f"{at}.{key}")
    return value


def _strings(value: Any, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or any(not isinstance(item, str) for item in values):
        raise BadRequest(f"{key} is {_kind(value)}, not text or a list of texts", key)
    return tuple(values)


def _optional(body: Mapping[str, Any], key: str, kind: type) -> Any:
    value = body.get(key)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise BadRequest(f"{key} is {_kind(value)}, not {_NAMES[kind]}", key)
    return value


def _number(body: Mapping[str, Any], key: str) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise BadRequest(f"{key} is {value!r}, not a number of at least 0", key)
    return float(value)


def _count(body: Mapping[str, Any], key: str) -> int | None:
    value: int | None = _optional(body, key, int)
    if value is not None and value < 1:
        raise BadRequest(f"{key} is {value}, not at least 1", key)
    return value


_NAMES: dict[type, str] = {str: "text", int: "a whole number"}


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


# -- OpenAI


def _openai_calls(items: Any, at: str) -> tuple[Call, ...]:
    if items is None:
        return ()
    if not isinstance(items, list):
        raise BadRequest(f"tool_calls is {_kind(items)}, not a list", f"{at}.tool_calls")
    calls = []
    for index, item in enumerate(items):
        where = f"{at}.tool_calls.{index}"
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict):
            raise BadRequest("a tool call has no function", where)
        name = _string(function, "name", f"{where}.function")
        calls.append(Call(str(item.get("id") or ""), name, arguments_text(function.get("arguments") or "{}")))
    return tuple(calls)


def _openai_tools(items: Any) -> Iterable[dict[str, Any]]:
    if items is None:
        return
    if not isinstance(items, list):
        raise BadRequest(f"tools is {_kind(items)}, not a list", "tools")
    for index, item in enumerate(items):
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest("a tool has no function with a name", f"tools.{index}")
        yield {"type": "function", "function": function}


def _openai_choice(value: Any) -> str | dict[str, Any] | None:
    if value is None or value in ("auto", "none", "required"):
        return value if isinstance(value, str) else None
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        return {
            "type": "function",
            "function": {"name": _string(value["function"], "name", "tool_choice.function")},
        }
    raise BadRequest(f"tool_choice is {value!r}, not auto, none, required or a function", "tool_choice")


# -- Anthropic


def _role(role: str) -> Role:
    return "assistant" if role == "assistant" else "user" if role == "user" else "system"


def _system(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    texts = [
        _string(block, "text", f"system.{index}") for index, block in enumerate(_blocks(value, "system"))
    ]
    return "\n".join(text for text in texts if not text.startswith(BILLING))


def _anthropic_reply(blocks: Sequence[dict[str, Any]], at: str) -> Message:
    texts, thoughts, calls = [], [], []
    for index, block in enumerate(blocks):
        kind, where = block.get("type"), f"{at}.content.{index}"
        if kind == "text":
            texts.append(_string(block, "text", where))
        elif kind == "thinking":
            thoughts.append(_string(block, "thinking", where))
        elif kind == "tool_use":
            name, given = _string(block, "name", where), block.get("input")
            calls.append(
                Call(str(block.get("id") or ""), name, arguments_text({} if given is None else given))
            )
        elif kind != "redacted_thinking":
            raise BadRequest(f"content of type {kind!r} is not supported in a reply", f"{where}.type")
    return Message("assistant", "\n".join(texts), "\n".join(thoughts), tuple(calls))


def _anthropic_input(blocks: Sequence[dict[str, Any]], at: str) -> Iterable[Message]:
    """The messages of the user's blocks, in their order: one per tool result, one per run of texts."""
    texts: list[str] = []
    for index, block in enumerate(blocks):
        kind, where = block.get("type"), f"{at}.content.{index}"
        if kind == "text":
            texts.append(_string(block, "text", where))
        elif kind == "tool_result":
            if texts:
                yield Message("user", "\n".join(texts))
                texts = []
            content = block.get("content")
            yield Message(
                "tool", _text(content, f"{where}.content"), call_id=str(block.get("tool_use_id") or "")
            )
        else:
            raise BadRequest(
                f"content of type {kind!r} is not supported, only text and tool_result", f"{where}.type"
            )
    if texts or not blocks:
        yield Message("user", "\n".join(texts))


def _anthropic_tools(items: Any) -> Iterable[dict[str, Any]]:
    if items is None:
        return
    if not isinstance(items, list):
        raise BadRequest(f"tools is {_kind(items)}, not a list", "tools")
    for index, item in enumerate(items):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise BadRequest("a tool has no name", f"tools.{index}")
        if not isinstance(item.get("input_schema"), dict):
            kind = item.get("type")
            raise BadRequest(
                f"tool {item['name']!r} of type {kind!r} has no input_schema", f"tools.{index}.input_schema"
            )
        # In the order of OpenAI's examples: templates write a tool as it stands.
        function = {"name": item["name"]}
        if isinstance(item.get("description"), str):
            function["description"] = item["description"]
        function["parameters"] = item["input_schema"]
        yield {"type": "function", "function": function}


def _anthropic_choice(value: Any) -> str | dict[str, Any] | None:
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "tool":
        return {"type": "function", "function": {"name": _string(value, "name", "tool_choice")}}
    if kind not in _TOOL_CHOICE:
        raise BadRequest(f"tool_choice.type is {kind!r}, not auto, any, tool or none", "tool_choice.type")
    return _TOOL_CHOICE[kind]
