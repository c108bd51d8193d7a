"""A command line as data: which configuration key becomes which option.

Since it is data, the keys that an engine reads are known: a key that it does not read is reported as having no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

Read = Callable[[str], object]  # dotted configuration key -> its value


@dataclass(frozen=True)
class Key:
    """The value of a configuration key, as text."""

    key: str


@dataclass(frozen=True)
class Switch:
    """The words ``on`` if the key's value is true or not zero, else ``off``. ``{}`` in a word is replaced by the
    value."""

    key: str
    on: tuple[str, ...]
    off: tuple[str, ...] = ()


class IfKnown(msgspec.Struct, frozen=True):
    """``words`` that a start appends to a command line if the installed ``package`` knows an option: if a file of it
    named ``file`` declares ``field``. A program refuses options that it does not know, and which version is installed
    is known only once the environment is built."""

    package: str
    file: str
    field: str
    words: tuple[str, ...]


Part = str | Key | Switch


def as_text(value: object) -> str:
    """A value as text for a command line; floats in their shortest form: 0.9, and 3 for 3.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def render(parts: Iterable[Part], read: Read) -> tuple[str, ...]:
    """The words of the command line, with the values that ``read`` returns.

    Raises:
        AttributeError: the configuration does not have one of the keys.
    """
    words: list[str] = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, Key):
            words.append(as_text(read(part.key)))
        else:
            value = read(part.key)
            text = as_text(value)
            words += [word.replace("{}", text) for word in (part.on if value else part.off)]
    return tuple(words)


def keys_of(parts: Iterable[Part]) -> frozenset[str]:
    """The configuration keys that ``parts`` read."""
    return frozenset(part.key for part in parts if not isinstance(part, str))
