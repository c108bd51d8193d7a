"""Detects tool-call formats in text, to explain why a trial called no tool. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PARSER_KEY = "model.tool_parser"  # key in config.yaml


@dataclass(frozen=True)
class ToolFormat:
    """A format in which models write tool calls. ``parsers``: names of vLLM's parsers for it."""

    title: str
    mark: str  # its characteristic text, as shown
    parsers: tuple[str, ...]
    pattern: re.Pattern[str]


def _format(title: str, mark: str, parsers: str, pattern: str) -> ToolFormat:
    return ToolFormat(title, mark, tuple(parsers.split()), re.compile(pattern))


FORMATS: tuple[ToolFormat, ...] = (
    _format(
        "Qwen3-Coder XML", "<function=...>", "qwen3_coder qwen3_xml", r"<function=[^\s>]|<parameter=[^\s>]"
    ),
    _format("Hermes JSON", '<tool_call>{"name": ...}', "hermes", r"<tool_call>\s*\{"),
    _format("GLM", "<tool_call>name<arg_key>", "glm45 glm47", r"<arg_key>"),
    _format("Kimi K2", "<|tool_call_begin|>", "kimi_k2", r"<\|tool_calls?(?:_section)?_begin\|>"),
    _format("DeepSeek", "<｜tool▁call▁begin｜>", "deepseek_v3 deepseek_v31", r"<｜tool▁calls?▁begin｜>"),
    _format("Mistral", "[TOOL_CALLS]", "mistral", r"\[TOOL_CALLS\]"),
    _format("Llama 3 JSON", "<|python_tag|>", "llama3_json", r"<\|python_tag\|>"),
    _format("MiniMax M2", "<minimax:tool_call>", "minimax_m2", r"<minimax:tool_call>"),
    _format("Harmony", "to=functions.name", "openai", r"<\|channel\|>|\bto=functions\.\w"),
    _format("Seed-OSS XML", "<seed:tool_call>", "seed_oss", r"<seed:tool_call>"),
    _format("Anthropic XML", '<invoke name="...">', "", r'<invoke name="'),
    _format(
        "JSON in a code fence",
        "```json",
        "",
        r"```(?:json|tool_call|tool_code)?\s*\{\s*\"(?:name|function|tool|tool_name|action)\"",
    ),
    _format(
        "bare JSON",
        '{"name": ..., "arguments": ...}',
        "llama3_json",
        r"\A\s*\[?\s*\{\s*\"(?:name|function|tool)\"\s*:\s*\"[^\"\n]+\"\s*,\s*\"(?:arguments|parameters)\"\s*:",
    ),
    _format("<tool_call> without a known content", "<tool_call>", "", r"</?tool_call>"),
)


def resembling(text: str) -> tuple[ToolFormat, ...]:
    """Return the formats that ``text`` resembles, most specific first; the generic last one only if no other
    matches."""
    matching = tuple(f for f in FORMATS[:-1] if f.pattern.search(text))
    if matching or not FORMATS[-1].pattern.search(text):
        return matching
    return (FORMATS[-1],)


def readers_of(title: str) -> tuple[str, ...]:
    """Return the parsers that read the format with this title; none for an unknown title."""
    return next((f.parsers for f in FORMATS if f.title == title), ())


def look(formats: Sequence[ToolFormat]) -> str:
    """Return the formats as text: ``Qwen3-Coder XML (<function=...>)``."""
    return " and ".join(f"{f.title} ({f.mark})" for f in formats)


def explain_no_calls(
    texts: Iterable[str], parser: str | None, truncated: bool = False, place: str = ""
) -> tuple[str, ...]:
    """Return sentences that explain why a trial may have called no tool.

    ``texts``: the model's output; ``parser``: the run's parser, None if unknown; ``truncated``: the last turn
    reached the token limit; ``place``: file and line that set the parser, "" = PARSER_KEY.
    """
    written = [text for text in texts if text.strip()]
    setting = (
        f"the run's tool-call parser is {parser} ({place or f'{PARSER_KEY} in config.yaml'})"
        if parser
        else (f"the tool-call parser is set by {PARSER_KEY} in config.yaml")
    )
    if not written:
        return (
            "the response has no text either: the engine or its parsers dropped the model's output",
            setting,
        )
    formats = resembling("\n".join(written))
    if not formats:
        why = "its text contains nothing that looks like a tool call: the model answered without one"
        if truncated:
            why = "its text was cut off at the token limit before a tool call began"
        return (why, setting)
    readers = tuple(dict.fromkeys(p for f in formats for p in f.parsers))
    looks = f"what the model wrote looks like {look(formats)}"
    if parser is not None and parser in readers:
        tail = (
            "the call was cut off at the token limit"
            if truncated
            else "is the call complete and well formed?"
        )
        return (f"{looks}, which {parser} reads: {tail}", setting)
    if not readers:
        return (f"{looks}, which no parser of vLLM reads", setting)
    return (f"{looks}, which the parser {' or '.join(readers)} reads", setting)
