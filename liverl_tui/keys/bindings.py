"""Queries of the table of keys. Bindings, the key bar, the help screen and the command palette are all made from
them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.binding import Binding

from liverl_tui.keys.in_force import table, table_for_bindings
from liverl_tui.keys.key import Key, Scope
from liverl_tui.keys.names import key_name
from liverl_tui.keys.table import KEYS, SCOPE_TITLES

if TYPE_CHECKING:
    from textual.binding import BindingType

__all__ = [
    "KEYS",
    "SCOPE_TITLES",
    "Key",
    "Scope",
    "bindings",
    "elsewhere",
    "find",
    "key_name",
    "keys_of",
    "moves",
    "offered",
    "reachable",
]


def keys_of(scope: Scope) -> tuple[Key, ...]:
    """The entries of one scope, in the order of the table."""
    return tuple(k for k in table() if k.scope == scope)


def reachable(scopes: Iterable[Scope]) -> list[Key]:
    """The entries that work where ``scopes`` (nearest first) are active. An entry loses the keys that a nearer scope
    uses; an entry that loses all of its keys is left out. One without keys stays: it can be run by its name."""
    taken: set[str] = set()
    entries = []
    for scope in scopes:
        here = keys_of(scope)
        for key in here:
            free = tuple(name for name in key.bound if name not in taken)
            if free == key.bound:
                entries.append(key)
            elif free:
                entries.append(replace(key, keys=",".join(free), shown=None))
        taken.update(name for key in here for name in key.bound)
    return entries


def elsewhere(key: str) -> str | None:
    """Where a key (Textual's name) has an effect, in a sentence for places where it has none; None if nowhere."""
    there = [k for k in table() if key in k.bound and k.scope != "dialog"]
    if not there:
        return None
    places = ", ".join(f"{SCOPE_TITLES[k.scope]} ({k.label})" for k in there)
    return f"{key_name(key)} has no effect here; elsewhere: {places}"


def offered(scopes: Iterable[Scope], *, readonly: bool = False) -> list[Key]:
    """The reachable entries that the key bar shows where ``scopes`` (nearest first) are active; with ``readonly``
    without those that change the run."""
    here = tuple(scopes)
    return [
        key
        for key in reachable(here)
        if key.bound
        and (key.bar is True or (key.bar and not set(key.bar).isdisjoint(here)))
        and not (key.changes and readonly)
    ]


def bindings(scope: Scope) -> list[BindingType]:
    """Textual's bindings for one scope, for a ``BINDINGS`` of a widget; none is shown in Textual's own footer."""
    return [_binding(k, k.action) for k in table_for_bindings() if k.scope == scope and k.bound]


def moves(
    up: str, down: str, page_up: str, page_down: str, first: str = "", last: str = ""
) -> list[BindingType]:
    """Textual's bindings for the keys that move in a pane, whose actions for them these are; empty = none."""
    actions = {
        "up": up,
        "down": down,
        "page_up": page_up,
        "page_down": page_down,
        "first": first,
        "last": last,
    }
    keys = (k for k in table_for_bindings() if k.scope == "moving" and k.bound)
    return [_binding(k, actions[k.action]) for k in keys if actions[k.action]]


def _binding(key: Key, action: str) -> Binding:
    return Binding(key.keys, action, key.label, show=False, id=key.id)


def find(scope: Scope, action: str) -> Key:
    """The entry of a Textual action in a scope, for its keys and texts.

    Raises:
        KeyError: the table has no such entry.
    """
    for key in table():
        if key.scope == scope and key.action == action:
            return key
    raise KeyError(f"{scope}.{action}")
