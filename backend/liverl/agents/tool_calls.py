"""How models write tool calls, and how the engine's parsers read them.

Two formats: Qwen3-Coder's XML and Hermes' JSON. The parsers follow vLLM's ``Qwen3CoderToolParser`` and
``Hermes2ProToolParser``: given the other format, a parser finds no call and returns the raw text as content;
Hermes also logs a JSONDecodeError, as both formats start with ``<tool_call>``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from liverl.util.decode import decode_loose_json

logger = logging.getLogger(__name__)

_OPEN = "<tool_call>"
_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)
_QWEN_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*?)$", re.DOTALL)
_QWEN_FUNCTION = re.compile(r"<function=(.*?)</function>|<function=(.*)$", re.DOTALL)
_QWEN_PARAMETER = re.compile(r"<parameter=(.*?)(?:</parameter>|(?=<parameter=)|(?=</function>)|$)", re.DOTALL)


class ToolCall(NamedTuple):
    """A parsed tool call."""

    name: str
    arguments: str  # JSON text of an object


class Parsed(NamedTuple):
    """``content`` is the text outside of the calls, or the whole raw text if there are none."""

    content: str | None
    calls: tuple[ToolCall, ...]


def render_qwen3_coder(name: str, arguments: Mapping[str, Any]) -> str:
    """Return ``<tool_call>`` with ``<function=..>`` and one ``<parameter=..>`` per argument."""
    body = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def render_hermes(name: str, arguments: Mapping[str, Any]) -> str:
    """Return ``<tool_call>`` with one JSON object."""
    text = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


def parse_hermes(text: str, tools: Sequence[Mapping[str, Any]]) -> Parsed:
    """Parse the calls in ``text``, all or none: one block that is not JSON hides all calls of the turn."""
    if _OPEN not in text:
        return Parsed(text, ())
    try:
        blocks = [decode_loose_json(closed or rest) for closed, rest in _HERMES.findall(text)]
        calls = tuple(
            ToolCall(block["name"], json.dumps(block["arguments"], ensure_ascii=False)) for block in blocks
        )
    except (ValueError, KeyError, TypeError):
        logger.exception("Error in extracting tool call from response.")
        return Parsed(text, ())
    return Parsed(text[: text.find(_OPEN)] or None, calls)


def parse_qwen3_coder(text: str, tools: Sequence[Mapping[str, Any]]) -> Parsed:
    """Parse the calls in ``text``; arguments are converted according to the schema in ``tools``."""
    if "<function=" not in text:
        return Parsed(text, ())
    blocks = [closed or rest for closed, rest in _QWEN_BLOCK.findall(text)] or [text]
    functions = [closed or rest for block in blocks for closed, rest in _QWEN_FUNCTION.findall(block)]
    if not functions:
        return Parsed(text, ())
    try:
        calls = tuple(_qwen_call(function, tools) for function in functions)
    except ValueError:
        logger.exception("Error in extracting tool call from response.")
        return Parsed(text, ())
    start = text.find(_OPEN)
    return Parsed(text[: start if start >= 0 else text.find("<function=")] or None, calls)


def _qwen_call(function: str, tools: Sequence[Mapping[str, Any]]) -> ToolCall:
    end = function.index(">")
    name, types = function[:end], _parameter_types(function[:end], tools)
    arguments = {}
    for parameter in _QWEN_PARAMETER.findall(function[end + 1 :]):
        end_of_key = parameter.index(">")
        key, value = parameter[:end_of_key], parameter[end_of_key + 1 :]
        value = value.removeprefix("\n").removesuffix("\n")
        arguments[key] = _convert(value, types.get(key, "string"))
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def _parameter_types(name: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    for tool in tools:
        function = tool.get("function") or {}
        if function.get("name") == name:
            properties = (function.get("parameters") or {}).get("properties") or {}
            return {k: str(v.get("type", "string")) for k, v in properties.items() if isinstance(v, dict)}
    return {}


def _convert(value: str, kind: str) -> Any:
    if value.lower() == "null":
        return None
    if kind in ("string", "str", "text", "enum"):
        return value
    try:
        return decode_loose_json(value.lower() if kind.startswith("bool") else value)
    except ValueError:
        return value


Renderer = Callable[[str, Mapping[str, Any]], str]
Parser = Callable[[str, Sequence[Mapping[str, Any]]], Parsed]

RENDERERS: dict[str, Renderer] = {"hermes": render_hermes, "qwen3_coder": render_qwen3_coder}
PARSERS: dict[str, Parser] = {"hermes": parse_hermes, "qwen3_coder": parse_qwen3_coder}


def split_renderers(parser: Parser) -> tuple[list[Renderer], list[Renderer]]:
    """Return (renderers whose text ``parser`` can read, the others), determined by trying each."""
    was_disabled = logger.disabled
    logger.disabled = True  # failures of this check must not be logged
    try:
        reads = [r for r in RENDERERS.values() if parser(r("probe", {"key": "value"}), ()).calls]
    finally:
        logger.disabled = was_disabled
    return reads, [r for r in RENDERERS.values() if r not in reads]
