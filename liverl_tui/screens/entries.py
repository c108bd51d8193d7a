"""The entries of the command line: the actions of the keys that work now, the typed commands, and the actions of each
service, replica, GPU and theme."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from textual.fuzzy import FuzzySearch

from liverl_tui.data.host import Host
from liverl_tui.data.view import ENDED, STARTABLE, actors, processes
from liverl_tui.keys.bindings import reachable
from liverl_tui.keys.of_run import worded
from liverl_tui.keys.questions import QUESTIONS
from liverl_tui.screens.finder import QUERY_MOST
from liverl_tui.text import themes
from liverl_tui.text.status_label import shown_owner
from liverl_tui.text.words import state_word
from liverl_tui.typed.command import Here
from liverl_tui.typed.table import COMMANDS, act_of_line

_OF_RECORDINGS = ("pause_demo", "seek_demo(-1)", "seek_demo(1)", "demo_speed(-1)", "demo_speed(1)")
_ABOUT_SCORE = 0.01  # of a match in the explanation only: it comes after every match in a name


@dataclass(frozen=True)
class Entry:
    """One command. ``do`` runs it. ``about``: an explanation. ``key``: its key as people write it; empty if none.
    ``line``: for a typed command, the text that the line is completed to; None for all others, which are run."""

    name: str
    about: str
    do: Callable[[], object]
    key: str = ""
    line: str | None = None
    of_key: bool = False  # an action of the table of keys, which need not have a key
    asked: bool = False  # a question: found by its words, below what is found by its name

    @property
    def completed(self) -> str:
        """The text of the line when this entry is completed."""
        return self.name if self.line is None else self.line


def entries(app: Host) -> list[Entry]:
    """Return the commands that can be given now: those of keys, the nearest scope first, then the typed ones, then
    those of services, actors, GPUs and themes, then the questions of the help. Of entries with one name, the first is
    kept. In a read-only interface none changes the run."""
    by_name: dict[str, Entry] = {}
    for source in (_of_keys, _of_typed, _of_services, _of_actors, _of_gpus, _of_themes, _of_questions):
        for entry in source(app):
            by_name.setdefault(entry.name, entry)
    return list(by_name.values())


def _of_keys(app: Host) -> Iterator[Entry]:
    screen = app.run_screen
    if screen is None:
        return
    for key in reachable(scope for scope, _ in screen.scoped_nodes()):
        played = app.view.demo or key.action not in _OF_RECORDINGS
        if key.action != "palette" and played and not (key.changes and app.readonly):
            words = worded(key, app.view.snapshot)
            yield Entry(
                words.label,
                words.help,
                functools.partial(app.call_later, screen.run_key, key),
                key.name,
                of_key=True,
            )


def _of_typed(app: Host) -> Iterator[Entry]:
    for command in COMMANDS:
        if not (command.changes and app.readonly):
            blank = " " if command.form else ""  # its arguments are typed next
            yield Entry(
                command.usage,
                command.help,
                functools.partial(run_line, app, command.name),
                line=command.name + blank,
            )


def run_line(app: Host, line: str) -> None:
    """Run a typed command.

    Raises:
        TypedError: the line is none, or its arguments are wrong or incomplete.
    """
    act_of_line(line, here_of(app))(app)


def here_of(app: Host) -> Here:
    """What typed commands are completed and checked with now."""
    screen = app.run_screen
    pane = screen.focused if screen is not None else None
    later = app.next_attempt
    return Here(
        app.view,
        app.commands.refused(),
        later.refused(),
        pane,
        time.time(),
        later.problem_with,
        functools.cache(later.present_values),
    )


def _of_services(app: Host) -> Iterator[Entry]:
    for service in processes(app.view.snapshot):
        name, now = service.name, f"{service.kind}, {state_word(service.state)}"
        yield Entry(
            f"service {name}",
            f"Show its details ({now})",
            functools.partial(app.navigation.open_service, name),
        )
        if service.log is not None:
            yield Entry(
                f"logs {name}", f"Show its log ({now})", functools.partial(app.navigation.open_log, name)
            )
        if app.readonly:
            continue
        yield Entry(
            f"restart {name}",
            f"Restart this service ({now})",
            functools.partial(app.commands.restart_one, service),
        )
        if service.state in STARTABLE:
            yield Entry(
                f"start {name}",
                f"Start this service ({now})",
                functools.partial(app.commands.start_one, service),
            )
        if service.state not in ENDED:
            yield Entry(
                f"stop {name}",
                f"Stop this service ({now})",
                functools.partial(app.commands.stop_one, service),
            )
        if service.kind == "replica":
            yield Entry(
                f"remove {name}",
                f"Drain and remove this replica ({now})",
                functools.partial(app.commands.remove_one, service),
            )


def _of_actors(app: Host) -> Iterator[Entry]:
    for replica in actors(app.view.snapshot):
        name, now = replica.name, f"verl replica, {state_word(replica.state)}"
        yield Entry(
            f"replica {name}",
            f"Show its details ({now})",
            functools.partial(app.navigation.open_service, name),
        )
        yield Entry(
            f"logs {name}",
            f"Show its lines in the trainer's log ({now})",
            functools.partial(app.navigation.open_log, name),
        )


def _of_gpus(app: Host) -> Iterator[Entry]:
    for gpu in app.view.snapshot.gpus if app.view.snapshot is not None else ():
        yield Entry(
            f"gpu {gpu.index}",
            f"Show its details ({shown_owner(gpu.owner)})",
            functools.partial(app.navigation.open_gpu, gpu.uuid),
        )


def _of_themes(app: Host) -> Iterator[Entry]:
    for name in themes.PALETTES:
        short = name.removeprefix("liverl-")
        yield Entry(f"theme {short}", "Use this theme", functools.partial(app.navigation.use_theme, name))


def _of_questions(app: Host) -> Iterator[Entry]:
    screen = app.run_screen
    if screen is None:
        return
    now = {(key.scope, key.action): key for key in reachable(scope for scope, _ in screen.scoped_nodes())}
    for question in QUESTIONS:
        if (key := now.get(question.opens)) is not None:
            run = functools.partial(app.call_later, screen.run_key, key)
            yield Entry(question.asked, question.answer, run, key.name, asked=True)


def rank(query: str, candidates: Sequence[Entry]) -> list[Entry]:
    """Return the entries that match ``query``, the best match first; all, in their order, for an empty query.

    Names are matched fuzzily; explanations, and questions with their answers, must contain every word. Only the first
    ``QUERY_MOST`` characters count.
    """
    needle = " ".join(query.split())[:QUERY_MOST].lower()
    if not needle:
        return list(candidates)
    search = FuzzySearch()
    scored = []
    for entry in candidates:
        score, _ = (0.0, ()) if entry.asked else search.match(needle, entry.name)
        about = f"{entry.name} {entry.about}" if entry.asked else entry.about
        if not score and all(word in about.lower() for word in needle.split()):
            score = _ABOUT_SCORE
        if score:
            scored.append((score, entry))
    scored.sort(key=lambda pair: -pair[0])  # stable: equals keep their order
    return [entry for _, entry in scored]
