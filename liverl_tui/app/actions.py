"""Which part of the application does an action of the key table."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from textual.actions import parse

_PREFIX = "action_"  # Textual's: of the method that does an action


class UnknownAction(LookupError):
    """No part of the application, or more than one, does an action; ``str()`` names it."""


def action_name(action: str) -> str:
    """The name in an action as a binding writes it: ``jump`` of ``jump('gpus')``."""
    return parse(action)[1]


def part_of_each(actions: Iterable[str], parts: Iterable[object]) -> dict[str, object]:
    """The name of each action -> the one of ``parts`` that has the method ``action_<name>``.

    ``actions``: as in bindings. ``parts``: objects with methods ``action_<name>``.

    Raises:
        UnknownAction: an action is done by none of ``parts``, or by several.
    """
    parts = tuple(parts)
    return {name: _part_of(name, parts) for name in map(action_name, actions)}


def _part_of(name: str, parts: tuple[object, ...]) -> object:
    found = [part for part in parts if callable(getattr(part, _PREFIX + name, None))]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownAction(
            f"action {name!r}: {_names(found)} have a method {_PREFIX}{name}; expected one of them"
        )
    known = [
        method.removeprefix(_PREFIX) for part in parts for method in dir(part) if method.startswith(_PREFIX)
    ]
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise UnknownAction(f"action {name!r}: none of {_names(parts)} has a method {_PREFIX}{name}{hint}")


def _names(parts: Iterable[object]) -> str:
    return ", ".join(type(part).__name__ for part in parts)
