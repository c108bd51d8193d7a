"""What the model said last in a trial, in a few words for one line of a list. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json

LONGEST = 80  # characters
_READ = 1 << 16  # characters of arguments that are decoded; longer ones are cut
_THOUGHT = "</think>"


def call_preview(name: object, arguments: object, calls: int = 1) -> str:
    """``bash: ls -la``: a tool call with the values of its arguments. ``arguments``: an object, or its JSON text.
    ``calls``: how many the model made at once, of which this is the last."""
    label = name if isinstance(name, str) and name else "tool call"
    more = f" (and {calls - 1} more)" if calls > 1 else ""
    values = _values(arguments)
    return short(f"{label}{more}: {values}" if values else f"{label}{more}")


def text_preview(text: str) -> str:
    """The beginning of an answer in text, without the model's reasoning before it."""
    return short(text.rpartition(_THOUGHT)[2])


def short(text: str) -> str:
    """``text`` in one line of at most ``LONGEST`` characters, all of which UTF-8 can encode."""
    text = text.strip()
    if not text:
        return ""
    words = " ".join(text[: 8 * LONGEST].split())
    cut = words if len(words) <= LONGEST and len(text) <= 8 * LONGEST else f"{words[: LONGEST - 1]}…"
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


def _values(arguments: object) -> str:
    if isinstance(arguments, str):
        if len(arguments) > _READ:
            return arguments[: 8 * LONGEST]
        try:
            arguments = decode_json(arguments or "{}")
        except (UnicodeEncodeError, *BAD_JSON):
            return str(arguments)
    if isinstance(arguments, dict):
        return " ".join(_words(arguments.values()))
    return "" if arguments is None else " ".join(_words((arguments,)))


def _words(values: Iterable[object]) -> Iterable[str]:
    for value in values:
        yield value if isinstance(value, str) else msgspec.json.encode(value).decode()
