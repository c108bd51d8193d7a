"""Decides whether the body of a request to the policy is one that LiteLLM can work with.

LiteLLM answers many invalid bodies with 500 and a traceback, and client libraries repeat a request that was answered
with 500. What is refused here is answered with 400 and one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from liverl.util.json_limits import MAX_TOKEN_VALUES, MAX_VALUES, JsonRefused, check_json

_TOLD = 120  # maximum characters of a value or a parser's words in a message
# LiteLLM refuses them with a traceback: they would send a request, and a key, to an address that a client names.
_NOT_FOR_CLIENTS = ("api_base", "base_url", "user_config")
# In extra_body these would take the place of those beside it: LiteLLM would ask the engine with one conversation, and
# the record would show another one.
_NOT_INSIDE = ("messages", "prompt", "system", "tools", "model", "stream")


class InvalidBody(ValueError):
    """LiteLLM cannot work with a body; the message says why in one sentence."""


def read_body(path: str, data: bytes) -> dict[str, Any]:
    """``data``, the body of a POST to ``path``.

    Raises:
        InvalidBody: see there.
    """
    try:
        check_json(data, MAX_TOKEN_VALUES if _takes_tokens(path) else MAX_VALUES)
        body = json.loads(data.decode("utf-8"))
    except JsonRefused as error:
        raise InvalidBody(str(error)) from None
    except UnicodeDecodeError as error:
        words = f"the request body is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}"
        raise InvalidBody(words) from None
    except (ValueError, RecursionError) as error:
        raise InvalidBody(f"the request body is not JSON: {_short(str(error))}") from None
    if not isinstance(body, dict):
        raise InvalidBody(f"the request body must be a JSON object, not {_kind(body)}")
    why = _why_invalid(path, body)
    if why is not None:
        raise InvalidBody(why)
    return body


def encoded(body: Mapping[str, Any]) -> bytes:
    """``body`` as JSON. A lone surrogate, which a client sent as an escape, is one again."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def _takes_tokens(path: str) -> bool:
    return path.endswith("/completions") and "chat" not in path


def _why_invalid(path: str, body: dict[str, Any]) -> str | None:
    for key in _NOT_FOR_CLIENTS:
        if key in body:
            return f"{key} must not be set by a request"
    inner = body.get("extra_body")
    for key in _NOT_INSIDE:
        if isinstance(inner, dict) and key in inner:
            return f"extra_body must not have {key}: send it beside extra_body"
    fields = _COMPLETION if _takes_tokens(path) else _MESSAGES
    for name, (required, expected, accepts) in (_COMMON | fields).items():
        value = body.get(name)
        if value is None and not required:
            continue
        if not accepts(value):
            return f"{name} must be {expected}, but {_found(name, body, accepts)}"
    return None


def _found(name: str, body: dict[str, Any], accepts: Callable[[Any], bool]) -> str:
    """What ``body`` has there; of a list of objects, the first item that is wrong."""
    if name not in body:
        return "it is missing"
    value = body[name]
    if name in ("messages", "tools") and isinstance(value, list):
        index = next(index for index, item in enumerate(value) if not accepts([item]))
        return f"{name}[{index}] is {_short(json.dumps(value[index]))}"
    return f"it is {_short(json.dumps(value))}"


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _text_or_objects(value: Any) -> bool:
    return value is None or isinstance(value, str) or _objects(value)


def _messages(value: Any) -> bool:
    return _objects(value) and all(
        _text_or_objects(message.get("content"))
        and (message.get("tool_calls") is None or _objects(message["tool_calls"]))
        for message in value
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _choice(value: Any) -> bool:
    return isinstance(value, str | dict)


def _prompt(value: Any) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, list) and (
        all(isinstance(item, str) for item in value)
        or _tokens(value)
        or all(isinstance(item, list) and _tokens(item) for item in value)
    )


def _tokens(value: list[Any]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)


# name -> (required, expected, test)
_Field = tuple[bool, str, Callable[[Any], bool]]
_COMMON: dict[str, _Field] = {
    "model": (True, "a string", _text),
    "stream": (False, "true or false", lambda value: isinstance(value, bool)),
    "timeout": (False, "a number of seconds", _number),
    "extra_body": (False, "an object", _object),
    "headers": (False, "an object", _object),
    "extra_headers": (False, "an object", _object),
}
_MESSAGES: dict[str, _Field] = {
    "messages": (
        True,
        "a list of objects whose content is a string, null or a list of objects, and whose tool_calls is a list of "
        "objects",
        _messages,
    ),
    "tools": (False, "a list of objects", _objects),
    "tool_choice": (False, "a string or an object", _choice),
    "response_format": (False, "an object", _object),
}
_COMPLETION: dict[str, _Field] = {
    "prompt": (True, "a string, a list of strings, a list of token ids or a list of such lists", _prompt),
}


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")


def _short(text: str) -> str:
    plain = "".join(c if c.isprintable() else "?" for c in text)
    return plain if len(plain) <= _TOLD else plain[: _TOLD - 1] + "…"
