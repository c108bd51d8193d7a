"""Finds the part of the application that handles an action of the key table."""

from __future__ import annotations

from collections.abc import Iterable

from textual.actions import parse

from liverl.util.nearest import did_you_mean

_PREFIX = "action_"  # Textual's prefix of methods that handle actions


class UnknownAction(LookupError):
    """No part of the application, or more than one, handles an action; ``str()`` names it."""


def action_name(action: str) -> str:
    """Return the name in an action of a binding, without arguments: ``jump`` of ``jump('gpus')``."""
    return parse(action)[1]


def part_of_each(actions: Iterable[str], parts: Iterable[object]) -> dict[str, object]:
    """Map the name of each action to the one of ``parts`` that has the method ``action_<name>``.

    ``actions``: as in bindings, perhaps with arguments.

    Raises:
        UnknownAction: none of ``parts`` handles an action, or several do.
    """
    parts = tuple(parts)
    return {name: _part_of(name, parts) for name in map(action_name, actions)}


def _part_of(name: str, parts: tuple[object, ...]) -> object:
    handlers = [part for part in parts if callable(getattr(part, _PREFIX + name, None))]
    if len(handlers) == 1:
        return handlers[0]
    if handlers:
        raise UnknownAction(
            f"action {name!r}: {_names(handlers)} have a method {_PREFIX}{name}; expected one of them"
        )
    actions = [
        method.removeprefix(_PREFIX) for part in parts for method in dir(part) if method.startswith(_PREFIX)
    ]
    close = did_you_mean(name, actions)
    hint = f"; {close}" if close else ""
    raise UnknownAction(f"action {name!r}: none of {_names(parts)} has a method {_PREFIX}{name}{hint}")


def _names(parts: Iterable[object]) -> str:
    return ", ".join(type(part).__name__ for part in parts)
