"""The table of keys that this process uses: the default one, or one with keys of the user's.

Bindings belong to classes of widgets, so the table is chosen once, before the first of them is imported. A process
shows one interface.
"""

from __future__ import annotations

from liverl_tui.keys.key import Key
from liverl_tui.keys.table import KEYS

_table: tuple[Key, ...] = KEYS
_in_bindings = False  # widgets have been made from the table


def table() -> tuple[Key, ...]:
    """Every entry with the keys that it has in this process."""
    return _table


def table_for_bindings() -> tuple[Key, ...]:
    """``table()``, which cannot be replaced from now on."""
    global _in_bindings
    _in_bindings = True
    return _table


def install(keys: tuple[Key, ...]) -> None:
    """Use ``keys`` as the table of this process.

    Raises:
        RuntimeError: another table is in bindings of widgets already.
    """
    global _table
    if _in_bindings and keys != _table:
        raise RuntimeError("the table of keys must be installed before widgets are imported")
    _table = keys
