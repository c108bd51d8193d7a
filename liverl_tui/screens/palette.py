"""Any action by its name: those of the keys that work now, and the same with a service or a theme named."""

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
_KEY = 7
_ABOUT_SCORE = 0.01  # for a hit in the explanation only: behind every hit in a name


@dataclass(frozen=True)
class Entry:
    """``do`` does it. ``key``: how its key is written, where it has one."""

    name: str
    about: str
    do: Callable[[], object]
    key: str = ""


def entries(app: Host) -> list[Entry]:
    """What can be done now, the nearest scope first; under each name once."""
    found: dict[str, Entry] = {}
    for entry in (*_of_keys(app), *_of_services(app), *_of_actors(app), *_of_themes(app)):
        found.setdefault(entry.name, entry)
    return list(found.values())


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
        yield Entry(f"service {name}", f"Its detail ({now})", partial(app.navigation.open_service, name))
        if service.log is not None:
            yield Entry(f"logs {name}", f"Its log ({now})", partial(app.navigation.open_log, name))
        if app.readonly:
            continue
        yield Entry(f"restart {name}", f"Restart it ({now})", partial(app.commands.restart_one, service))
        if service.state in STARTABLE:
            yield Entry(f"start {name}", f"Start it ({now})", partial(app.commands.start_one, service))
        if service.state not in ENDED:
            yield Entry(f"stop {name}", f"Stop it ({now})", partial(app.commands.stop_one, service))
        if service.kind == "replica":
            yield Entry(
                f"remove {name}", f"Drain and remove it ({now})", partial(app.commands.remove_one, service)
            )


def _of_actors(app: Host) -> Iterator[Entry]:
    for replica in actors(app.view.snapshot):
        name, now = replica.name, f"replica of verl's, {state_word(replica.state)}"
        yield Entry(f"replica {name}", f"Its detail ({now})", partial(app.navigation.open_service, name))
        yield Entry(
            f"logs {name}",
            f"What it says in the trainer's log ({now})",
            partial(app.navigation.open_log, name),
        )


def _of_themes(app: Host) -> Iterator[Entry]:
    for name in themes.PALETTES:
        short = name.removeprefix("liverl-")
        yield Entry(f"theme {short}", "Use this theme", partial(app.navigation.use_theme, name))


def rank(query: str, found: Sequence[Entry]) -> list[Entry]:
    """The entries that fit, the best first; all of them, in their order, for an empty query."""
    wanted = " ".join(query.split())[:QUERY_MOST].lower()
    if not wanted:
        return list(found)
    search = FuzzySearch()
    scored = []
    for entry in found:
        score, _ = search.match(wanted, entry.name)
        if not score and all(word in entry.about.lower() for word in wanted.split()):
            score = _ABOUT_SCORE
        if score:
            scored.append((score, entry))
    scored.sort(key=lambda pair: -pair[0])  # stable: equals keep their order
    return [entry for _, entry in scored]


class Entries(Choices):
    """The entries that fit."""

    def __init__(self, found: Sequence[Entry]) -> None:
        super().__init__()
        self._all = list(found)
        self._found = self._all

    def find(self, query: str) -> None:
        self._found = rank(query, self._all)

    @property
    def chosen(self) -> Entry | None:
        key = self.cursor
        return self._found[int(key)] if key is not None else None

    def keys(self) -> Sequence[str]:
        return [str(number) for number in range(len(self._found))]

    def row(self, key: str, width: int) -> Row:
        entry = self._found[int(key)]
        name = min(_NAME, max(8, width - _KEY - 2))
        row = Row().add(" ").add(entry.name, "text", width=name)
        return (
            row.add(" ")
            .add(entry.about, "dim", width=max(0, width - name - _KEY - 3))
            .add(f" {entry.key}", "key")
        )

    def empty(self, width: int) -> Iterable[Row]:
        return [Row((" nothing is called that", "dim"))]


class Palette(Finder[Entry]):
    """The command palette."""

    widest = 100

    def __init__(self, found: Sequence[Entry]) -> None:
        self._entries = Entries(found)
        super().__init__("Commands", "type a part of a name", self._entries)

    def answer(self) -> Entry | None:
        return self._entries.chosen
