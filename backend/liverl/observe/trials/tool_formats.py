"""Why a trial called no tool, by the formats that its texts resemble. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from liverl.engines.tool_formats import PARSER_KEY, look, resembling


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
