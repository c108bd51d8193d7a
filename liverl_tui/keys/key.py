"""The type of an entry in the table of keys, and key names as people write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal[
    "app",  # everywhere except in dialogs
    "dashboard",
    "gpus",
    "replicas",
    "logs",
    "trials",
    "trajectory",
    "metrics",
    "service",
    "gpu",
    "events",
    "alerts",
    "help",
    "dialog",
]


@dataclass(frozen=True)
class Key:
    """One action and its keys.

    ``action`` is a Textual action: ``action_<name>`` on the screen or pane of ``scope``, or on a part of the app
    (``app/commands.py``, ``app/navigation.py``, ``app/lifecycle.py``). ``bar``: True shows ``label`` in the key bar
    wherever the key works, a tuple only in those scopes. ``help`` is the sentence of the help screen and the palette.
    ``changes``: the action changes the run, and is refused in a read-only interface.
    """

    scope: Scope
    action: str
    keys: str  # comma separated, Textual's names; the first one is shown
    label: str
    help: str
    bar: bool | tuple[Scope, ...] = False
    changes: bool = False
    shown: str | None = None  # the key as people write it, where ``key_name`` does not give that

    @property
    def id(self) -> str:
        """``scope.action``: unique, and the id of Textual's binding."""
        return f"{self.scope}.{self.action}"

    @property
    def name(self) -> str:
        """The first key as people write it, for the key bar, help and messages."""
        return self.shown if self.shown is not None else key_name(self.keys.split(",", 1)[0])


def key_name(key: str) -> str:
    """A key's Textual name as people write it: ``slash`` is /, ``ctrl+p`` is ^p, ``shift+left`` is ⇧←."""
    for prefix, sign in (("ctrl+", "^"), ("shift+", "⇧")):
        if key.startswith(prefix):
            return sign + key_name(key.removeprefix(prefix))
    return _NAMES.get(key, key)


_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "colon": ":",
    "exclamation_mark": "!",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "full_stop": ".",
    "comma": ",",
    "escape": "Esc",
    "enter": "Enter",
    "tab": "Tab",
    "space": "Space",
    "home": "Home",
    "end": "End",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "minus": "-",
    "plus": "+",
    "equals_sign": "=",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "asterisk": "*",
    "number_sign": "#",
    "f1": "F1",
}
