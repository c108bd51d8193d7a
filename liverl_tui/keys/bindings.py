"""Queries of the table of keys. Bindings, the key bar, the help screen and the command palette are all made from
them."""

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
    """The entries of one scope, in the order of the table."""
    return tuple(k for k in KEYS if k.scope == scope)


def reachable(scopes: Iterable[Scope]) -> list[Key]:
    """The entries that work where ``scopes`` (nearest first) are active. An entry loses the keys that a nearer scope
    uses; an entry that loses all of its keys is left out."""
    taken: set[str] = set()
    entries = []
    for scope in scopes:
        here = keys_of(scope)
        for key in here:
            names = key.keys.split(",")
            free = [name for name in names if name not in taken]
            if free == names:
                entries.append(key)
            elif free:
                entries.append(replace(key, keys=",".join(free), shown=None))
        taken.update(name for key in here for name in key.keys.split(","))
    return entries


def offered(scopes: Iterable[Scope], *, readonly: bool = False) -> list[Key]:
    """The reachable entries that the key bar shows where ``scopes`` (nearest first) are active; with ``readonly``
    without those that change the run."""
    here = tuple(scopes)
    return [
        key
        for key in reachable(here)
        if (key.bar is True or (key.bar and not set(key.bar).isdisjoint(here)))
        and not (key.changes and readonly)
    ]


def bindings(scope: Scope) -> list[BindingType]:
    """Textual's bindings for one scope, for a ``BINDINGS`` of a widget; none is shown in Textual's own footer."""
    return [Binding(k.keys, k.action, k.label, show=False, id=k.id) for k in keys_of(scope)]


def find(scope: Scope, action: str) -> Key:
    """The entry of a Textual action in a scope, for its keys and texts.

    Raises:
        KeyError: the table has no such entry.
    """
    for key in KEYS:
        if key.scope == scope and key.action == action:
            return key
    raise KeyError(f"{scope}.{action}")
