"""The command palette: finds an action by its name. Lists the actions of the keys that work now, and those of each
service, replica and theme."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from textual.fuzzy import FuzzySearch

from liverl_tui.data.host import Host
from liverl_tui.data.view import ENDED, STARTABLE, actors, processes
from liverl_tui.keys.bindings import reachable
from liverl_tui.screens.finder import QUERY_MOST, Choices, Finder
from liverl_tui.text import themes
from liverl_tui.text.words import state_word
from liverl_tui.widgets.base.cells import Row

_NAME = 24  # columns of a name
_KEY = 7  # columns of a key
_ABOUT_SCORE = 0.01  # of a match in the explanation only: it comes after every match in a name


@dataclass(frozen=True)
class Entry:
    """One command. ``do`` runs it. ``about``: an explanation. ``key``: its key as people write it; empty if none."""

    name: str
    about: str
    do: Callable[[], object]
    key: str = ""


def entries(app: Host) -> list[Entry]:
    """Return the commands that can be run now: those of keys, the nearest scope first, then those of services,
    actors and themes. Of entries with one name, the first is kept. In a read-only interface none changes the run."""
    by_name: dict[str, Entry] = {}
    for entry in (*_of_keys(app), *_of_services(app), *_of_actors(app), *_of_gpus(app), *_of_themes(app)):
        by_name.setdefault(entry.name, entry)
    return list(by_name.values())


def _of_keys(app: Host) -> Iterator[Entry]:
    screen = app.run_screen
    if screen is None:
        return
    for key in reachable(scope for scope, _ in screen.scoped_nodes()):
        if key.action != "palette" and not (key.changes and app.readonly):
            yield Entry(key.label, key.help, partial(app.call_later, screen.run_key, key), key.name)


def _of_services(app: Host) -> Iterator[Entry]:
    for service in processes(app.view.snapshot):
        name, now = service.name, f"{service.kind}, {state_word(service.state)}"
        yield Entry(
            f"service {name}", f"Show its details ({now})", partial(app.navigation.open_service, name)
        )
        if service.log is not None:
            yield Entry(f"logs {name}", f"Show its log ({now})", partial(app.navigation.open_log, name))
        if app.readonly:
            continue
        yield Entry(
            f"restart {name}", f"Restart this service ({now})", partial(app.commands.restart_one, service)
        )
        if service.state in STARTABLE:
            yield Entry(
                f"start {name}", f"Start this service ({now})", partial(app.commands.start_one, service)
            )
        if service.state not in ENDED:
            yield Entry(f"stop {name}", f"Stop this service ({now})", partial(app.commands.stop_one, service))
        if service.kind == "replica":
            yield Entry(
                f"remove {name}",
                f"Drain and remove this replica ({now})",
                partial(app.commands.remove_one, service),
            )


def _of_actors(app: Host) -> Iterator[Entry]:
    for replica in actors(app.view.snapshot):
        name, now = replica.name, f"verl replica, {state_word(replica.state)}"
        yield Entry(
            f"replica {name}", f"Show its details ({now})", partial(app.navigation.open_service, name)
        )
        yield Entry(
            f"logs {name}",
            f"Show its lines in the trainer's log ({now})",
            partial(app.navigation.open_log, name),
        )


def _of_gpus(app: Host) -> Iterator[Entry]:
    for gpu in app.view.snapshot.gpus if app.view.snapshot is not None else ():
        yield Entry(
            f"gpu {gpu.index}", f"Show its details ({gpu.owner})", partial(app.navigation.open_gpu, gpu.uuid)
        )


def _of_themes(app: Host) -> Iterator[Entry]:
    for name in themes.PALETTES:
        short = name.removeprefix("liverl-")
        yield Entry(f"theme {short}", "Use this theme", partial(app.navigation.use_theme, name))


def rank(query: str, candidates: Sequence[Entry]) -> list[Entry]:
    """Return the entries that match ``query``, the best match first; all, in their order, for an empty query.

    Names are matched fuzzily; explanations must contain every word. Only the first ``QUERY_MOST`` characters count.
    """
    needle = " ".join(query.split())[:QUERY_MOST].lower()
    if not needle:
        return list(candidates)
    search = FuzzySearch()
    scored = []
    for entry in candidates:
        score, _ = search.match(needle, entry.name)
        if not score and all(word in entry.about.lower() for word in needle.split()):
            score = _ABOUT_SCORE
        if score:
            scored.append((score, entry))
    scored.sort(key=lambda pair: -pair[0])  # stable: equals keep their order
    return [entry for _, entry in scored]


class Entries(Choices):
    """The list of matching entries; the name of a row is its number in this list."""

    def __init__(self, candidates: Sequence[Entry]) -> None:
        super().__init__()
        self._all = list(candidates)
        self._matches = self._all

    def find(self, query: str) -> None:
        """List the entries that match ``query``, the best match first."""
        self._matches = rank(query, self._all)

    @property
    def chosen(self) -> Entry | None:
        """The entry under the cursor; None if none matches."""
        key = self.cursor
        return self._matches[int(key)] if key is not None else None

    def keys(self) -> Sequence[str]:
        """Return the numbers of the matching entries, as text."""
        return [str(number) for number in range(len(self._matches))]

    def row(self, key: str, width: int) -> Row:
        """Return name, explanation and key of an entry."""
        entry = self._matches[int(key)]
        name = min(_NAME, max(8, width - _KEY - 2))
        row = Row().add(" ").add(entry.name, "text", width=name)
        return (
            row.add(" ")
            .add(entry.about, "dim", width=max(0, width - name - _KEY - 3))
            .add(f" {entry.key}", "key")
        )

    def empty(self, width: int) -> Iterable[Row]:
        """Return the line that says that no command matches."""
        return [Row((" no command matches", "dim"))]


class Palette(Finder[Entry]):
    """The command palette. Dismissed with the chosen entry, which the caller runs, or None."""

    widest = 100

    def __init__(self, candidates: Sequence[Entry]) -> None:
        self._entries = Entries(candidates)
        super().__init__("Commands", "type part of a name", self._entries)

    def answer(self) -> Entry | None:
        """Return the entry under the cursor."""
        return self._entries.chosen
