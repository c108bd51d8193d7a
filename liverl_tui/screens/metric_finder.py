"""Finds a metric by any part of its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.fuzzy import Matcher
from textual.widgets import Input

from liverl_tui.screens.dialogs import Dialog, Options, TypedInput, Wrapped
from liverl_tui.widgets.cells import Row

if TYPE_CHECKING:
    from textual.binding import BindingType

QUERY_MOST = 40  # characters; the matcher tries every way in which they could be spread
_VALUE = 9  # columns of a value
_KEYS: list[BindingType] = [
    Binding("up,ctrl+p", "move(-1)", show=False),
    Binding("down,ctrl+n", "move(1)", show=False),
    Binding("pageup", "page(-1)", show=False),
    Binding("pagedown", "page(1)", show=False),
]


def ranked(query: str, keys: Iterable[str]) -> list[str]:
    """The keys that fit, the best first; all of them, by name, where nothing is asked for."""
    ordered = sorted(keys)
    words = query[:QUERY_MOST].lower().split()
    if not words:
        return ordered
    matcher = Matcher("".join(words))
    scored = []
    for key in ordered:
        # What holds the words as they are comes before what only has their letters.
        held = all(word in key.lower() for word in words)
        score = matcher.match(key)
        if held or score > 0:
            scored.append((-held, -score, key))
    return [key for _, _, key in sorted(scored)]


class Metrics(Options):
    """Metrics with their newest values; ``●`` marks those that have a chart. What is typed goes to the input above,
    which keeps the focus."""

    can_focus = False

    def __init__(self, newest: Mapping[str, str], shown: Collection[str]) -> None:
        super().__init__(())
        self._newest = newest
        self._shown = shown
        self._found = ranked("", newest)

    def look_for(self, query: str) -> None:
        self._found = ranked(query, self._newest)
        self.action_first()
        self.update()

    def keys(self) -> Sequence[str]:
        return self._found

    def row(self, key: str, width: int) -> Row:
        mark = (" ● ", "ok") if key in self._shown else ("   ", "text")
        row = Row(mark).add(key, "text", width=max(4, width - _VALUE - 4))
        return row.add(self._newest[key], "strong", _VALUE, ">")

    def empty(self, width: int) -> Iterable[Row]:
        return [Row((" no metric is called that", "dim"))]

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        rows = list(super().compose_rows(width, height))
        place = 1 + self._at - self._top  # below the line
        if self._found and place < len(rows):
            rows[place].cursor = True
        return rows


class MetricFinder(Dialog[str]):
    """Its answer is the key of a metric, or None."""

    BINDINGS = _KEYS
    DEFAULT_CSS = "MetricFinder { align: center top; }"

    def __init__(self, newest: Mapping[str, str], shown: Collection[str]) -> None:
        super().__init__()
        self._newest, self._shown = newest, shown

    def parts(self) -> ComposeResult:
        yield Wrapped("Metrics", "title")
        yield TypedInput("a part of the name; Enter shows it", id="query")
        yield Metrics(self._newest, self._shown)

    @property
    def metrics(self) -> Metrics:
        return self.query_one(Metrics)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.metrics.look_for(event.value)

    def action_move(self, by: int) -> None:
        self.metrics.action_move(by)

    def action_page(self, by: int) -> None:
        self.metrics.action_page(by)

    def action_pick(self) -> None:
        key = self.metrics.cursor
        if key is not None:
            self.dismiss(key)
