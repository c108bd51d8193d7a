"""Reads request bodies of the OpenAI and the Anthropic chat API into ``Chat``, and numbers the history of a request.

What clients change from turn to turn without changing the conversation is left out: ``cache_control``, system blocks
that begin with ``x-anthropic-billing-header``, the order of keys in arguments, blanks around an assistant's text,
reasoning that is echoed or not, ids of calls. Pure.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from liverl.sessions.asked_fields import kind_of, merged, read_fields
from liverl.sessions.messages import BadRequest, Call, Chat, Message, Role, quoted, shared_items
from liverl.sessions.shared_tools import SHARED
from liverl.util.decode import JsonDecoder, decode_loose_json
from liverl.util.json_limits import JsonRefused, check_json
from liverl.util.unicode_text import without_surrogates

# Begins a system block that differs from request to request (Claude Code)
BILLING = "x-anthropic-billing-header"
# Half of a UTF-16 pair, as an escape and as bytes. The escape may also be of a whole pair, or behind a backslash.
_ESCAPED_HALF, _HALF = re.compile(rb"\\u[dD][89a-fA-F]"), re.compile(rb"\xed[\xa0-\xbf]")
_decode = JsonDecoder().decode
_KEPT_ARGUMENTS = 1024  # letters of the arguments of a call that are kept in their one spelling, at most
# What OpenAI's API has of a reply, beside its text and calls -> what to do instead. Nothing of the history is left out
# in silence: the next reply would be to another one.
_NOT_IN_A_REPLY = {"function_call": "send it as tool_calls", "audio": "send its transcript as content"}
_TOOL_CHOICE = {"auto": "auto", "any": "required", "none": "none"}  # Anthropic's word -> OpenAI's


def read_body(data: bytes) -> dict[str, Any]:
    """Parse a request body. Lone surrogates, which no tokenizer takes, become U+FFFD.

    Raises:
        BadRequest: it is not a JSON object.
    """
    try:
        check_json(data)
        body, strict = read_strict(data)
        if not strict:
            body = decode_loose_json(data, shallow=True)
    except JsonRefused as error:
        raise BadRequest(str(error)) from None
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest(f"the body is {kind_of(body)}, not a JSON object")
    if not strict and _may_have_surrogates(data):
        try:
            cleaned: dict[str, Any] = without_surrogates(body, "\ufffd")
        except RecursionError:
            raise BadRequest("the body is nested too deeply") from None
        return cleaned
    return body


def read_strict(data: bytes) -> tuple[Any, bool]:
    """(what the body is, whether it is JSON in UTF-8 by the letter): then a faster parser reads it, and no text of it
    can have a lone surrogate."""
    try:
        return _decode(data, shallow=True), True
    except ValueError:
        return None, False


def _may_have_surrogates(data: bytes) -> bool:
    """Whether a body may have one; a search costs a tenth of looking at each text of it."""
    if b"\0" in data[:4]:  # UTF-16 has them in other bytes
        return True
    return bool(_ESCAPED_HALF.search(data) or (b"\xed" in data and _HALF.search(data)))


def read_openai(body: Mapping[str, Any], messages: Sequence[Message] | None = None) -> Chat:
    """Read the body of ``POST /v1/chat/completions``. ``messages``: those of the body, where they were read already.

    Raises:
        BadRequest: a field is missing, of the wrong type, or asks for what a session cannot do.
    """
    wanted, body = read_fields(body, "openai"), merged(body)
    if messages is None:
        messages = [openai_message_of(item, at) for item, at in _messages_of(body)]
    options = body.get("stream_options")
    choice = _openai_choice(body.get("tool_choice"))
    return Chat(
        messages=ready(messages),
        tools=tuple(_openai_tools(body.get("tools"))),
        tool_choice=choice,
        model=_optional(body, "model", str) or "",
        stream=_flag(body, "stream"),
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=_count(body, "max_completion_tokens") or _count(body, "max_tokens"),
        stop=_strings(body.get("stop"), "stop"),
        logprobs=_flag(body, "logprobs"),
        one_call=body.get("parallel_tool_calls") is not None and not _flag(body, "parallel_tool_calls"),
        asked=wanted.asked,
        extra=wanted.extra,
        changes=(*wanted.changes, *_forced(choice)),
        ignored=wanted.ignored,
    )


def read_anthropic(body: Mapping[str, Any], messages: Sequence[Message] | None = None) -> Chat:
    """Read the body of ``POST /v1/messages`` or ``/v1/messages/count_tokens``. ``messages``: those of the body, where
    they were read already.

    Raises:
        BadRequest: see ``read_openai``.
    """
    wanted, body = read_fields(body, "anthropic"), merged(body)
    system = _system(body.get("system"))
    if messages is None:
        messages = [each for item, at in _messages_of(body) for each in anthropic_messages_of(item, at)]
    if system:
        messages = [Message("system", system), *messages]
    choice = _anthropic_choice(body.get("tool_choice"))
    return Chat(
        messages=ready(messages),
        tools=tuple(_anthropic_tools(body.get("tools"))),
        tool_choice=choice,
        model=_optional(body, "model", str) or "",
        stream=_flag(body, "stream"),
        usage=True,
        max_tokens=_count(body, "max_tokens"),
        stop=_strings(body.get("stop_sequences"), "stop_sequences"),
        one_call=_one_call(body.get("tool_choice")),
        asked=wanted.asked,
        extra=wanted.extra,
        changes=(*wanted.changes, *_forced(choice)),
        ignored=wanted.ignored,
    )


def openai_message_of(item: Mapping[str, Any], at: str) -> Message:
    """One message of a body of OpenAI's API. ``at``: its path.

    Raises:
        BadRequest: see ``read_openai``.
    """
    role = _string(item, "role", at)
    text = _text(item.get("content"), f"{at}.content")
    if role in ("system", "developer"):
        return Message("system", text)
    if role == "user":
        return Message("user", text)
    if role == "tool":
        return Message("tool", text, call_id=str(item.get("tool_call_id") or ""))
    if role == "assistant":
        reasoning = item.get("reasoning_content") or item.get("reasoning")
        calls = _openai_calls(item.get("tool_calls"), at)
        for key, instead in _NOT_IN_A_REPLY.items():
            if item.get(key) is not None:
                raise BadRequest(f"{key} of a reply cannot be sent to the policy: {instead}", f"{at}.{key}")
        if isinstance(item.get("refusal"), str):
            text = "\n".join(each for each in (text, item["refusal"]) if each)
        return Message("assistant", text, reasoning if isinstance(reasoning, str) else "", calls)
    raise BadRequest(
        f"role {quoted(role)} is not one of system, developer, user, assistant, tool", f"{at}.role"
    )


def anthropic_messages_of(item: Mapping[str, Any], at: str) -> list[Message]:
    """What one message of a body of Anthropic's API is: several where it has results of tools. ``at``: its path.

    Raises:
        BadRequest: see ``read_openai``.
    """
    role = _string(item, "role", at)
    if role not in ("user", "assistant", "system"):
        raise BadRequest(f"role {quoted(role)} is not one of user, assistant, system", f"{at}.role")
    content = item.get("content")
    if isinstance(content, str):
        return [Message(_role(role), content)]
    if role == "assistant":
        return [_anthropic_reply(_blocks(content, at), at)]
    if role == "user":
        return [*_anthropic_input(_blocks(content, at), at)]
    return [Message("system", _system(content))]


def arguments_text(value: Any) -> str:
    """The arguments of a call as JSON text in one spelling, their keys in the order in which they came; text that is no
    JSON object stays as it is. Numbers that JSON does not have are text: "NaN", "Infinity", "-Infinity"."""
    if isinstance(value, str):
        return _known_arguments(value) if len(value) <= _KEPT_ARGUMENTS else _arguments_of(value)
    return _dumped(value, ensure_ascii=False, separators=(",", ":"))


def _arguments_of(text: str) -> str:
    try:
        parsed = decode_loose_json(text)
    except ValueError:
        return text
    if not isinstance(parsed, dict):
        return text
    if "\\u" in text:
        parsed = without_surrogates(parsed, "\ufffd")
    return _dumped(parsed, ensure_ascii=False, separators=(",", ":"))


# Each request repeats the calls of its history.
_known_arguments = lru_cache(maxsize=4096)(_arguments_of)


def _dumped(value: Any, **options: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    """A parsed JSON value with text for numbers that are not finite, such as ``NaN`` and ``1e999``."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _sorted(arguments: str) -> str:
    """The arguments with sorted keys, for a comparison: a client may have put them into another order."""
    try:
        return _dumped(decode_loose_json(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def object_text(value: Any) -> str:
    """Like ``arguments_text``; what is no JSON object becomes one with the key ``arguments``, since Anthropic's API has
    nothing else, and since what a client echoes must be what it was sent."""
    text = arguments_text(value)
    return text if _is_object(text) else arguments_text({"arguments": text})


def _is_object(text: str) -> bool:
    try:
        return isinstance(decode_loose_json(text), dict)
    except ValueError:
        return False


def heads(chat: Chat, lane: str = "") -> list[bytes]:
    """The digest of the tools and the first ``n`` messages, for n = 0 .. all: equal for requests that share them.

    ``lane``: requests of different lanes never share a head.
    """
    every = [_first_head(chat.tools, lane)]
    for message in chat.messages:
        every.append(following(every[-1], message))
    return every


def _first_head(tools: Sequence[dict[str, Any]], lane: str) -> bytes:
    sorted_tools = json.dumps([lane, tools], sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(sorted_tools, digest_size=16).digest()


class HeadCache:
    """``heads`` for the requests of one session, each of which repeats the history: what it has of the one before is
    compared with that, which is faster than a digest by far. Of earlier ones only digests are kept, with Python's
    hashes of the messages."""

    MOST = 1000  # digests that are kept

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int], bytes] = {}
        # Lane and tools of the last request, and so on. As JSON 1 is not 1.0, and as they are NaN is not null.
        self._tools: tuple[str, bytes, Sequence[Any]] | None = None
        self._messages: Sequence[Message] = ()
        self._heads: list[bytes] = []

    def heads(self, chat: Chat, lane: str = "") -> list[bytes]:
        """See ``heads``."""
        known = self._tools
        if known is None or known[2] is not chat.tools or known[0] != lane:
            tools = lane, SHARED.json(chat.tools), chat.tools
            if tools != known:
                self._messages, self._heads = (), [_first_head(chat.tools, lane)]
            self._tools = tools
        shared = shared_items(chat.messages, self._messages)
        every = self._heads[: shared + 1]
        for message in chat.messages[shared:]:
            every.append(self._following(every[-1], message))
        self._messages, self._heads = chat.messages, every
        return every[:]

    def _following(self, head: bytes, message: Message) -> bytes:
        place = (head, hash(message))
        after = self._known.get(place)
        if after is None:
            if len(self._known) >= self.MOST:
                self._known.clear()
            after = self._known[place] = following(head, message)
        return after


def following(head: bytes, message: Message) -> bytes:
    """The digest after one more message."""
    text = message.text.strip() if message.role == "assistant" else message.text
    calls = [(call.name, _sorted(call.arguments)) for call in message.calls]
    encoded = msgspec.json.encode((message.role, text, calls))
    return hashlib.blake2b(head + encoded, digest_size=16).digest()


# -- both APIs


def _messages_of(body: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The messages of a body with their paths."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise BadRequest(f"messages is {kind_of(messages)}, not a list", "messages")
    if not messages:
        raise BadRequest("messages is empty", "messages")
    for index, item in enumerate(messages):
        if not isinstance(item, dict):
            raise BadRequest(f"a message is {kind_of(item)}, not an object", f"messages.{index}")
    return [(item, f"messages.{index}") for index, item in enumerate(messages)]


def ready(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages of a request.

    Raises:
        BadRequest: there is nothing to reply to.
    """
    if messages[-1].role == "assistant":
        last = f"messages.{len(messages) - 1}"
        raise BadRequest("the last message is the assistant's: a reply cannot be begun for the model", last)
    return tuple(messages)


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
            raise _unsupported(kind, "text", f"{at}.{index}.type")
        texts.append(_string(block, "refusal" if kind == "refusal" else "text", f"{at}.{index}"))
    return "\n".join(texts)


def _unsupported(kind: Any, supported: str, at: str) -> BadRequest:
    """Nothing of a message is left out in silence: the reply would be to another one."""
    what = "pictures" if isinstance(kind, str) and "image" in kind else f"content of type {quoted(kind)}"
    shown = "" if what.startswith("content") else f" (content of type {quoted(kind)})"
    return BadRequest(f"{at}: {what} cannot be sent to the policy{shown}, only {supported}", at)


def _blocks(content: Any, at: str) -> list[dict[str, Any]]:
    if content is None:
        return []
    if not isinstance(content, list) or any(not isinstance(block, dict) for block in content):
        raise BadRequest(f"content is {kind_of(content)}, not text or a list of blocks", at)
    return content


def _string(item: Mapping[str, Any], key: str, at: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise BadRequest(f"{key} is {kind_of(value)}, not text", f"{at}.{key}")
    return value


def _strings(value: Any, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or any(not isinstance(item, str) for item in values):
        raise BadRequest(f"{key} is {kind_of(value)}, not text or a list of texts", key)
    if "" in values:
        raise BadRequest(f"{key} has an empty text, which every reply begins with", key)
    return tuple(values)


def _forced(choice: Any) -> tuple[str, ...]:
    """The field that forces a call, if one is forced."""
    return () if choice in (None, "auto", "none") else ("tool_choice",)


def _optional(body: Mapping[str, Any], key: str, kind: type) -> Any:
    value = body.get(key)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise BadRequest(f"{key} is {kind_of(value)}, not {_NAMES[kind]}", key)
    return value


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{key} is {kind_of(value)}, not true or false", key)
    return bool(value)


def _count(body: Mapping[str, Any], key: str) -> int | None:
    value: int | None = _optional(body, key, int)
    if value is not None and value < 1:
        raise BadRequest(f"{key} is {quoted(value)}, not at least 1", key)
    return value


_NAMES: dict[type, str] = {str: "text", int: "a whole number"}


# -- OpenAI


def _openai_calls(items: Any, at: str) -> tuple[Call, ...]:
    if items is None:
        return ()
    if not isinstance(items, list):
        raise BadRequest(f"tool_calls is {kind_of(items)}, not a list", f"{at}.tool_calls")
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
        raise BadRequest(f"tools is {kind_of(items)}, not a list", "tools")
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
    raise BadRequest(f"tool_choice is {quoted(value)}, not auto, none, required or a function", "tool_choice")


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
            raise _unsupported(kind, "text, thinking and tool_use in a reply", f"{where}.type")
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
            raise _unsupported(kind, "text and tool_result", f"{where}.type")
    if texts or not blocks:
        yield Message("user", "\n".join(texts))


def _anthropic_tools(items: Any) -> Iterable[dict[str, Any]]:
    if items is None:
        return
    if not isinstance(items, list):
        raise BadRequest(f"tools is {kind_of(items)}, not a list", "tools")
    for index, item in enumerate(items):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise BadRequest("a tool has no name", f"tools.{index}")
        if not isinstance(item.get("input_schema"), dict):
            kind = item.get("type")
            raise BadRequest(
                f"tool {quoted(item['name'])} of type {quoted(kind)} has no input_schema",
                f"tools.{index}.input_schema",
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
    if not isinstance(kind, str) or kind not in _TOOL_CHOICE:
        raise BadRequest(
            f"tool_choice.type is {quoted(kind)}, not auto, any, tool or none", "tool_choice.type"
        )
    return _TOOL_CHOICE[kind]


def _one_call(choice: Any) -> bool:
    """Whether Anthropic's choice of tools allows one call only."""
    if not isinstance(choice, dict):
        return False
    value = choice.get("disable_parallel_tool_use")
    if value is not None and not isinstance(value, bool):
        at = "tool_choice.disable_parallel_tool_use"
        raise BadRequest(f"{at} is {kind_of(value)}, not true or false", at)
    return bool(value)
