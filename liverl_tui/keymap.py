"""The one table of keys. Bindings, the bar at the bottom, the help screen and the command palette all come
from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal[
    "app",  # everywhere but in dialogs
    "dashboard",
    "gpus",
    "replicas",
    "logs",
    "trials",
    "trajectory",
    "metrics",
    "service",
    "help",
]

SCOPE_TITLES: dict[Scope, str] = {
    "app": "Everywhere",
    "dashboard": "Dashboard",
    "gpus": "GPUs pane",
    "replicas": "Replicas pane",
    "logs": "Logs",
    "trials": "Trajectories pane",
    "trajectory": "One trajectory",
    "metrics": "Metrics",
    "service": "Service and replica detail",
    "help": "Help",
}


@dataclass(frozen=True)
class Key:
    """One action and its keys.

    ``action`` is a Textual action: ``action_<name>`` on the app, screen or pane of ``scope``. ``label`` stands in
    the key bar when ``bar`` is set; ``help`` is the sentence of the help screen and the palette. ``changes``: it
    alters the run, and is refused in a read-only interface.
    """

    scope: Scope
    action: str
    keys: str  # comma separated, Textual's names; the first one is shown
    label: str
    help: str
    bar: bool = False
    changes: bool = False
    shown: str | None = None  # how the key is written for people, where Textual's name is no help

    @property
    def id(self) -> str:
        return f"{self.scope}.{self.action}"

    @property
    def name(self) -> str:
        """The first key as people write it."""
        if self.shown is not None:
            return self.shown
        first = self.keys.split(",", 1)[0]
        return _NAMES.get(first, first)


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
    "ctrl+p": "^p",
    "ctrl+c": "^c",
}

KEYS: tuple[Key, ...] = (
    # -- everywhere
    Key("app", "help", "question_mark,f1", "help", "Show every key", bar=True),
    Key("app", "leave", "q,ctrl+c,ctrl+q", "quit", "Leave the interface; asks whether the run goes on", bar=True),
    Key("app", "restart_proxy", "r", "restart proxy", "Restart the proxy without dropping a request", True, True),
    Key("app", "add_replica", "a", "add replica", "Add one inference replica", True, True),
    Key("app", "remove_replica", "x", "remove replica", "Remove a replica, drained first (asks)", False, True),
    Key("app", "restart_service", "R", "restart", "Restart the selected service, or choose one (asks)", False, True),
    Key("app", "stop_service", "S", "stop service", "Stop one service (asks)", False, True),
    Key("app", "start_service", "s", "start service", "Start a stopped service", False, True),
    Key("app", "detach", "D", "detach", "Leave at once; the run goes on"),
    Key("app", "stop_run", "Q", "stop run", "Stop the whole run; wants its name typed", False, True),
    Key("app", "revive", "U", "restart backend", "Start a dead backend again; it adopts what still runs", False, True),
    Key("app", "metrics", "M", "metrics", "Charts of the training metrics", bar=True),
    Key("app", "services", "V", "services", "Detail of one service: command, processes, probes, restarts"),
    Key("app", "events", "E", "events", "What happened, newest last"),
    Key("app", "palette", "colon,ctrl+p", "commands", "Find any action by name"),
    Key("app", "copy", "y", "copy", "Copy the selected line: terminal, tmux buffer or file; the toast says which"),
    Key("app", "copy_all", "Y", "copy all", "Copy everything that the focused pane shows"),
    Key("app", "screenshot", "P", "screenshot", "Save a picture of the screen (SVG) in the run's directory"),
    Key("app", "theme", "T", "theme", "The next theme"),
    Key("app", "mouse", "m", "mouse", "Mouse on or off; off leaves selecting to the terminal"),
    # -- dashboard
    Key("dashboard", "jump('gpus')", "1", "GPUs", "Go to the GPUs pane"),
    Key("dashboard", "jump('replicas')", "2", "replicas", "Go to the replicas pane"),
    Key("dashboard", "jump('logs')", "3", "logs", "Go to the logs pane"),
    Key("dashboard", "jump('trials')", "4", "trajectories", "Go to the trajectories pane"),
    Key("dashboard", "next_pane", "tab", "next pane", "Go to the next pane"),
    Key("dashboard", "previous_pane", "shift+tab", "previous pane", "Go to the previous pane", shown="⇧Tab"),
    Key("dashboard", "maximise", "z", "maximise", "The focused pane alone, and back", bar=True),
    Key("dashboard", "hide_pane", "h", "hide pane", "Hide the focused pane"),
    Key("dashboard", "all_panes", "H", "all panes", "Show every pane again"),
    # -- panes with rows
    Key("gpus", "select", "enter", "detail", "Detail of the service that holds this row"),
    Key("replicas", "select", "enter", "detail", "Detail of this replica", bar=True),
    Key("trials", "select", "enter", "open", "Open this trajectory, turn by turn", bar=True),
)


def keys_of(scope: Scope) -> tuple[Key, ...]:
    return tuple(k for k in KEYS if k.scope == scope)


def bindings(scope: Scope) -> list[Binding]:
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
