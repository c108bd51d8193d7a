"""A command line as data: which configuration key becomes which option.

Being data, it also tells which keys an engine reads: a key that it does not read is reported as having no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Read = Callable[[str], object]  # dotted configuration key -> its value


@dataclass(frozen=True)
class Key:
    """The value of a configuration key, as text."""

    key: str


@dataclass(frozen=True)
class Switch:
    """``on`` where the key's value is true or not zero, else ``off``. ``{}`` in them is the value."""

    key: str
    on: tuple[str, ...]
    off: tuple[str, ...] = ()


Part = str | Key | Switch


def as_text(value: object) -> str:
    """As it stands on a command line: 0.9 and not 0.90, 3 and not 3.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def render(parts: Iterable[Part], read: Read) -> tuple[str, ...]:
    """The arguments. Raises AttributeError for a key that the configuration does not have."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, Key):
            found.append(as_text(read(part.key)))
        else:
            value = read(part.key)
            text = as_text(value)
            found += [word.replace("{}", text) for word in (part.on if value else part.off)]
    return tuple(found)


def keys_of(parts: Iterable[Part]) -> frozenset[str]:
    """The configuration keys that ``parts`` read."""
    return frozenset(part.key for part in parts if not isinstance(part, str))
