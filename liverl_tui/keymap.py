"""The one table of keys. Bindings, the bar at the bottom, the help screen and the command palette all come
from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from textual.binding import Binding

if TYPE_CHECKING:
    from textual.binding import BindingType

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
    "events",
    "help",
    "dialog",
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
    "events": "Events",
    "help": "Help",
    "dialog": "Dialogs and lists to choose from",
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
        return self.shown if self.shown is not None else key_name(self.keys.split(",", 1)[0])


def key_name(key: str) -> str:
    """One of Textual's names as people write it: ``slash`` is /, ``ctrl+p`` is ^p, ``shift+left`` is ⇧←."""
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

KEYS: tuple[Key, ...] = (
    # -- everywhere
    Key("app", "help", "question_mark,f1", "help", "Show every key", bar=True),
    Key(
        "app",
        "leave",
        "q,ctrl+c,ctrl+q",
        "quit",
        "Leave; asks whether the run goes on. Never stops it",
        bar=True,
    ),
    Key(
        "app",
        "restart_proxy",
        "r",
        "restart proxy",
        "Restart the proxy without dropping a request",
        True,
        True,
    ),
    Key("app", "add_replica", "a", "add replica", "Add one inference replica", True, True),
    Key(
        "app", "remove_replica", "x", "remove replica", "Remove a replica, drained first (asks)", False, True
    ),
    Key(
        "app",
        "restart_service",
        "R",
        "restart",
        "Restart the selected service, or choose one (asks)",
        False,
        True,
    ),
    Key("app", "stop_service", "S", "stop service", "Stop one service (asks)", False, True),
    Key("app", "start_service", "s", "start service", "Start a stopped service", False, True),
    Key("app", "detach", "D", "detach", "Leave at once; the run goes on"),
    Key("app", "stop_run", "Q", "stop run", "Stop the whole run; wants its name typed", False, True),
    Key(
        "app",
        "revive",
        "U",
        "restart backend",
        "Start a dead backend again; it adopts what still runs",
        False,
        True,
    ),
    Key("app", "metrics", "M", "metrics", "Charts of the training metrics", bar=True),
    Key("app", "services", "V", "services", "Detail of one service: command, processes, probes, restarts"),
    Key("app", "events", "E", "events", "What happened, newest last"),
    Key("app", "palette", "colon,ctrl+p", "commands", "Find any action by name"),
    Key(
        "app",
        "copy",
        "y",
        "copy",
        "Copy the selected line: terminal, tmux buffer or file; the toast says which",
    ),
    Key("app", "copy_all", "Y", "copy all", "Copy everything that the focused pane shows"),
    Key("app", "picture", "P", "screenshot", "Save a picture of the screen (SVG) in the run's directory"),
    Key("app", "theme", "T", "theme", "The next theme"),
    Key("app", "mouse", "m", "mouse", "Mouse on or off; off leaves selecting to the terminal"),
    Key("app", "suspend_process", "ctrl+z", "suspend", "To the shell that started this; its fg comes back"),
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
    Key("replicas", "order", "o", "order", "Replicas with problems first, or by name"),
    # -- logs
    Key(
        "logs",
        "prompt('search')",
        "slash",
        "search",
        "Search it all; capitals count if you type one",
        bar=True,
    ),
    Key("logs", "hit(1)", "n", "next hit", "The next place where the search is found"),
    Key("logs", "hit(-1)", "N", "previous hit", "The previous place where the search is found"),
    Key(
        "logs",
        "prompt('include')",
        "f",
        "filter",
        "Only lines in which something is found; empty: all",
        bar=True,
    ),
    Key("logs", "prompt('exclude')", "F", "filter out", "Without the lines in which something is found"),
    Key(
        "logs", "level", "l", "level", "All lines, without debug, warnings and errors, errors only", bar=True
    ),
    Key("logs", "prompt('time')", "t,ctrl+t", "time", "Go to a time: 5m (ago), 12:30, 12:30:15", bar=True),
    Key("logs", "tab(1)", "right_square_bracket", "next log", "The log of the next service", bar=True),
    Key("logs", "tab(-1)", "left_square_bracket", "previous log", "The log of the previous service"),
    Key("logs", "follow", "end,G", "follow", "To the newest line, and follow what is written"),
    Key("logs", "first", "home,g", "top", "To the first line"),
    Key("logs", "pause", "space", "pause", "Stop following, or go on"),
    Key("logs", "wrap", "w", "wrap", "Wrap long lines, or cut them"),
    Key("logs", "sideways(-1)", "left", "left", "Half a screen to the left"),
    Key("logs", "sideways(1)", "right", "right", "Half a screen to the right"),
    Key("logs", "clear", "escape", "clear", "Clear the search; once more, the filter"),
    Key("trials", "select", "enter", "open", "Open this trajectory, turn by turn", bar=True),
    Key("trials", "flagged", "exclamation_mark", "flagged", "Only trials that stand out, and all", bar=True),
    Key(
        "trials",
        "filter",
        "slash",
        "filter",
        "Only trials whose task, name, flags or finish reason hold a text",
    ),
    Key("trials", "sort", "o", "order", "Newest first, or by reward, turns, tokens"),
    Key(
        "trials", "steps", "c", "steps", "A line per step: who calls tools, rewards, finish reasons; and back"
    ),
    Key(
        "trials",
        "older",
        "left_square_bracket",
        "older step",
        "All trials of the newest step, of the one before ...",
    ),
    Key(
        "trials",
        "newer",
        "right_square_bracket",
        "newer step",
        "The step after; after the last the newest of all",
    ),
    # -- one trajectory
    Key(
        "trajectory", "fold", "enter,space", "open/close", "Open or close the part under the cursor", bar=True
    ),
    Key("trajectory", "fold_all", "e", "all", "Open every part, or close them as they were", bar=True),
    Key("trajectory", "hide('system')", "1", "system", "System messages on or off"),
    Key("trajectory", "hide('user')", "2", "user", "User messages on or off"),
    Key("trajectory", "hide('reasoning')", "3", "reasoning", "Reasoning on or off"),
    Key("trajectory", "hide('call')", "4", "calls", "Tool calls on or off"),
    Key("trajectory", "hide('result')", "5", "results", "Tool results on or off"),
    Key("trajectory", "find", "slash", "find", "Find a text in it; capitals count if you type one", bar=True),
    Key("trajectory", "hit(1)", "n", "next hit", "The next place where the text stands"),
    Key("trajectory", "hit(-1)", "N", "previous hit", "The previous place where the text stands"),
    Key("trajectory", "turn(1)", "right_square_bracket", "next turn", "The next turn"),
    Key("trajectory", "turn(-1)", "left_square_bracket", "previous turn", "The previous turn"),
    Key(
        "trajectory", "trial(1)", "J,greater_than_sign", "next trial", "The next trial of the list", bar=True
    ),
    Key("trajectory", "trial(-1)", "K,less_than_sign", "previous trial", "The previous trial of the list"),
    Key("trajectory", "flagged(1)", "full_stop", "next flagged", "The next trial that stands out", bar=True),
    Key("trajectory", "flagged(-1)", "comma", "previous flagged", "The previous trial that stands out"),
    Key("trajectory", "raw", "v", "raw", "The raw JSON record of this turn, and back", bar=True),
    # -- help
    Key("help", "back", "escape,q,question_mark,f1", "close", "Close this screen", bar=True),
    Key("help", "filter", "slash", "filter", "Show only the lines with some text; empty shows all", bar=True),
    # -- dialogs
    Key("dialog", "pick", "enter", "choose", "What is marked, or the name that was typed"),
    Key("dialog", "cancel", "escape", "back", "Leave the dialog; nothing is done"),
    Key("dialog", "interrupt", "ctrl+c,ctrl+q,q", "back", "As Esc; when asked about quitting: detach"),
    Key("dialog", "answer('yes')", "y", "yes", "Do what is asked about"),
    Key("dialog", "answer('no')", "n", "no", "Leave it"),
    Key("dialog", "answer('detach')", "d", "detach", "Quitting: leave, and the run goes on"),
    Key("dialog", "answer('stop')", "s", "stop", "Quitting: stop the run; wants its name typed"),
    # -- metrics
    Key(
        "metrics",
        "go(-1, 0)",
        "left",
        "left",
        "The chart to the left; with a cursor or one chart: a point back",
    ),
    Key(
        "metrics",
        "go(1, 0)",
        "right",
        "right",
        "The chart to the right; with a cursor or one chart: a point on",
    ),
    Key("metrics", "go(0, -1)", "up,k", "up", "The chart above"),
    Key("metrics", "go(0, 1)", "down,j", "down", "The chart below"),
    Key("metrics", "maximise", "enter,z", "one chart", "The selected chart alone, and back", bar=True),
    Key("metrics", "find", "slash", "find", "Find any metric by a part of its name, and show it", bar=True),
    Key("metrics", "remove", "d", "remove", "Take the selected chart away", bar=True),
    Key("metrics", "defaults", "o", "usual charts", "The usual charts again"),
    Key(
        "metrics",
        "cursor",
        "c",
        "read off",
        "A cursor that reads every chart off at one step, and none",
        bar=True,
    ),
    Key("metrics", "leap(-10)", "shift+left", "far back", "The cursor ten points back", shown="⇧←"),
    Key("metrics", "leap(10)", "shift+right", "far on", "The cursor ten points on", shown="⇧→"),
    Key("metrics", "zoom(1)", "plus,equals_sign", "fewer steps", "Show fewer of the newest steps", bar=True),
    Key("metrics", "zoom(-1)", "minus", "more steps", "Show more steps"),
    Key("metrics", "zoom_all", "0", "all steps", "Show all steps", bar=True),
    Key(
        "metrics",
        "log_scale",
        "L",
        "log scale",
        "The selected chart's values on a logarithmic scale",
        bar=True,
    ),
    Key("metrics", "smooth", "g", "smooth", "Moving average over the values: more of it, and none", bar=True),
    # -- one service
    Key(
        "service", "other(-1)", "left_square_bracket", "previous", "The service before in the list", bar=True
    ),
    Key("service", "other(1)", "right_square_bracket", "next", "The next service of the list", bar=True),
    Key(
        "service",
        "next_pane",
        "tab",
        "other pane",
        "To the list of services, and back to the detail",
        bar=True,
    ),
    Key("service", "logs", "l", "logs", "The log of this service, on the dashboard", bar=True),
    # -- events
    Key("events", "filter", "slash", "filter", "Only events whose text or service holds a text", bar=True),
    Key("events", "level", "v", "level", "All events, without debug, warnings and errors, errors", bar=True),
    Key("events", "follow", "f", "follow", "Follow the newest event, or stay where you are", bar=True),
    Key(
        "events",
        "data",
        "enter",
        "data",
        "What else the event under the cursor tells, and close it",
        bar=True,
    ),
    Key("events", "older", "o", "all", "Read every older event from the run's files"),
)


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
