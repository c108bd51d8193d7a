"""Hydra's command line: values in Hydra's grammar, and our overrides merged with the user's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

# Text that Hydra 1.3 reads unchanged without quotes.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = ("null", "true", "false", "nan", "inf")
_SIGN = re.compile(r"(\+\+|\+|~)?(.+)", re.DOTALL)


class Override(msgspec.Struct, frozen=True):
    """``key=value``. ``new``: verl's configuration does not have the key, so it must be added (``+key``)."""

    key: str
    value: Any
    new: bool = False


def text(value: Any) -> str:
    """``value`` in Hydra's grammar. Text is quoted if Hydra could read it as something else."""
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
    """``value`` in single quotes. There, only backslashes before a quote and ``${`` (an interpolation) need escapes."""
    value = re.sub(r"(\\*)'", lambda match: match[1] * 2 + "\\'", value)
    value = re.sub(r"(\\+)$", lambda match: match[1] * 2, value)
    return "'" + value.replace("${", "\\${") + "'"


def command_line(ours: Iterable[Override], given: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments for Hydra: our overrides, then the user's. A key in both appears once, with the user's value.

    ``given``: the user's keys, perhaps with ``+``, ``++`` or ``~`` (which removes the key). Their text is already in
    Hydra's grammar and is used unchanged; other values are converted.
    """
    lines = {o.key: (("+" if o.new else ""), f"={text(o.value)}") for o in ours}
    for name, value in given.items():
        match = _SIGN.fullmatch(name)
        assert match is not None, name  # the configuration refuses empty keys
        sign, key = match[1], match[2]
        previous = lines.pop(key, ("", ""))
        if sign == "~":
            lines[key] = ("~", "")
        else:
            written = value if isinstance(value, str) and value else text(value)
            lines[key] = (sign if sign is not None else previous[0], f"={written}")
    return tuple(f"{sign}{key}{rest}" for key, (sign, rest) in lines.items())
