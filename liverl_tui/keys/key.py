"""The type of an entry in the table of keys, and key names as people write them."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from liverl_tui.keys.names import key_name

Scope = Literal[
    "app",  # everywhere except in dialogs
    "dashboard",
    "list",  # every list, beside the scope of its pane or screen
    "gpus",
    "replicas",
    "logs",
    "trials",
    "trajectory",
    "tokens",
    "pair",
    "metrics",
    "service",
    "gpu",
    "events",
    "alerts",
    "sandboxes",
    "timeline",
    "disk",
    "runs",
    "compare",
    "containers",  # the pane of the dashboard
    "help",
    "dialog",
    "moving",  # every pane with rows or lines
]


class Key(Struct, frozen=True):
    """One action and its keys.

    ``action`` is a Textual action: ``action_<name>`` on the screen or pane of ``scope``, or on a part of the app
    (``app/commands.py``, ``app/navigation.py``, ``app/lifecycle.py``). ``bar``: True shows ``label`` in the key bar
    wherever the key works, a tuple only in those scopes. ``help`` is the sentence of the help screen and the palette.
    ``changes``: the action changes the run, and is refused in a read-only interface.

    ``id`` stands in users' configurations. Of an action with parameters it has the label, which then must not change.
    """

    scope: Scope
    action: str
    keys: str  # comma separated, Textual's names; the first one is shown; empty = the action has no key
    label: str
    help: str
    bar: bool | tuple[Scope, ...] = False
    changes: bool = False
    shown: str | None = None  # the key as people write it, where ``key_name`` does not give that

    @property
    def id(self) -> str:
        """The unique name in ``ui.keys``, and the id of Textual's binding: ``scope.action``, or for an action with
        parameters ``scope.label``, in small letters: ``logs.filter_out``."""
        name = self.label if "(" in self.action else self.action
        return f"{self.scope}.{re.sub(r'[^a-z0-9]+', '_', name.lower())}"

    @property
    def bound(self) -> tuple[str, ...]:
        """The keys, as Textual names them; none if the user has removed them."""
        return tuple(self.keys.split(",")) if self.keys else ()

    @property
    def name(self) -> str:
        """The first key as people write it, for the key bar, help and palette; empty if there is none."""
        return self.shown if self.shown is not None else key_name(self.keys.split(",", 1)[0])

    @property
    def mention(self) -> str:
        """What a sentence names: the first key or, without a key, the command of the palette that does the same."""
        return self.name or f'command "{self.label}"'

    @property
    def press(self) -> str:
        """What a sentence tells the user to do: ``press U``, or to use the command."""
        return f"press {self.name}" if self.name else f"use the {self.mention}"
