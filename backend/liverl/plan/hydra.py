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
# Names that Hydra reads as they are: in ``key=value``, where a package may follow, and within a mapping.
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_$./-]*(@[A-Za-z0-9_$./:-]*)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_ARGUMENT = re.compile("[^\0\ud800-\udfff]*")  # the rest cannot be in a command line
_INTERPOLATION, _MISSING = "${", "???"


class HydraError(ValueError):
    """A key or value that would not reach verl as it is. ``text``: the part that is at fault, ``why``: the reason."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"{text!r}: {why}")
        self.text = text
        self.why = why


class Override(msgspec.Struct, frozen=True):
    """``key=value``. ``new``: verl's configuration does not have the key, so it must be added (``+key``)."""

    key: str
    value: Any
    new: bool = False


def text(value: Any) -> str:
    """``value`` in Hydra's grammar. Text is quoted if Hydra could read it as something else.

    Raises:
        HydraError: verl would get something else, however it is written.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_name(key)}:{text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(text(inner) for inner in value) + "]"
    return repr(value)


def _name(key: str) -> str:
    if not _NAME.fullmatch(key) or key.lower() in _WORDS:
        raise HydraError(key, "Hydra would misread this name in a mapping")
    return key


def _quoted(value: str) -> str:
    """``value`` in single quotes, where only backslashes before a quote need escapes."""
    # verl resolves its configuration more than once, so an escaped interpolation does not stay one.
    if _INTERPOLATION in value:
        raise HydraError(value, f"verl would replace what follows {_INTERPOLATION}")
    if value == _MISSING:
        raise HydraError(value, "verl reads this as a missing value")
    _check_argument(value)
    value = re.sub(r"(\\*)'", lambda match: match[1] * 2 + "\\'", value)
    value = re.sub(r"(\\+)\Z", lambda match: match[1] * 2, value)
    return f"'{value}'"


def _check_argument(value: str) -> None:
    if not _ARGUMENT.fullmatch(value):
        raise HydraError(value, "a command line cannot contain these characters")


def command_line(ours: Iterable[Override], given: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments for Hydra: our overrides, then the user's. A key in both appears once, with the user's value.

    ``given``: the user's keys, perhaps with ``+``, ``++`` or ``~`` (which removes the key). Their text is already in
    Hydra's grammar and is used unchanged; other values are converted.

    Raises:
        HydraError: a key is not one, or verl would not get a value as it is.
    """
    lines = {o.key: (("+" if o.new else ""), f"={text(o.value)}") for o in ours}
    for name, value in given.items():
        match = _SIGN.fullmatch(name)
        assert match is not None, name  # the configuration refuses empty keys
        sign, key = match[1], match[2]
        if not _KEY.fullmatch(key):
            raise HydraError(name, "not the name of a key of verl's configuration")
        previous = lines.pop(key, ("", ""))
        if sign == "~":
            lines[key] = ("~", "")
        else:
            written = value if isinstance(value, str) and value else text(value)
            _check_argument(written)
            lines[key] = (sign if sign is not None else previous[0], f"={written}")
    return tuple(f"{sign}{key}{rest}" for key, (sign, rest) in lines.items())
