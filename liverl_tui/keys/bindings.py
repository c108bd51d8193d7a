"""What the table of keys says. Bindings, the bar at the bottom, the help screen and the command palette all come
from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.binding import Binding

from liverl_tui.keys.key import Key, Scope, key_name
from liverl_tui.keys.table import KEYS, SCOPE_TITLES

if TYPE_CHECKING:
    from textual.binding import BindingType

__all__ = [
    "KEYS",
    "SCOPE_TITLES",
    "Key",
    "Scope",
    "bindings",
    "find",
    "key_name",
    "keys_of",
    "offered",
    "reachable",
]


def keys_of(scope: Scope) -> tuple[Key, ...]:
    return tuple(k for k in KEYS if k.scope == scope)


def reachable(scopes: Iterable[Scope]) -> list[Key]:
    """The keys that work where these scopes do, the nearest first: an entry without those of its keys that a nearer
    scope takes, and none that has lost them all."""
    taken: set[str] = set()
    found = []
    for scope in scopes:
        here = keys_of(scope)
        for key in here:
            names = key.keys.split(",")
            left = [name for name in names if name not in taken]
            if left == names:
                found.append(key)
            elif left:
                found.append(replace(key, keys=",".join(left), shown=None))
        taken.update(name for key in here for name in key.keys.split(","))
    return found


def offered(scopes: Iterable[Scope], *, readonly: bool = False) -> list[Key]:
    """Those of the keys that work where these scopes do which the bar offers there; ``readonly``: but those that
    change the run."""
    here = tuple(scopes)
    return [
        key
        for key in reachable(here)
        if (key.bar is True or (key.bar and not set(key.bar).isdisjoint(here)))
        and not (key.changes and readonly)
    ]


def bindings(scope: Scope) -> list[BindingType]:
    """Textual's bindings of one scope."""
    return [Binding(k.keys, k.action, k.label, show=False, id=k.id) for k in keys_of(scope)]


def find(scope: Scope, action: str) -> Key:
    """The entry of an action.

    Raises:
        KeyError: there is none.
    """
    for key in KEYS:
        if key.scope == scope and key.action == action:
            return key
    raise KeyError(f"{scope}.{action}")
