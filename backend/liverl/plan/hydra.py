"""Hydra's command line: one value as text, and the user's overrides over ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

# What Hydra 1.3 reads as plain text without quotes, and as the same text.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = ("null", "true", "false", "nan", "inf")
_SIGN = re.compile(r"(\+\+|\+|~)?(.+)", re.DOTALL)


class Override(msgspec.Struct, frozen=True):
    """``key=value``; ``new``: verl's configuration does not have the key, so it is added (``+key``)."""

    key: str
    value: Any
    new: bool = False


def text(value: Any) -> str:
    """A value in Hydra's grammar: text is quoted where it could be read as something else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(text(inner) for inner in value) + "]"
    return repr(value)


def _quoted(value: str) -> str:
    """In a quoted value, a backslash counts only before a quote, and ``${`` starts an interpolation."""
    value = re.sub(r"(\\*)'", lambda match: match[1] * 2 + "\\'", value)
    value = re.sub(r"(\\+)$", lambda match: match[1] * 2, value)
    return "'" + value.replace("${", "\\${") + "'"


def command_line(ours: Iterable[Override], given: Mapping[str, Any]) -> tuple[str, ...]:
    """Our overrides, then the user's; a key that the user gives stands once, and is the user's.

    A text of the user's is taken as it is, in Hydra's own grammar; anything else is written in it.
    """
    lines = {o.key: (("+" if o.new else ""), f"={text(o.value)}") for o in ours}
    for name, value in given.items():
        match = _SIGN.fullmatch(name)
        assert match is not None, name  # the configuration refuses empty keys
        sign, key = match[1], match[2]
        before = lines.pop(key, ("", ""))
        if sign == "~":
            lines[key] = ("~", "")
        else:
            written = value if isinstance(value, str) and value else text(value)
            lines[key] = (sign if sign is not None else before[0], f"={written}")
    return tuple(f"{sign}{key}{rest}" for key, (sign, rest) in lines.items())
